#pragma once

#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_gemm/epilogue.cuh"
#include "ops/cuda/split_gemm/folded_norm.cuh"
#include "ops/cuda/split_gemm/kernel_plan.h"

// What follows a product of few tokens. The end of a kernel is time in which nothing streams, so
// everything it takes is loaded at once, and before the sums are ready where registers allow.

namespace dak::cuda {

/// Sums and squares of 16 rows, a warp's, for each token of a tile.
using WarpMoments = float2[4][kMaxFoldedTokens];

/// Of norms before and after the product.
struct NormShared {
    NormCorrections corrections;
    WarpMoments moments;
};

/// The results of a row block for kCount / 2 tokens; `values` are as in epilogue.cuh. With kFolds
/// it knows of norms.
template <typename Element, int kRowTiles, int kCount, bool kFolds>
class DecodeEpilogue {
  public:
    __device__ __forceinline__ DecodeEpilogue(const EpilogueParams& params, int block,
                                              int token_base)
        : p_(params),
          block_(block),
          token_base_(token_base),
          place_(fragment_place(static_cast<int>(threadIdx.x))) {}

    /// After grid_wait(): residual and assumed scales come from earlier kernels.
    __device__ __forceinline__ void load() {
        const NormParams& after = p_.norm_after;
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = (block_ * kRowTiles + tile) * 64 + place_.row + half * 8;
                const bool inside = p_.gated || row < p_.out_features;
                bias_[tile][half] = load_float(p_.bias, row, inside, 0.0f);
                if (!kFolds) continue;
                weight_sums_[tile][half] =
                    load_float(p_.norm_before.weight_sums, row, inside, 0.0f);
                norm_weight_[tile][half] =
                    load_float(after.weight, row, inside && after.moments != nullptr, 1.0f);
            }
#pragma unroll
            for (int i = 0; i < kCount; ++i) {
                residual_[tile][i] = p_.residual != nullptr && inside(tile, i)
                                         ? load_residual(token(i), row(tile, i))
                                         : 0.0f;
            }
        }
        if constexpr (kFolds) {
            if (after.moments == nullptr) return;
#pragma unroll
            for (int i = 0; i < kCount; i += 4) {
                assumed_[i / 2] = assumed_scale(after, token(i), p_.tokens);
                assumed_[i / 2 + 1] = assumed_scale(after, token(i + 1), p_.tokens);
            }
        }
    }

    __device__ __forceinline__ void finish(float (&values)[kRowTiles][kCount], NormShared& norm) {
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
            for (int i = 0; i < kCount; ++i) {
                const int half = (i >> 1) & 1;
                if (kFolds && p_.norm_before.moments != nullptr) {
                    const NormCorrection c = norm.corrections[token(i)];
                    values[tile][i] =
                        c.factor * (values[tile][i] - c.offset * weight_sums_[tile][half]);
                }
                values[tile][i] = p_.scale * values[tile][i] + bias_[tile][half];
            }
        }
        activate(values[0], p_.activation);
        if (kRowTiles == 2 && p_.gated) {
#pragma unroll
            for (int i = 0; i < kCount; ++i) values[0][i] *= values[kRowTiles - 1][i];
            finish_tile(values[0], 0, norm.moments);
            return;
        }
        finish_tile(values[0], 0, norm.moments);
        if (kRowTiles == 2) {
            activate(values[kRowTiles - 1], p_.activation);
            finish_tile(values[kRowTiles - 1], kRowTiles - 1, norm.moments);
        }
    }

  private:
    static __device__ __forceinline__ float load_float(const float* from, int index, bool inside,
                                                       float otherwise) {
        return from != nullptr && inside ? ptx::load_now(from + index) : otherwise;
    }
    __device__ __forceinline__ float load_residual(int token, int row) const {
        const auto* from = static_cast<const Element*>(p_.residual) + token * p_.ld_residual + row;
        const uint16_t bits = ptx::load_now(reinterpret_cast<const uint16_t*>(from));
        return to_fp32(*reinterpret_cast<const Element*>(&bits));
    }

    /// First output column of weight row tile `tile` of the block.
    __device__ __forceinline__ int row_base(int tile) const {
        return (kRowTiles == 2 && p_.gated ? block_ : block_ * kRowTiles + tile) * 64;
    }
    __device__ __forceinline__ int row(int tile, int i) const {
        return row_base(tile) + place_.row + ((i >> 1) & 1) * 8;
    }
    __device__ __forceinline__ int token(int i) const {
        return token_base_ + (i >> 2) * 8 + place_.column + (i & 1);
    }
    __device__ __forceinline__ bool inside(int tile, int i) const {
        return row(tile, i) < p_.out_features && token(i) < p_.tokens;
    }

    /// Residual and store of values that are bias-added and activated already.
    __device__ __forceinline__ void finish_tile(float (&values)[kCount], int tile,
                                                WarpMoments& moments) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) values[i] += residual_[tile][i];
        if (p_.fp32_output) {
            store_values<float>(values, p_, row_base(tile), token_base_, place_);
            return;
        }
        store_values<Element>(values, p_, row_base(tile), token_base_, place_);
        if (kFolds && p_.norm_after.moments != nullptr && row_base(tile) < p_.out_features) {
            feed_norm(values, tile, moments);
        }
    }

    /// Stores what the next product reads of a tile of the residual stream: the norm with the
    /// assumed scale and no bias, and moments. All threads of the warpgroup take part.
    __device__ __forceinline__ void feed_norm(const float (&values)[kCount], int tile,
                                              WarpMoments& shared) {
        const NormParams& norm = p_.norm_after;
        auto* scaled = static_cast<Element*>(norm.scaled);
        float2 moments[kCount / 2];
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) moments[i] = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            if (row(tile, i) >= p_.out_features) continue;
            const int column = (i >> 2) * 2 + (i & 1);
            const float difference = to_fp32(rounded<Element>(values[i])) - assumed_[column].mean;
            moments[column].x += difference;
            moments[column].y += difference * difference;
            if (token(i) < p_.tokens) {
                scaled[token(i) * norm.ld + row(tile, i)] = rounded<Element>(
                    norm_weight_[tile][(i >> 1) & 1] * difference * assumed_[column].factor);
            }
        }
