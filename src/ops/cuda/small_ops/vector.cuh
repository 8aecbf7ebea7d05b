#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ops/cuda/small_ops/params.h"

// Chunks of eight 16-bit elements in registers.

namespace dak::cuda {

template <typename Element>
struct Pair;
template <>
struct Pair<__nv_bfloat16> {
    using Type = __nv_bfloat162;
    static __device__ __forceinline__ float2 widened(Type v) { return __bfloat1622float2(v); }
    static __device__ __forceinline__ Type rounded(float2 v) { return __float22bfloat162_rn(v); }
};
template <>
struct Pair<__half> {
    using Type = __half2;
    static __device__ __forceinline__ float2 widened(Type v) { return __half22float2(v); }
    static __device__ __forceinline__ Type rounded(float2 v) { return __float22half2_rn(v); }
};

template <typename Element>
__device__ __forceinline__ void widen(uint4 chunk, float (&values)[kChunkElements]) {
    using Two = typename Pair<Element>::Type;
    const uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 two = Pair<Element>::widened(reinterpret_cast<const Two&>(words[i]));
        values[2 * i] = two.x;
        values[2 * i + 1] = two.y;
    }
}

template <typename Element>
__device__ __forceinline__ uint4 rounded(const float (&values)[kChunkElements]) {
    using Two = typename Pair<Element>::Type;
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const Two two = Pair<Element>::rounded(make_float2(values[2 * i], values[2 * i + 1]));
        words[i] = reinterpret_cast<const uint32_t&>(two);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/// Stores the first `count` elements of a chunk.
__device__ __forceinline__ void store_chunk(void* row, int chunk, uint4 value, int count) {
    if (count >= kChunkElements) {
        static_cast<uint4*>(row)[chunk] = value;
        return;
    }
    const uint32_t words[4] = {value.x, value.y, value.z, value.w};
    auto* to = static_cast<uint16_t*>(row) + chunk * kChunkElements;
#pragma unroll
    for (int i = 0; i < kChunkElements; ++i) {
        if (i < count) to[i] = static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
    }
}

/// Row `row` of a matrix of 16-bit elements.
__device__ __forceinline__ void* row_of(void* matrix, int64_t row, int64_t stride) {
    return static_cast<uint16_t*>(matrix) + row * stride;
}
__device__ __forceinline__ const uint4* row_of(const void* matrix, int64_t row, int64_t stride) {
    return reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(matrix) + row * stride);
}

}  // namespace dak::cuda
