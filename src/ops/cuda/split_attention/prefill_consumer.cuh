#pragma once

#include "ops/cuda/mma.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_attention/kv_block.cuh"
#include "ops/cuda/split_attention/prefill_tile.cuh"
#include "ops/cuda/split_attention/wgmma.cuh"

namespace dak::cuda {

/// A warpgroup that computes 64 rows of every tile.
template <typename Element, int kHeadDim>
class PrefillConsumer {
  public:
    /// `group` is 0 or 1, `thread` 0..127.
    __device__ __forceinline__ PrefillConsumer(const PrefillAttentionParams& p,
                                               const PrefillShared& shared, int group, int thread)
        : p_(p), shared_(shared), group_(group), warp_(thread / 32), lane_(thread % 32) {}

    __device__ __forceinline__ void run() {
        if (group_ == 1) ptx::barrier_arrive(1, 256);  // the first turn is warpgroup 0's
        PrefillTile tile = next_tile();
        if (tile.sequence >= 0) {
            take_turn();
            start_tile();
            pass_turn();
            for (;;) {
                compute(tile);
                const PrefillTile next = next_tile();
                if (next.sequence < 0) break;
                start_tile();  // computed along with this tile's last values
                pass_turn();
                finish_values();
                store(tile);
                tile = next;
            }
            pass_turn();
            finish_values();
            store(tile);
        }
        if (group_ == 0) ptx::barrier_sync(1, 256);  // the turn that nobody takes
    }

  private:
    static constexpr int kTokens = prefill_block_tokens(kHeadDim);
    static constexpr uint32_t kBlock = kTokens * kHeadDim * 2;
    static constexpr uint32_t kQueryBytes = kPrefillTileRows * kHeadDim * 2;
    static constexpr int kFullPanels = Panels<kHeadDim>::kFull;
    static constexpr int kFullColumns = kFullPanels * 64;
    static constexpr int kRestColumns = Panels<kHeadDim>::kRestColumns;
    static constexpr int kScores = kTokens / 2;
    // The largest score of a row may lag by this power of two before its sums are rescaled, which
    // is then seldom.
    static constexpr float kLag = 8;
    static constexpr int kSteps = kTokens / 16;

    /// Descriptor of an operand of rows of kRowBytes bytes, swizzled by that width. `panel_stride`
    /// is from 64 columns to the next where an operand's columns are not its K.
    template <uint32_t kRowBytes>
    static __device__ __forceinline__ uint64_t operand(uint32_t address,
                                                       uint32_t panel_stride = 16) {
        constexpr uint64_t kSwizzle = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3;
        constexpr uint64_t kGroupStride = 8 * kRowBytes >> 4;
        return kSwizzle << 62 | kGroupStride << 32 | uint64_t{panel_stride >> 4} << 16 |
               (address >> 4);
    }

    __device__ __forceinline__ void place(const PrefillTile& tile) {
        const int row = group_ * 64 + warp_ * 16;
        first_position_ = tile.position(p_, row);
        last_position_ = tile.position(p_, row + 15);
        positions_[0] = tile.position(p_, row + lane_ / 4);
        positions_[1] = tile.position(p_, row + lane_ / 4 + 8);
    }

    __device__ __forceinline__ PrefillTile next_tile() {
        return shared_.next_tile(tile_parity_, lane_);
    }

    /// Issues the first scores of a tile.
    __device__ __forceinline__ void start_tile() {
        ptx::mbarrier_wait(shared_.query_full + 8 * queries_.stage, queries_.parity);
        issue_scores();
    }

    /// From the first scores, which have been issued, to the last values, which it issues, and
    /// keeps the turn.
    __device__ __forceinline__ void compute(const PrefillTile& tile) {
        place(tile);
        max_[0] = max_[1] = -INFINITY;
        total_[0] = total_[1] = 0;
        const int first_block = tile.begin(p_) / kTokens;
        int block = (tile.end(p_) - 1) / kTokens;
        uint32_t weights[kSteps][4];
        float factors[2];

        ptx::wgmma_wait<0>();
        ptx::pin(scores_);
        release_keys();
        softmax(block, factors);
        pack_weights(weights);

        bool accumulate = false;
        for (--block; block >= first_block; --block) {
            take_turn();
            issue_scores();
            issue_values(weights, accumulate);
            pass_turn();
            accumulate = true;
            ptx::wgmma_wait<1>();
            ptx::pin(scores_);
            release_keys();
            const bool grown = softmax(block, factors);
            finish_values();
            if (grown) rescale(factors);
            pack_weights(weights);
        }
        release(shared_.query_empty + 8 * queries_.stage);
        queries_.advance();
        take_turn();
        issue_values(weights, accumulate);
    }

