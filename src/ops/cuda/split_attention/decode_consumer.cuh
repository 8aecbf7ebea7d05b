#pragma once

#include "ops/cuda/mma.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_attention/decode_work.cuh"
#include "ops/cuda/split_attention/kv_block.cuh"

namespace dak::cuda {

/// One of the warps that compute: 16 tokens of every page.
template <typename Element, int kHeadDim, int kRows>
class AttentionConsumer {
  public:
    __device__ __forceinline__ AttentionConsumer(const DecodeAttentionParams& p,
                                                 const DecodeAttentionShared& shared,
                                                 const WorkHeader& work, int warp, int lane)
        : p_(p),
          shared_(shared),
          slots_(work.remote() ? p.remote_slots : p.slots),
          work_(work),
          warp_(warp),
          lane_(lane),
          k_offsets_(16 * warp + lane % 16, lane / 16),
          v_offsets_(16 * warp + lane % 8 + lane / 16 * 8, lane / 8 % 2) {}

    __device__ __forceinline__ void run() {
        TakenRanges ranges(shared_);
        do {
            add_range();
        } while (ranges.next(work_));
    }

  private:
    __device__ __forceinline__ void add_range() {
        for (int i = 0; i < work_.count; ++i) {
            ptx::mbarrier_wait(shared_.full + 8 * ring_.slot, ring_.parity);
            const uint32_t mark = shared_.marks[ring_.slot];
            if (mark & kFirstOfSegment) begin_segment();
            RingSlot v = ring_;
            v.advance(slots_);
            // This warp's tokens of the page, counted from its first one.
            const int begin = larger(0, static_cast<int>(mark & 0xff) - 16 * warp_);
            const int end = smaller(16, static_cast<int>(mark >> 8 & 0xff) - 16 * warp_);
            if (begin < end) {
                add_page(begin, end, v);
            } else {
                ptx::mbarrier_wait(shared_.full + 8 * v.slot, v.parity);
                release(shared_.empty + 8 * ring_.slot);
                release(shared_.empty + 8 * v.slot);
            }
            ring_ = v;
            ring_.advance(slots_);
            if (mark & kLastOfSegment) end_segment();
        }
    }

    static constexpr int kColumnTiles = (kRows + 7) / 8;  // of 8 query heads
    static constexpr int kSteps = kHeadDim / 16;
    // Fragments of K or V loaded ahead of their products.
    static constexpr int kAhead = kHeadDim == 256 || kRows > 8 ? 4 : kSteps < 8 ? kSteps : 8;
    // Queries stay in registers where these suffice.
    static constexpr bool kHoldQueries = kHeadDim * kColumnTiles <= 256;
    static constexpr uint32_t kBlock = kv_block_bytes(kHeadDim);
    static constexpr float kMinusInfinity = -INFINITY;
    // The largest score is allowed to lag by this power of two before sums are rescaled.
    static constexpr float kLag = 8;

    __device__ __forceinline__ void release(uint32_t barrier) const {
        __syncwarp();
        if (lane_ == 0) ptx::mbarrier_arrive(barrier);
    }

    __device__ __forceinline__ uint32_t query_address() const {
        return shared_.queries + queries_.slot * query_slot_bytes(kHeadDim, p_.head_group);
    }

    __device__ __forceinline__ void load_query(int step, int tile, uint32_t (&fragment)[2]) const {
        // Columns past the last head repeat it.
        const int row = smaller(tile * 8 + lane_ % 8, p_.head_group - 1);
        ptx::load_matrix(
            query_address() + row * query_row_bytes(kHeadDim) + (step * 2 + lane_ / 8 % 2) * 16,
            fragment);
    }

    __device__ __forceinline__ void begin_segment() {
#pragma unroll
        for (int t = 0; t < kColumnTiles; ++t) {
            max_[t][0] = max_[t][1] = kMinusInfinity;
            total_[t][0] = total_[t][1] = 0;
#pragma unroll
            for (int m = 0; m < kSteps; ++m) {
#pragma unroll
                for (int i = 0; i < 4; ++i) sums_[m][t][i] = 0;
            }
        }
        ptx::mbarrier_wait(shared_.query_full + 8 * queries_.slot, queries_.parity);
        if constexpr (kHoldQueries) {
#pragma unroll
            for (int k = 0; k < kSteps; ++k) {
#pragma unroll
                for (int t = 0; t < kColumnTiles; ++t) load_query(k, t, held_[k][t]);
            }
        }
    }

