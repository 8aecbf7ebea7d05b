#include "ops/cuda/ptx.cuh"
#include "ops/cuda/small_ops/kernels.h"
#include "ops/cuda/small_ops/vector.cuh"

// A CTA works on every gridDim.x-th row. A row stays in registers, so it is read once, and the next
// one is on its way meanwhile. Scale and bias, which no kernel writes, stay there too, fetched
// before the preceding kernel has finished.

namespace dak::cuda {
namespace {

constexpr int kMaxWarps = kNormThreads / 32;

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
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
class RowNorm {
  public:
    __device__ __forceinline__ RowNorm(const RowParams& p, float (&partials)[2][kMaxWarps])
        : p_(p), partials_(partials) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
            load_vector(p.weight, first(c), p.width, 1.0f, scale_[c]);
            load_vector(p.bias, first(c), p.width, 0.0f, shift_[c]);
        }
    }

    __device__ __forceinline__ void run() {
        const int stride = static_cast<int>(gridDim.x);
        int row = static_cast<int>(blockIdx.x);
        uint4 chunks[kChunks];
        bool wanted = load(row, chunks);
        for (; row < p_.rows; row += stride) {
            float x[kChunks][kChunkElements];
#pragma unroll
            for (int c = 0; c < kChunks; ++c) widen<Element>(chunks[c], x[c]);
            const bool write = wanted;
            wanted = load(row + stride, chunks);
            if (write) normalise(row, x);
        }
    }

  private:
    static __device__ __forceinline__ int first(int c) {
        return static_cast<int>(threadIdx.x + c * blockDim.x) * kChunkElements;
    }

    /// Starts loading what output row `row` is made of; false when it is to be left alone.
    __device__ __forceinline__ bool load(int row, uint4 (&chunks)[kChunks]) const {
        if (row >= p_.rows) return false;
        const int from = p_.row_index == nullptr ? row : p_.row_index[row];
        if (from < 0) return false;
        const uint4* in = row_of(p_.x, from, p_.ldx);
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
            const bool inside = first(c) < p_.width;
            chunks[c] = inside ? in[first(c) / kChunkElements] : make_uint4(0, 0, 0, 0);
        }
        return true;
    }

    /// Sum over the CTA, in every thread. Alternates between two sets of partial sums: who writes
    /// one again has met all others at the barrier of the other.
    __device__ __forceinline__ float block_sum(float value) {
        const unsigned lane = threadIdx.x % 32;
        float(&partials)[kMaxWarps] = partials_[turn_];
        turn_ ^= 1;
        value = warp_sum(value);
        if (lane == 0) partials[threadIdx.x / 32] = value;
        __syncthreads();
        return warp_sum(lane < blockDim.x / 32 ? partials[lane] : 0.0f);
    }

    __device__ __forceinline__ void normalise(int row, float (&x)[kChunks][kChunkElements]) {
        const float per_element = 1.0f / static_cast<float>(p_.width);
        float mean = 0.0f;
        if (p_.centred) {
            float sum = 0.0f;
#pragma unroll
            for (int c = 0; c < kChunks; ++c) {
#pragma unroll
                for (int i = 0; i < kChunkElements; ++i) {
                    sum += first(c) + i < p_.width ? x[c][i] : 0.0f;
                }
            }
            mean = block_sum(sum) * per_element;
#pragma unroll
            for (int c = 0; c < kChunks; ++c) {
#pragma unroll
                for (int i = 0; i < kChunkElements; ++i) x[c][i] -= mean;
            }
        }
        float squares = 0.0f;
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
#pragma unroll
            for (int i = 0; i < kChunkElements; ++i) {
                squares += first(c) + i < p_.width ? x[c][i] * x[c][i] : 0.0f;
            }
        }
        const float factor = rsqrtf(block_sum(squares) * per_element + p_.eps);
        if (p_.scales != nullptr && threadIdx.x == 0) p_.scales[row] = {mean, factor};
        void* out = row_of(p_.out, row, p_.ldo);
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
            if (first(c) >= p_.width) continue;
#pragma unroll
            for (int i = 0; i < kChunkElements; ++i) {
                x[c][i] = x[c][i] * factor * scale_[c][i] + shift_[c][i];
            }
            store_chunk(out, first(c) / kChunkElements, rounded<Element>(x[c]),
                        p_.width - first(c));
        }
    }

    const RowParams& p_;
    float (&partials_)[2][kMaxWarps];
    int turn_ = 0;
    float scale_[kChunks][kChunkElements], shift_[kChunks][kChunkElements];
};

template <typename Element, int kChunks>
__global__ void __launch_bounds__(kNormThreads) norm_rows(const __grid_constant__ RowParams p) {
    __shared__ float partials[2][kMaxWarps];
    ptx::grid_launch_dependents();
    RowNorm<Element, kChunks> norm(p, partials);
    ptx::grid_wait();
    norm.run();
}

}  // namespace

template <typename Element>
const void* norm_kernel(int chunks) {
    switch (chunks) {
        case 1:
            return reinterpret_cast<const void*>(&norm_rows<Element, 1>);
        case 2:
            return reinterpret_cast<const void*>(&norm_rows<Element, 2>);
        default:
            return nullptr;
    }
}

template const void* norm_kernel<__nv_bfloat16>(int);
template const void* norm_kernel<__half>(int);

}  // namespace dak::cuda
