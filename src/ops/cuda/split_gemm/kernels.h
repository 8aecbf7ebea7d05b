#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/cuda/split_gemm/params.h"

namespace dak::cuda {

/// Entry points of the compiled kernels, for cudaLaunchKernelEx. Null when there is no such one.
const void* decode_kernel(DType dtype, int tokens_per_tile, int row_tiles);
const void* prefill_kernel(DType dtype, int tokens_per_tile, int cluster);

}  // namespace dak::cuda