#pragma unroll
        for (int step = 4; step < 32; step *= 2) {
#pragma unroll
            for (float2& sums : moments) {
                sums.x += __shfl_xor_sync(~0u, sums.x, step);
                sums.y += __shfl_xor_sync(~0u, sums.y, step);
            }
        }
        const auto thread = static_cast<int>(threadIdx.x);
        if (thread % 32 < 4) {
#pragma unroll
            for (int i = 0; i < kCount / 2; ++i) {
                shared[thread / 32][i / 2 * 8 + place_.column + i % 2] = moments[i];
            }
        }
        ptx::barrier_sync(1, kConsumerThreads);
        if (thread < kCount * 2) {
            float2 sums = shared[0][thread];
#pragma unroll
            for (int warp = 1; warp < 4; ++warp) {
                sums.x += shared[warp][thread].x;
                sums.y += shared[warp][thread].y;
            }
            norm.moments[row_base(tile) / kNormTile * kMaxFoldedTokens + token_base_ + thread] =
                sums;
        }
        ptx::barrier_sync(1, kConsumerThreads);  // before anyone writes there again
    }

    const EpilogueParams& p_;
    const int block_, token_base_;
    const FragmentPlace place_;
    float bias_[kRowTiles][2], weight_sums_[kRowTiles][2], norm_weight_[kRowTiles][2];
    float residual_[kRowTiles][kCount];
    NormScale assumed_[kCount / 2] = {};  // of the thread's columns
};

}  // namespace dak::cuda
