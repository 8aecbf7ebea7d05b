#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/cuda/split_attention/split_attention.h"

namespace dak::cuda {

/// Attention for the head sizes that the fast kernels do not serve: any up to 256. Serves decode
/// and prefill; `rows` is the number of rows of q. Reads keys and values once per query head, so it
/// is for models that are small. Otherwise as decode_attention.
void generic_attention(const AttentionArgs& args, int64_t rows, cudaStream_t stream,
                       bool programmatic = true);

}  // namespace dak::cuda
