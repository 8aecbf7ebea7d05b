#pragma once

#include "ops/cuda/split_gemm/params.h"

namespace dak::cuda {

/// Entry points of the compiled kernels, for cudaLaunchKernelExC; Element is __nv_bfloat16 or
/// __half. Null when there is no such one. A decode kernel takes (CUtensorMap x, DecodeParams), a
/// prefill kernel (CUtensorMap x, CUtensorMap y, PrefillParams), a wide one (CUtensorMap x,
/// PrefillParams).
template <typename Element>
const void* decode_kernel(int tokens_per_tile, int row_tiles);
template <typename Element>
const void* prefill_kernel(int tokens_per_tile, int cluster);
template <typename Element>
const void* wide_kernel(int tokens_per_tile, int rows_per_tile);

}  // namespace dak::cuda