    __device__ __forceinline__ void add_page(int begin, int end, RingSlot v) {
        float scores[kColumnTiles][4];
        multiply_keys(scores);
        release(shared_.empty + 8 * ring_.slot);
        const bool whole = begin == 0 && end == 16;
        if (!whole) {
            const int low = lane_ / 4;
#pragma unroll
            for (auto& s : scores) {
                if (low < begin || low >= end) s[0] = s[1] = kMinusInfinity;
                if (low + 8 < begin || low + 8 >= end) s[2] = s[3] = kMinusInfinity;
            }
        }
        uint32_t weights[kColumnTiles][2];
        softmax(scores, weights);
        ptx::mbarrier_wait(shared_.full + 8 * v.slot, v.parity);
        multiply_values(shared_.ring + v.slot * kBlock, whole, begin, end, weights);
        release(shared_.empty + 8 * v.slot);
    }

    /// Scores of 16 tokens as arguments of 2^x. Even and odd steps have their own sums, which
    /// shortens the chain of dependent products.
    __device__ __forceinline__ void multiply_keys(float (&scores)[kColumnTiles][4]) {
        const uint32_t keys = shared_.ring + ring_.slot * kBlock;
        float odd[kColumnTiles][4];
#pragma unroll
        for (int t = 0; t < kColumnTiles; ++t) {
#pragma unroll
            for (int i = 0; i < 4; ++i) scores[t][i] = odd[t][i] = 0;
        }
#pragma unroll
        for (int k0 = 0; k0 < kSteps; k0 += kAhead) {
            uint32_t a[kAhead][4];
#pragma unroll
            for (int k = k0; k < k0 + kAhead && k < kSteps; ++k) {
                ptx::load_matrix(keys + k_offsets_(k), a[k - k0]);
            }
#pragma unroll
            for (int k = k0; k < k0 + kAhead && k < kSteps; ++k) {
#pragma unroll
                for (int t = 0; t < kColumnTiles; ++t) {
                    float(&to)[4] = k % 2 == 0 ? scores[t] : odd[t];
                    if constexpr (kHoldQueries) {
                        ptx::mma<Element>(to, a[k - k0], held_[k][t]);
                    } else {
                        uint32_t query[2];
                        load_query(k, t, query);
                        ptx::mma<Element>(to, a[k - k0], query);
                    }
                }
            }
        }
#pragma unroll
        for (int t = 0; t < kColumnTiles; ++t) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float& s = scores[t][i];
                s = (s + odd[t][i]) * p_.score_scale;
                if (p_.cap_scale != 0) s = ptx::tanh(s) * p_.cap_scale;
            }
        }
    }

    /// Weights of the scores, as the second operand of the product with V.
    __device__ __forceinline__ void softmax(const float (&scores)[kColumnTiles][4],
                                            uint32_t (&weights)[kColumnTiles][2]) {
        float largest[kColumnTiles][2];
        bool grown = false;
#pragma unroll
        for (int t = 0; t < kColumnTiles; ++t) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float m = fmaxf(scores[t][i], scores[t][i + 2]);
#pragma unroll
                for (int offset = 4; offset < 32; offset *= 2) {
                    m = fmaxf(m, __shfl_xor_sync(~0u, m, offset));
                }
                largest[t][i] = m;
                grown |= m > max_[t][i] + kLag;
            }
        }
        if (__any_sync(~0u, grown)) {
#pragma unroll
            for (int t = 0; t < kColumnTiles; ++t) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const float m = fmaxf(max_[t][i], largest[t][i]);
                    const float factor = ptx::exp2(max_[t][i] - m);
                    max_[t][i] = m;
                    total_[t][i] *= factor;
#pragma unroll
                    for (int k = 0; k < kSteps; ++k) {
                        sums_[k][t][i] *= factor;
                        sums_[k][t][i + 2] *= factor;
                    }
                }
            }
        }
