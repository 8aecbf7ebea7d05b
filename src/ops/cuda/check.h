#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/error.h"

namespace dak::cuda {

/// Throws Error "<what>: <CUDA's message>" unless `status` is success.
inline void check(cudaError_t status, std::string_view what) {
    if (status != cudaSuccess) fail("{}: CUDA: {}", what, cudaGetErrorString(status));
}

}  // namespace dak::cuda
