#include "ops/cuda/ptx.cuh"
#include "ops/cuda/small_ops/kernels.h"
#include "ops/cuda/small_ops/vector.cuh"

// CTAs (t, 0..) share the heads of token t. A thread holds the two chunks of a head whose elements
// are rotated against each other, i and i + head_dim / 2; neighbouring threads hold one head, so a
// norm over it is a few shuffles. Reads q, k, v once, writes q in place and k, v to their pages.

namespace dak::cuda {
namespace {

struct Halves {
    float values[2][kChunkElements];
};

/// What a thread does in one round: a pair of chunks of a head of q, k or v.
struct Work {
    int head;
    int pair;  ///< chunk of the first half
    bool inside;

    __device__ __forceinline__ Work(const RopeAppendParams& p, int index)
        : head(p.first_head + (index >> p.lanes_log2)), pair(index & ((1 << p.lanes_log2) - 1)) {
        inside = head < p.num_heads + 2 * p.num_kv_heads && pair < p.head_dim / 16;
    }
    __device__ __forceinline__ bool is_q(const RopeAppendParams& p) const {
        return head < p.num_heads;
    }
    __device__ __forceinline__ bool is_v(const RopeAppendParams& p) const {
        return head >= p.num_heads + p.num_kv_heads;
    }
    __device__ __forceinline__ int chunk(const RopeAppendParams& p, int half) const {
        return pair + half * p.head_dim / 16;
    }
};

__device__ __forceinline__ void load(const RopeAppendParams& p, const Work& work, const uint4* row,
                                     uint4 (&chunks)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        chunks[half] = work.inside
                           ? row[work.head * p.head_dim / kChunkElements + work.chunk(p, half)]
                           : make_uint4(0, 0, 0, 0);
    }
}

/// RMS norm over a head; every thread of the warp takes part.
__device__ __forceinline__ void normalise(const RopeAppendParams& p, const Work& work, Halves& x) {
    float squares = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < kChunkElements; ++i) {
            squares += x.values[half][i] * x.values[half][i];
        }
    }
    for (int step = 1; step < 1 << p.lanes_log2; step *= 2) {
        squares += __shfl_xor_sync(~0u, squares, step);
    }
    if (!work.inside || work.is_v(p)) return;
    const float factor = rsqrtf(squares / static_cast<float>(p.head_dim) + p.norm_eps);
    const float* scale = work.is_q(p) ? p.q_norm : p.k_norm;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < kChunkElements; ++i) {
            x.values[half][i] *= factor * __ldg(scale + work.chunk(p, half) * kChunkElements + i);
        }
    }
}

__device__ __forceinline__ void rotate(const float2* turns, int pair, Halves& x) {
#pragma unroll
    for (int i = 0; i < kChunkElements; ++i) {
        const float2 turn = turns[pair * kChunkElements + i];
        const float a = x.values[0][i];
        const float b = x.values[1][i];
        x.values[0][i] = a * turn.x - b * turn.y;
        x.values[1][i] = b * turn.x + a * turn.y;
    }
}

template <typename Element>
__global__ void __launch_bounds__(kRopeThreads)
    rope_append_rows(const __grid_constant__ RopeAppendParams p) {
    __shared__ float2 turns[kMaxHeadDim / 2];  // cosine and sine
    ptx::grid_wait();
    ptx::grid_launch_dependents();  // attention has little to do before it may read
    const int token = static_cast<int>(blockIdx.x);
    const int sequence = p.sequence_of[token];
    if (sequence < 0) return;
    const int position = p.positions[token];

    auto* row = static_cast<uint4*>(row_of(p.qkv, token, p.ld));
    int index = static_cast<int>(blockIdx.y * kRopeThreads + threadIdx.x);
    uint4 chunks[2];
    load(p, Work(p, index), row, chunks);
    uint8_t* page = p.kv.page(p.pages[sequence * p.pages_stride + position / 64]);
    if (p.frequencies != nullptr) {
        if (threadIdx.x < p.head_dim / 2) {
            const float frequency = p.frequencies[sequence * p.frequencies_stride + threadIdx.x];
            float2 turn;
            sincosf(static_cast<float>(position) * frequency, &turn.y, &turn.x);
            turns[threadIdx.x] = turn;
        }
        __syncthreads();
    }

    const int heads = p.num_heads + 2 * p.num_kv_heads - p.first_head;
    const int rounds_end = heads << p.lanes_log2;
    const int stride = static_cast<int>(gridDim.y) * kRopeThreads;
    // Whole warps go round together: normalise() shuffles.
    for (; index - static_cast<int>(threadIdx.x % 32) < rounds_end; index += stride) {
        const Work work(p, index);
        if (p.q_norm != nullptr || (p.frequencies != nullptr && !work.is_v(p))) {
            Halves x;
            widen<Element>(chunks[0], x.values[0]);
            widen<Element>(chunks[1], x.values[1]);
            if (p.q_norm != nullptr) normalise(p, work, x);
            if (p.frequencies != nullptr && work.inside && !work.is_v(p)) {
                rotate(turns, work.pair, x);
            }
            chunks[0] = rounded<Element>(x.values[0]);
            chunks[1] = rounded<Element>(x.values[1]);
        }
        if (work.inside) {
            uint8_t* block = nullptr;
            if (!work.is_q(p)) {
                const int kv_head = work.head - p.num_heads;
                block = page + (work.is_v(p) ? 2 * (kv_head - p.num_kv_heads) + 1 : 2 * kv_head) *
                                   int64_t{p.kv.block_bytes};
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int chunk = work.chunk(p, half);
                if (block == nullptr) {
                    row[work.head * p.head_dim / kChunkElements + chunk] = chunks[half];
                } else {
                    *reinterpret_cast<uint4*>(block + p.kv.chunk_offset(position % 64, chunk)) =
                        chunks[half];
                }
            }
        }
        load(p, Work(p, index + stride), row, chunks);
    }
}

}  // namespace

template <typename Element>
const void* rope_append_kernel() {
    return reinterpret_cast<const void*>(&rope_append_rows<Element>);
}

template const void* rope_append_kernel<__nv_bfloat16>();
template const void* rope_append_kernel<__half>();

}  // namespace dak::cuda