    // A warpgroup's turn to issue products.
    __device__ __forceinline__ void take_turn() const { ptx::barrier_sync(1 + group_, 256); }
    __device__ __forceinline__ void pass_turn() const { ptx::barrier_arrive(2 - group_, 256); }

    __device__ __forceinline__ void release(uint32_t barrier) const {
        __syncwarp();
        if (lane_ == 0) ptx::mbarrier_arrive(barrier);
    }
    __device__ __forceinline__ void release_keys() {
        release(shared_.k_empty + 8 * keys_.stage);
        keys_.advance();
    }

    __device__ __forceinline__ void issue_scores() {
        ptx::mbarrier_wait(shared_.k_full + 8 * keys_.stage, keys_.parity);
        const uint32_t keys = shared_.keys + keys_.stage * kBlock;
        const uint32_t queries = shared_.queries + queries_.stage * kQueryBytes;
        ptx::pin(scores_);
        ptx::wgmma_fence();
#pragma unroll
        for (int panel = 0; panel < kFullPanels; ++panel) {
            const uint64_t a =
                operand<128>(queries + panel * (kPrefillTileRows * 128) + group_ * (64 * 128));
            const uint64_t b = operand<128>(keys + panel * (kTokens * 128));
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                ptx::ScoreWgmma<Element, kTokens>::multiply(scores_, a + k * 2, b + k * 2,
                                                            panel + k > 0);
            }
        }
        if constexpr (kRestColumns > 0) {
            constexpr uint32_t kRow = Panels<kHeadDim>::kRestRowBytes;
            const uint64_t a = operand<kRow>(queries + kFullPanels * (kPrefillTileRows * 128) +
                                             group_ * (64 * kRow));
            const uint64_t b = operand<kRow>(keys + kFullPanels * (kTokens * 128));
#pragma unroll
            for (int k = 0; k < kRestColumns / 16; ++k) {
                ptx::ScoreWgmma<Element, kTokens>::multiply(scores_, a + k * 2, b + k * 2, true);
            }
        }
        ptx::wgmma_commit();
    }

