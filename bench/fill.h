#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace dak::bench {

/// Fills `count` bf16 elements with uniform random values of standard deviation `scale`. Timing on
/// zeros would flatter every contestant: they draw less power.
void fill_random(void* elements, int64_t count, uint32_t seed, float scale, cudaStream_t stream);

}  // namespace dak::bench
