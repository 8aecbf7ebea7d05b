#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace dak::ops {

/// Whether bf16 products run in the CPU's own bf16 instructions (AVX-512 BF16, AMX).
bool has_fast_bf16();

/// c[m, n] = sum_k a[m, k] * b[n, k]; `dtype` (fp32 or bf16) is that of a and b, c is fp32; all
/// dense and row-major. Runs on the calling thread.
void matmul(DType dtype, int64_t m, int64_t n, int64_t k, const void* a, const void* b, float* c);

}  // namespace dak::ops
