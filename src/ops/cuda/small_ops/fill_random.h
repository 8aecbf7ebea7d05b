#pragma once

#include <cuda_runtime_api.h>

#include "memory/random_matrix.h"
#include "memory/split_tensor.h"

namespace dak::cuda {

/// Writes the packed atoms of `matrix` to both tiers of `tensor` (bf16 or fp16), the same bits as
/// on the CPU, padding included. Remote atoms in pinned host memory are written over the link.
/// Throws Error on a tensor of another type.
void fill_random(const RandomMatrix& matrix, const SplitTensor& tensor, cudaStream_t stream);

}  // namespace dak::cuda
