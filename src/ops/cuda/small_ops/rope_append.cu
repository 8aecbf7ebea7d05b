#include "ops/cuda/ptx.cuh"
#include "ops/cuda/small_ops/kernels.h"
#include "ops/cuda/small_ops/vector.cuh"

// CTAs (t, 0..) share the heads of token t. A thread holds the two chunks of a head whose elements
// are rotated against each other, i and i + head_dim / 2; neighbouring threads hold one head, so a
// norm over it is a few shuffles. Reads q, k, v once, writes q in place and k, v to their pages.

namespace dak::cuda {
namespace {

/// Which block of a page a head of k or v is: [kv head]{K, V}.
__device__ __forceinline__ int kv_block(const RopeAppendParams& p, int head) {
    const int kv_head = head - p.num_heads;
    return kv_head < p.num_kv_heads ? 2 * kv_head : 2 * (kv_head - p.num_kv_heads) + 1;
}

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
    auto* row = static_cast<uint4*>(row_of(p.qkv, token, p.ld));
    int index = static_cast<int>(blockIdx.y * kRopeThreads + threadIdx.x);
    uint4 chunks[2];
    load(p, Work(p, index), row, chunks);  // on their way while sequence, page and angles are found
    const int sequence = p.sequence_of[token];
    const int position = p.positions[token];
    if (sequence < 0) return;
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
            uint8_t* block =
                work.is_q(p) ? nullptr : page + kv_block(p, work.head) * int64_t{p.kv.block_bytes};
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

/// The same for heads that are not a whole number of chunk pairs, element by element: a warp works
/// on a head, lane by lane on elements i and i + head_dim / 2.
template <typename Element>
class AnyHead {
  public:
    __device__ __forceinline__ AnyHead(const RopeAppendParams& p, int token, int head)
        : p_(p),
          token_(token),
          head_(head),
          is_q_(head < p.num_heads),
          is_v_(head >= p.num_heads + p.num_kv_heads),
          x_(static_cast<Element*>(row_of(p.qkv, token, p.ld)) + head * p.head_dim) {}

    __device__ __forceinline__ void run(int sequence) const {
        const int position = p_.positions[token_];
        const int half = p_.head_dim / 2;
        const float factor = p_.q_norm == nullptr || is_v_ ? 1.0f : norm_factor();
        for (int i = static_cast<int>(threadIdx.x % 32); i < half; i += 32) {
            float a = scaled(i, factor);
            float b = scaled(i + half, factor);
            if (p_.frequencies != nullptr && !is_v_) {
                const float frequency = p_.frequencies[sequence * p_.frequencies_stride + i];
                float sine, cosine;
                sincosf(static_cast<float>(position) * frequency, &sine, &cosine);
                const float turned = a * cosine - b * sine;
                b = b * cosine + a * sine;
                a = turned;
            }
            store(sequence, position, i, a);
            store(sequence, position, i + half, b);
        }
        // The rest of the last chunk of a page's row is zero.
        const int padding = p_.head_dim + static_cast<int>(threadIdx.x % 32);
        if (!is_q_ &&
            padding < (p_.head_dim + kChunkElements - 1) / kChunkElements * kChunkElements) {
            store(sequence, position, padding, 0.0f);
        }
    }

  private:
    __device__ __forceinline__ float norm_factor() const {
        float squares = 0.0f;
        for (int i = static_cast<int>(threadIdx.x % 32); i < p_.head_dim; i += 32) {
            squares += static_cast<float>(x_[i]) * static_cast<float>(x_[i]);
        }
        for (int step = 1; step < 32; step *= 2) squares += __shfl_xor_sync(~0u, squares, step);
        return rsqrtf(squares / static_cast<float>(p_.head_dim) + p_.norm_eps);
    }
    __device__ __forceinline__ float scaled(int i, float factor) const {
        const float value = static_cast<float>(x_[i]);
        if (p_.q_norm == nullptr || is_v_) return value;
        return value * (factor * (is_q_ ? p_.q_norm : p_.k_norm)[i]);
    }
    __device__ __forceinline__ void store(int sequence, int position, int i, float value) const {
        if (is_q_) {
            x_[i] = Element(value);
            return;
        }
        uint8_t* page = p_.kv.page(p_.pages[sequence * p_.pages_stride + position / 64]);
        uint8_t* block = page + kv_block(p_, head_) * int64_t{p_.kv.block_bytes};
        reinterpret_cast<Element*>(
            block + p_.kv.chunk_offset(position % 64, i / kChunkElements))[i % kChunkElements] =
            Element(value);
    }

    const RopeAppendParams& p_;
    const int token_, head_;
    const bool is_q_, is_v_;
    Element* x_;
};

template <typename Element>
__global__ void __launch_bounds__(kRopeThreads)
    rope_append_any(const __grid_constant__ RopeAppendParams p) {
    ptx::grid_wait();
    ptx::grid_launch_dependents();
    const int token = static_cast<int>(blockIdx.x);
    const int sequence = p.sequence_of[token];
    if (sequence < 0) return;
    constexpr int kWarps = kRopeThreads / 32;
    const int heads = p.num_heads + 2 * p.num_kv_heads;
    for (int head = p.first_head + static_cast<int>(blockIdx.y * kWarps + threadIdx.x / 32);
         head < heads; head += static_cast<int>(gridDim.y) * kWarps) {
        AnyHead<Element>(p, token, head).run(sequence);
    }
}

}  // namespace

template <typename Element>
const void* rope_append_kernel(bool chunk_pairs) {
    return chunk_pairs ? reinterpret_cast<const void*>(&rope_append_rows<Element>)
                       : reinterpret_cast<const void*>(&rope_append_any<Element>);
}

template const void* rope_append_kernel<__nv_bfloat16>(bool);
template const void* rope_append_kernel<__half>(bool);

}  // namespace dak::cuda
