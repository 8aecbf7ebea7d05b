#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace dak::testing {

/// out[n, m] = sum_k x[n, k] w[m, k] in fp64; device pointers, row-major, 16-bit elements (bf16, or
/// fp16 when `fp16`). Rows of x are `ldx` elements apart, those of w and out dense.
void reference_product(bool fp16, const void* w, const void* x, int64_t ldx, int rows, int cols,
                       int tokens, double* out, cudaStream_t stream);

}  // namespace dak::testing