    __device__ __forceinline__ void issue_values(const uint32_t (&weights)[kSteps][4],
                                                 bool accumulate) {
        ptx::mbarrier_wait(shared_.v_full + 8 * values_.stage, values_.parity);
        const uint32_t values = shared_.values + values_.stage * kBlock;
        ptx::pin(sums_);
        ptx::pin(rest_sums_);
        ptx::wgmma_fence();
        const uint64_t b = operand<128>(values, kTokens * 128);
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
            ptx::ValueWgmma<Element, kFullColumns>::multiply(
                sums_, weights[k], b + (k * 16 * 128 >> 4), accumulate || k > 0);
        }
        if constexpr (kRestColumns > 0) {
            constexpr uint32_t kRow = Panels<kHeadDim>::kRestRowBytes;
            const uint64_t rest = operand<kRow>(values + kFullPanels * (kTokens * 128));
#pragma unroll
            for (int k = 0; k < kSteps; ++k) {
                ptx::ValueWgmma<Element, kRestColumns>::multiply(
                    rest_sums_, weights[k], rest + (k * 16 * kRow >> 4), accumulate || k > 0);
            }
        }
        ptx::wgmma_commit();
    }

    __device__ __forceinline__ void finish_values() {
        ptx::wgmma_wait<0>();
        ptx::pin(sums_);
        ptx::pin(rest_sums_);
        release(shared_.v_empty + 8 * values_.stage);
        values_.advance();
    }

    /// Turns scores into weights and adds to each row's total. True when the row's largest score
    /// has grown, so that sums so far are to be multiplied by `factors`; the same for all lanes.
    __device__ __forceinline__ bool softmax(int block, float (&factors)[2]) {
        float scale = p_.score_scale;
        if (p_.cap_scale != 0) {
#pragma unroll
            for (float& s : scores_) s = ptx::tanh(s * p_.score_scale);
            scale = p_.cap_scale;
        }
        const int first = block * kTokens, last = first + kTokens - 1;
        const bool too_late = last > first_position_;
        const bool too_early = p_.sliding_window > 0 && first <= last_position_ - p_.sliding_window;
        if (too_late || too_early) mask(first);
        float largest[2];
        bool grown = false;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float m = -INFINITY;
#pragma unroll
            for (int g = 0; g < kTokens / 8; ++g) {
                m = fmaxf(m, fmaxf(scores_[4 * g + 2 * half], scores_[4 * g + 2 * half + 1]));
            }
            largest[half] = m;
            grown |= m * scale > max_[half] * scale + kLag;
        }
        grown = __any_sync(~0u, grown);
        if (grown) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float m = fmaxf(max_[half], largest[half]);
                m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
                m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
                factors[half] = ptx::exp2(max_[half] * scale - offset_of(m, scale));
                max_[half] = m;
                total_[half] *= factors[half];
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float offset = offset_of(max_[half], scale);
#pragma unroll
            for (int g = 0; g < kTokens / 8; ++g) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float& s = scores_[4 * g + 2 * half + i];
                    s = ptx::exp2(fmaf(s, scale, -offset));
                    total_[half] += s;
                }
            }
        }
        return grown;
    }

    /// A row that has seen nothing yet has weights of zero.
    static __device__ __forceinline__ float offset_of(float largest, float scale) {
        return largest == -INFINITY ? 0.0f : largest * scale;
    }

    /// Tokens of the block that starts at `first`, for each of this thread's rows.
    __device__ __forceinline__ void mask(int first) {
        const int own = first + lane_ % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int last = positions_[half] - own;
            const int before = p_.sliding_window > 0 ? last - p_.sliding_window : -1;
#pragma unroll
            for (int g = 0; g < kTokens / 8; ++g) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int column = g * 8 + i;
                    if (column > last || column <= before) {
                        scores_[4 * g + 2 * half + i] = -INFINITY;
                    }
                }
            }
        }
    }

    __device__ __forceinline__ void rescale(const float (&factors)[2]) {
#pragma unroll
        for (int i = 0; i < kFullColumns / 2; ++i) sums_[i] *= factors[i / 2 % 2];
        if constexpr (kRestColumns > 0) {
#pragma unroll
            for (int i = 0; i < kRestColumns / 2; ++i) rest_sums_[i] *= factors[i / 2 % 2];
        }
    }

    __device__ __forceinline__ void pack_weights(uint32_t (&weights)[kSteps][4]) const {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                weights[k][i] =
                    ptx::pack<Element>(scores_[8 * k + 2 * i], scores_[8 * k + 2 * i + 1]);
            }
        }
    }

    // ---- results ----

    __device__ __forceinline__ void store(const PrefillTile& tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float total = total_[half];
            total += __shfl_xor_sync(~0u, total, 1);
            total += __shfl_xor_sync(~0u, total, 2);
            const float factor = 1.0f / total;
            const int row = group_ * 64 + warp_ * 16 + lane_ / 4 + half * 8;
            const int packed = tile.first_row + row;
            const int token = packed / p_.head_group;
            Element* to =
                static_cast<Element*>(p_.out) + (tile.query_row + token) * p_.ldo +
                (tile.kv_head * p_.head_group + packed - token * p_.head_group) * int64_t{kHeadDim};
            const bool exists = packed < tile.rows;
#pragma unroll
            for (int g = 0; g < kFullColumns / 8; g += 4) {
                store_groups(sums_, g, half, factor, to + g * 8, exists);
            }
            if constexpr (kRestColumns == 32) {
                store_groups(rest_sums_, 0, half, factor, to + kFullColumns, exists);
            } else if constexpr (kRestColumns == 16) {
                if (exists) {
#pragma unroll
                    for (int g = 0; g < 2; ++g) {
                        const float* s = &rest_sums_[4 * g + 2 * half];
                        *reinterpret_cast<uint32_t*>(to + kFullColumns + g * 8 + lane_ % 4 * 2) =
                            ptx::pack<Element>(s[0] * factor, s[1] * factor);
                    }
                }
            }
        }
    }

    /// Four groups of 8 columns: transposed among the four lanes of a row, so that each stores one
    /// group, 16 bytes.
    template <int kCount>
    __device__ __forceinline__ void store_groups(const float (&sums)[kCount], int g, int half,
                                                 float factor, Element* to, bool exists) const {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float* s = &sums[4 * (g + i) + 2 * half];
            words[i] = ptx::pack<Element>(s[0] * factor, s[1] * factor);
        }
#pragma unroll
        for (int bit = 1; bit <= 2; bit *= 2) {
            const bool upper = (lane_ & bit) != 0;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (i & bit) continue;
                const uint32_t sent = upper ? words[i] : words[i | bit];
                const uint32_t received = __shfl_xor_sync(~0u, sent, bit);
                if (upper) {
                    words[i] = received;
                } else {
                    words[i | bit] = received;
                }
            }
        }
        if (exists) {
            *reinterpret_cast<uint4*>(to + lane_ % 4 * 8) =
                make_uint4(words[0], words[1], words[2], words[3]);
        }
    }

    const PrefillAttentionParams& p_;
    const PrefillShared& shared_;
    const int group_, warp_, lane_;
    uint32_t tile_parity_ = 0;
    StagePosition<prefill_query_stages(kHeadDim)> queries_;
    StagePosition<kKvStages> keys_, values_;
    int first_position_ = 0, last_position_ = 0;  // of the warp's rows
    int positions_[2] = {0, 0};                   // of this thread's two rows
    float max_[2], total_[2];
    float scores_[kScores];
    float sums_[kFullColumns / 2];
    float rest_sums_[kRestColumns > 0 ? kRestColumns / 2 : 1];
};

}  // namespace dak::cuda
