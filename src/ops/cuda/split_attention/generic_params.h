#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace dak::cuda {

struct GenericAttentionParams {
    const void* q;
    void* out;
    int64_t ldq, ldo;
    const uint8_t* local;
    const uint8_t* remote;
    const int32_t* lengths;
    const int32_t* query_starts;
    const int32_t* pages;
    int64_t pages_stride;
    int64_t page_bytes, head_bytes, block_bytes;
    int num_local_pages;
    int sequences, head_dim, head_group;
    int sliding_window;
    float scale;
    float soft_cap;
};

inline constexpr int kGenericAttentionThreads = 128;

/// Entry point for cudaLaunchKernelExC; Element is __nv_bfloat16 or __half.
template <typename Element>
const void* generic_attention_kernel();

}  // namespace dak::cuda
