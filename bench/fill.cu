#include <cuda_bf16.h>

#include "fill.h"

namespace dak::bench {
namespace {

__device__ uint32_t scrambled(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

__global__ void fill(__nv_bfloat16* elements, int64_t count, uint32_t seed, float scale) {
    const int64_t stride = int64_t{gridDim.x} * blockDim.x;
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
        const uint32_t bits = scrambled(scrambled(seed + static_cast<uint32_t>(i >> 24)) +
                                        static_cast<uint32_t>(i) * 0x85ebca6bu);
        const float uniform = static_cast<float>(static_cast<int>(bits)) * (1.0f / 2147483648.0f);
        elements[i] = __float2bfloat16(uniform * 1.7320508f * scale);
    }
}

}  // namespace

void fill_random(void* elements, int64_t count, uint32_t seed, float scale, cudaStream_t stream) {
    fill<<<1056, 256, 0, stream>>>(static_cast<__nv_bfloat16*>(elements), count, seed, scale);
}

}  // namespace dak::bench
