#include "ops/cuda/ptx.cuh"
#include "ops/cuda/small_ops/kernels.h"
#include "ops/cuda/small_ops/vector.cuh"

// One CTA a row. The row stays in registers, so it is read once; scale and bias, which no kernel
// writes, are fetched before the preceding kernel has finished.

namespace dak::cuda {
namespace {

constexpr int kMaxWarps = kNormThreads / 32;

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
}

/// Sum over the CTA, in every thread. `partials` is used by one call only.
__device__ __forceinline__ float block_sum(float value, float (&partials)[kMaxWarps]) {
    const unsigned lane = threadIdx.x % 32;
    value = warp_sum(value);
    if (lane == 0) partials[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_sum(lane < blockDim.x / 32 ? partials[lane] : 0.0f);
}

/// Eight of `width` values, of which the first is `first`; `fill` past the end or without values.
__device__ __forceinline__ void load_vector(const float* values, int first, int width, float fill,
                                            float (&out)[kChunkElements]) {
    if (values != nullptr && first + kChunkElements <= width) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float4 four = __ldg(reinterpret_cast<const float4*>(values + first) + i);
            out[4 * i] = four.x;
            out[4 * i + 1] = four.y;
            out[4 * i + 2] = four.z;
            out[4 * i + 3] = four.w;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < kChunkElements; ++i) {
        out[i] = values != nullptr && first + i < width ? __ldg(values + first + i) : fill;
    }
}

template <typename Element, int kChunks>
__global__ void __launch_bounds__(kNormThreads) norm_row(const __grid_constant__ RowParams p) {
    __shared__ float partials[2][kMaxWarps];
    ptx::grid_launch_dependents();
    float scale[kChunks][kChunkElements], shift[kChunks][kChunkElements];
    const auto first_of = [](int c) {
        return static_cast<int>(threadIdx.x + c * blockDim.x) * kChunkElements;
    };
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        load_vector(p.weight, first_of(c), p.width, 1.0f, scale[c]);
        load_vector(p.bias, first_of(c), p.width, 0.0f, shift[c]);
    }
    ptx::grid_wait();
    const int row = static_cast<int>(blockIdx.x);
    const int from = p.row_index == nullptr ? row : p.row_index[row];
    if (from < 0) return;

    const uint4* in = row_of(p.x, from, p.ldx);
    float x[kChunks][kChunkElements];
    uint4 chunks[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        const bool inside = first_of(c) < p.width;
        chunks[c] = inside ? in[first_of(c) / kChunkElements] : make_uint4(0, 0, 0, 0);
    }
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        widen<Element>(chunks[c], x[c]);
#pragma unroll
        for (int i = 0; i < kChunkElements; ++i) {
            if (first_of(c) + i >= p.width) x[c][i] = 0.0f;
            sum += x[c][i];
        }
    }
    const float per_element = 1.0f / static_cast<float>(p.width);
    const float mean = p.centred ? block_sum(sum, partials[0]) * per_element : 0.0f;
    float squares = 0.0f;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
        for (int i = 0; i < kChunkElements; ++i) {
            x[c][i] -= mean;
            if (first_of(c) + i < p.width) squares += x[c][i] * x[c][i];
        }
    }
    const float factor = rsqrtf(block_sum(squares, partials[1]) * per_element + p.eps);
    void* out = row_of(p.out, row, p.ldo);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        if (first_of(c) >= p.width) continue;
#pragma unroll
        for (int i = 0; i < kChunkElements; ++i) {
            x[c][i] = x[c][i] * factor * scale[c][i] + shift[c][i];
        }
        store_chunk(out, first_of(c) / kChunkElements, rounded<Element>(x[c]),
                    p.width - first_of(c));
    }
}

}  // namespace

template <typename Element>
const void* norm_kernel(int chunks) {
    switch (chunks) {
        case 1:
            return reinterpret_cast<const void*>(&norm_row<Element, 1>);
        case 2:
            return reinterpret_cast<const void*>(&norm_row<Element, 2>);
        case 4:
            return reinterpret_cast<const void*>(&norm_row<Element, 4>);
        default:
            return nullptr;
    }
}

template const void* norm_kernel<__nv_bfloat16>(int);
template const void* norm_kernel<__half>(int);

}  // namespace dak::cuda