#pragma unroll
        for (int t = 0; t < kColumnTiles; ++t) {
            const float w0 = ptx::exp2(scores[t][0] - max_[t][0]);
            const float w1 = ptx::exp2(scores[t][1] - max_[t][1]);
            const float w2 = ptx::exp2(scores[t][2] - max_[t][0]);
            const float w3 = ptx::exp2(scores[t][3] - max_[t][1]);
            total_[t][0] += w0 + w2;
            total_[t][1] += w1 + w3;
            weights[t][0] = ptx::transpose_matrix(ptx::pack<Element>(w0, w1));
            weights[t][1] = ptx::transpose_matrix(ptx::pack<Element>(w2, w3));
        }
    }

    __device__ __forceinline__ void multiply_values(uint32_t values, bool whole, int begin, int end,
                                                    const uint32_t (&weights)[kColumnTiles][2]) {
        // What lies in the slot outside the page's tokens may be NaN: zero times it must be zero.
        uint32_t low_mask = ~0u, high_mask = ~0u;
        if (!whole) {
            const int token = lane_ % 4 * 2;
            const auto half = [&](int t) { return t >= begin && t < end ? 0xffffu : 0u; };
            low_mask = half(token) | half(token + 1) << 16;
            high_mask = half(token + 8) | half(token + 9) << 16;
        }
#pragma unroll
        for (int k0 = 0; k0 < kSteps; k0 += kAhead) {
            uint32_t a[kAhead][4];
#pragma unroll
            for (int k = k0; k < k0 + kAhead && k < kSteps; ++k) {
                ptx::load_matrix_transposed(values + v_offsets_(k), a[k - k0]);
            }
#pragma unroll
            for (int k = k0; k < k0 + kAhead && k < kSteps; ++k) {
                uint32_t(&fragment)[4] = a[k - k0];
                if (!whole) {
                    fragment[0] &= low_mask;
                    fragment[1] &= low_mask;
                    fragment[2] &= high_mask;
                    fragment[3] &= high_mask;
                }
#pragma unroll
                for (int t = 0; t < kColumnTiles; ++t) {
                    ptx::mma<Element>(sums_[k][t], fragment, weights[t]);
                }
            }
        }
    }

    /// Leaves this warp's sums in its part of a result slot.
    __device__ __forceinline__ void end_segment() {
        release(shared_.query_empty + 8 * queries_.slot);
        queries_.advance(p_.query_slots);
        ptx::mbarrier_wait(shared_.result_empty + 8 * results_.slot, results_.parity ^ 1);
        constexpr int kRowFloats = part_row_floats(kHeadDim);
        const uint32_t to = shared_.results +
                            results_.slot * result_slot_bytes(kHeadDim, p_.head_group) +
                            warp_ * p_.head_group * kRowFloats * 4;
#pragma unroll
        for (int t = 0; t < kColumnTiles; ++t) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float total = total_[t][i];
#pragma unroll
                for (int offset = 4; offset < 32; offset *= 2) {
                    total += __shfl_xor_sync(~0u, total, offset);
                }
                const int row = t * 8 + lane_ % 4 * 2 + i;
                if (row >= p_.head_group) continue;
                const uint32_t at = to + row * kRowFloats * 4;
                if (lane_ < 4) {
                    store(at + kHeadDim * 4, max_[t][i]);
                    store(at + kHeadDim * 4 + 4, total);
                }
#pragma unroll
                for (int k = 0; k < kSteps; ++k) {
                    store(at + (k * 16 + lane_ / 4) * 4, sums_[k][t][i]);
                    store(at + (k * 16 + 8 + lane_ / 4) * 4, sums_[k][t][i + 2]);
                }
            }
        }
        release(shared_.result_full + 8 * results_.slot);
        results_.advance(p_.result_slots);
    }

    static __device__ __forceinline__ void store(uint32_t address, float value) {
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
    }

    const DecodeAttentionParams& p_;
    const DecodeAttentionShared& shared_;
    const uint32_t slots_;
    WorkHeader work_;
    const int warp_, lane_;
    const LaneOffsets<kHeadDim> k_offsets_, v_offsets_;
    RingSlot ring_, queries_, results_;
    uint32_t held_[kHoldQueries ? kSteps : 1][kColumnTiles][2];
    // O^T, column tile by column tile: rows 16k + lane/4 (+8), columns 2(lane%4) + {0, 1}.
    float sums_[kSteps][kColumnTiles][4];
    float max_[kColumnTiles][2];
    float total_[kColumnTiles][2];  // of this lane's tokens
};

}  // namespace dak::cuda
