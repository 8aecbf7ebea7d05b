#pragma once

#include <cuda_runtime_api.h>

#include "ops/cuda/split_attention/params.h"

namespace dak::cuda {

/// Enqueues the kernels that make a work list. Errors are left for cudaGetLastError.
void launch_plan(const PlanParams& params, cudaStream_t stream);

/// Entry points of the compiled kernels, for cudaLaunchKernelExC; Element is __nv_bfloat16 or
/// __half. Null when there is no such one. They take their parameter struct.
template <typename Element>
const void* decode_attention_kernel(int head_dim, int rows);
template <typename Element>
const void* prefill_attention_kernel(int head_dim);
const void* copy_pages_kernel();

}  // namespace dak::cuda
