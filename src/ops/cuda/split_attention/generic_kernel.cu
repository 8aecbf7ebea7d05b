#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_attention/generic_params.h"

// Grid (rows of q, query heads); each of the four warps of a CTA takes every fourth token, its
// lanes the elements of a head, and keeps a softmax of its own, merged at the end.

namespace dak::cuda {
namespace {

constexpr int kWarps = kGenericAttentionThreads / 32;
constexpr int kMaxElements = 256 / 32;  // of a head, per lane
constexpr int kPageSize = 64;

/// Byte offset of an element in a K or V block; KvPageLayout::chunk_offset in 32 bits.
__device__ int element_offset(int token, int element, int row_chunks) {
    const int chunk = element / 8;
    const int panel = chunk / 8;
    const int width = min(8, row_chunks - panel * 8);
    const int group = (width & 1) ? 1 : (width & 2) ? 2 : (width & 4) ? 4 : 8;
    const int swizzle = (token / (8 / group)) & (group - 1);
    return (panel * kPageSize * 8 + token * width + ((chunk % 8) ^ swizzle)) * 16 + element % 8 * 2;
}

__device__ float warp_sum(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
}

/// The sequence of a row of q: the last that starts at or before it.
__device__ int sequence_of(const GenericAttentionParams& p, int row) {
    if (p.query_starts == nullptr) return row;
    int low = 0;
    for (int high = p.sequences; high - low > 1;) {
        const int middle = (low + high) / 2;
        (p.query_starts[middle] <= row ? low : high) = middle;
    }
    return low;
}

template <typename Element>
__global__ void __launch_bounds__(kGenericAttentionThreads)
    generic_kernel(const __grid_constant__ GenericAttentionParams p) {
    __shared__ float sums[kWarps][kMaxElements * 32];
    __shared__ float maxima[kWarps], totals[kWarps];
    ptx::grid_launch_dependents();
    ptx::grid_wait();
    const int row = blockIdx.x;
    const int head = blockIdx.y;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int sequence = sequence_of(p, row);
    const int length = p.lengths[sequence];
    if (length == 0) return;
    const int first_row = p.query_starts == nullptr ? row : p.query_starts[sequence];
    const int new_tokens = p.query_starts == nullptr ? 1 : p.query_starts[sequence + 1] - first_row;
    const int position = length - new_tokens + row - first_row;
    if (position >= length) return;
    const int begin = p.sliding_window > 0 ? max(0, position + 1 - p.sliding_window) : 0;

    const int row_chunks = (p.head_dim + 7) / 8;
    float query[kMaxElements], sum[kMaxElements];
    const auto* q = static_cast<const Element*>(p.q) + row * p.ldq + head * p.head_dim;
#pragma unroll
    for (int i = 0; i < kMaxElements; ++i) {
        const int element = lane + 32 * i;
        query[i] = element < p.head_dim ? static_cast<float>(q[element]) : 0.0f;
        sum[i] = 0.0f;
    }
    float maximum = -INFINITY;
    float total = 0.0f;
    const int32_t* table = p.pages + sequence * p.pages_stride;
    for (int token = begin + warp; token <= position; token += kWarps) {
        const int page = table[token / kPageSize];
        const uint8_t* k =
            (page < p.num_local_pages ? p.local + page * p.page_bytes
                                      : p.remote + (page - p.num_local_pages) * p.page_bytes) +
            head / p.head_group * p.head_bytes;
        const uint8_t* v = k + p.block_bytes;
        float product = 0.0f;
#pragma unroll
        for (int i = 0; i < kMaxElements; ++i) {
            const int element = lane + 32 * i;
            if (element >= p.head_dim) continue;
            const int offset = element_offset(token % kPageSize, element, row_chunks);
            product += query[i] * static_cast<float>(*reinterpret_cast<const Element*>(k + offset));
        }
        float score = warp_sum(product) * p.scale;
        if (p.soft_cap > 0.0f) score = p.soft_cap * tanhf(score / p.soft_cap);
        const float higher = fmaxf(maximum, score);
        const float shrink = expf(maximum - higher);
        const float weight = expf(score - higher);
        maximum = higher;
        total = total * shrink + weight;
#pragma unroll
        for (int i = 0; i < kMaxElements; ++i) {
            const int element = lane + 32 * i;
            if (element >= p.head_dim) continue;
            const int offset = element_offset(token % kPageSize, element, row_chunks);
            sum[i] = sum[i] * shrink +
                     weight * static_cast<float>(*reinterpret_cast<const Element*>(v + offset));
        }
    }
#pragma unroll
    for (int i = 0; i < kMaxElements; ++i) sums[warp][lane + 32 * i] = sum[i];
    if (lane == 0) {
        maxima[warp] = maximum;
        totals[warp] = total;
    }
    __syncthreads();
    float highest = -INFINITY;
    for (int w = 0; w < kWarps; ++w) highest = fmaxf(highest, maxima[w]);
    float all = 0.0f;
    for (int w = 0; w < kWarps; ++w) all += totals[w] * expf(maxima[w] - highest);
    auto* out = static_cast<Element*>(p.out) + row * p.ldo + head * p.head_dim;
    for (int element = threadIdx.x; element < p.head_dim; element += kGenericAttentionThreads) {
        float value = 0.0f;
        for (int w = 0; w < kWarps; ++w) value += sums[w][element] * expf(maxima[w] - highest);
        out[element] = static_cast<Element>(value / all);
    }
}

}  // namespace

template <typename Element>
const void* generic_attention_kernel() {
    return reinterpret_cast<const void*>(generic_kernel<Element>);
}
template const void* generic_attention_kernel<__nv_bfloat16>();
template const void* generic_attention_kernel<__half>();

}  // namespace dak::cuda
