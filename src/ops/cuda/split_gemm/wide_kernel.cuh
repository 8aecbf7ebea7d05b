#pragma once

#include "ops/cuda/ptx.cuh"
#include "ops/cuda/ring.cuh"
#include "ops/cuda/split_gemm/epilogue.cuh"
#include "ops/cuda/split_gemm/params.h"
#include "ops/cuda/split_gemm/tile_walk.cuh"
#include "ops/cuda/wgmma.cuh"

// y[n, m] = sum_k x[n, k] w[m, k] for many tokens, with the tokens on the 64-row side of wgmma: the
// weight rows of a tile are then its columns, of which there can be any multiple of 8, and a width
// can be found that fills whole waves where 128 rows cannot. Local and staged weights only.
//
// Tile       kTokens (128 or 64) tokens x kRows weight rows, per CTA.
// Grid       clusters of two: the CTAs compute the same weight rows for neighbouring token tiles;
//            each loads half of the rows and multicasts them. Whole tiles only.
// Block      384 threads: warpgroup 0 loads (warp 0 weights, warp 1 x), warpgroups 1 and 2 multiply
//            64 tokens each, or with 64 tokens half of the rows each.
// Shared     ring of stages (one or two k atoms of x and of the weight rows), a small buffer per
//            consumer warp for results on their way out.
// Barriers   per stage: full (both loaders), empty (8 consumer warps of both CTAs).
// Bytes      a weight atom crosses its tier once per two token tiles.

namespace dak::cuda {

template <typename Element, int kTokens, int kRows>
class WideCta {
  public:
    __device__ __forceinline__ WideCta(const PrefillParams& p, const CUtensorMap& x_map,
                                       const void* ring, const void* barriers)
        : p_(p),
          x_map_(x_map),
          ring_(ptx::shared_address(ring)),
          full_(ptx::shared_address(barriers)),
          empty_(full_ + 8 * kStages),
          rank_(static_cast<int>(ptx::cluster_rank())),
          worker_(static_cast<int>(blockIdx.x) / kWideCluster),
          reader_(full_, ring_) {}

    __device__ __forceinline__ void init_barriers() const {
        for (int i = 0; i < kStages; ++i) {
            ptx::mbarrier_init(full_ + 8 * i, 2);
            ptx::mbarrier_init(empty_ + 8 * i, 8 * kWideCluster);
        }
        ptx::fence_mbarrier_init();
        ptx::prefetch_tensor_map(x_map_);
    }

    /// Lane i copies what lies in the i-th row tile that this CTA's half of the rows touches.
    __device__ __forceinline__ void stream_weights(int lane) const {
        const uint64_t policy =
            p_.evict_first ? ptx::policy_evict_first() : ptx::policy_evict_normal();
        ptx::grid_launch_dependents();
        if (!p_.early_weights) ptx::grid_wait();
        if (lane >= kMaxCopies) return;

        uint32_t stage = 0, parity = 1;
        TileWalk walk(p_, worker_);
        for (Segment s; walk.next(s);) {
            const int block_row = place_of(p_, s.block).row_block * kRows;
            const int half = block_row + rank_ * kHalfRows;
            const int tile = half / kTileRows + lane;
            const int begin = larger(half, tile * kTileRows);
            const int end = smaller(half + kHalfRows, (tile + 1) * kTileRows);
            const uint32_t bytes = begin < end ? (end - begin) * kRowBytes : 0;
            const uint32_t to = ring_ + kAtoms * kXBytes + (begin - block_row) * kRowBytes;
            const int from = begin % kTileRows * kRowBytes;
            const int64_t first_atom =
                int64_t{smaller(tile, p_.weight.row_tiles - 1)} * p_.weight.k_atoms;
            const int64_t staged = p_.weight.remote_atoms - first_atom;  // lie elsewhere
            const uint8_t* source = p_.weight.atom(first_atom) + from;
            for (int k = 0; k < p_.weight.k_atoms; k += kAtoms) {
                const uint32_t full = full_ + 8 * stage;
                ptx::mbarrier_wait(empty_ + 8 * stage, parity);
                if (lane == 0) ptx::mbarrier_arrive_expect(full, kAtoms * kWeightBytes);
#pragma unroll
                for (int i = 0; i < kAtoms; ++i) {
                    if (k + i == staged && k + i < p_.weight.k_atoms) {
                        source = p_.weight.atom(first_atom + staged) + from;
                    }
                    if (bytes > 0) {
                        ptx::bulk_load_multicast(to + stage * kStageBytes + i * kWeightBytes,
                                                 source, bytes, full, (1u << kWideCluster) - 1,
                                                 policy);
                    }
                    // A last odd atom comes twice, the second time to meet zeros.
                    if (k + i + 1 < p_.weight.k_atoms) source += kGemmAtomBytes;
                }
                if (++stage == kStages) {
                    stage = 0;
                    parity ^= 1;
                }
            }
        }
    }

    __device__ __forceinline__ void stream_x() const {
        ptx::grid_wait();
        uint32_t stage = 0, parity = 1;
        TileWalk walk(p_, worker_);
        for (Segment s; walk.next(s);) {
            const int token = token_base(place_of(p_, s.block));
            for (int k = 0; k < p_.weight.k_atoms; k += kAtoms) {
                ptx::mbarrier_wait(empty_ + 8 * stage, parity);
                ptx::mbarrier_arrive_expect(full_ + 8 * stage, kAtoms * kXBytes);
#pragma unroll
                for (int i = 0; i < kAtoms; ++i) {  // past the end of x are zeros
                    ptx::tensor_load(ring_ + stage * kStageBytes + i * kXBytes, x_map_,
                                     (k + i) * 64, token, full_ + 8 * stage);
                }
                if (++stage == kStages) {
                    stage = 0;
                    parity ^= 1;
                }
            }
        }
    }

    /// Warpgroup `consumer` (0 or 1) multiplies its part of every tile.
    __device__ __forceinline__ void consume(int consumer) {
        consumer_ = consumer;
        thread_ = static_cast<int>(threadIdx.x) % 128;
        hands_back_ = thread_ % 32 < kWideCluster;
        to_empty_ = ptx::map_to_rank(empty_, smaller(thread_ % 32, kWideCluster - 1)) - full_;
        ptx::grid_wait();
        TileWalk walk(p_, worker_);
        for (Segment s; walk.next(s);) {
#pragma unroll
            for (float& value : sums_) value = 0.0f;
            ptx::pin(sums_);
            ptx::wgmma_fence();
            for (int k = 0; k < p_.weight.k_atoms; k += kAtoms) step();
            ptx::wgmma_wait<0>();
            ptx::pin(sums_);
            release();
            store(place_of(p_, s.block));
        }
    }

  private:
    static constexpr int kStages = wide_stages(kTokens, kRows);
    static constexpr int kTileRows = 64;
    static constexpr int kRowBytes = 128;
    static constexpr int kHalfRows = kRows / kWideCluster;
    static constexpr int kMaxCopies = (kHalfRows - 4) / kTileRows + 2;
    static constexpr uint32_t kXBytes = kTokens * kRowBytes;
    static constexpr uint32_t kWeightBytes = kRows * kRowBytes;
    static constexpr int kAtoms = wide_stage_atoms(kTokens);
    static constexpr uint32_t kStageBytes = kAtoms * (kXBytes + kWeightBytes);
    static constexpr bool kSplitRows = kTokens == 64;  // between the consumers, or else the tokens
    static constexpr int kColumns = kSplitRows ? kRows / 2 : kRows;  // of one consumer's product
    static constexpr int kPieceRows = wide_piece_rows(kColumns);
    static constexpr int kPieceValues = kPieceRows / 2;
    static constexpr int kValues = kColumns / 2;
    static_assert(kColumns % kPieceRows == 0 && kStageBytes % 1024 == 0);

    __device__ __forceinline__ int token_base(TilePlace place) const {
        return (place.token_tile * kWideCluster + rank_) * kTokens;
    }

    /// One stage.
    __device__ __forceinline__ void step() {
        constexpr int kMoveA = kSplitRows ? 0 : 64 * kRowBytes >> 4;
        constexpr int kMoveB = kSplitRows ? kColumns * kRowBytes >> 4 : 0;
        reader_.wait();
        const uint64_t a = ptx::operand_of_low(reader_.operand + consumer_ * kMoveA);
        const uint64_t b =
            ptx::operand_of_low(reader_.operand + (kAtoms * kXBytes >> 4) + consumer_ * kMoveB);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < kAtoms; ++i) {
#pragma unroll
            for (int k16 = 0; k16 < 4; ++k16) {
                ptx::Wgmma<Element, kColumns>::multiply(sums_, a + i * (kXBytes >> 4) + k16 * 2,
                                                        b + i * (kWeightBytes >> 4) + k16 * 2);
            }
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        release();
        if (hands_back_) done_ = reader_.full;
        reader_.advance(kStages, kStageBytes);
    }

    /// Hands back the stage before the newest, whose products have completed.
    __device__ __forceinline__ void release() {
        if (done_ != kNone) ptx::mbarrier_arrive_cluster(done_ + to_empty_);
        done_ = kNone;
    }

    // ---- results: this thread's first row is token `lane / 4` of its warp's 16, its first column
    // weight row 2 (lane % 4) of every group of 8 ----

    /// Every piece passes through the first registers, so that its code exists once.
    __device__ __forceinline__ void store(TilePlace place) {
        const int token = token_base(place) + (kSplitRows ? 0 : consumer_ * 64) + thread_ / 32 * 16;
        const int row = place.row_block * kRows + (kSplitRows ? consumer_ * kColumns : 0);
#pragma unroll 1
        for (int piece = 0; piece < kColumns / kPieceRows; ++piece) {
            float values[kPieceValues];
#pragma unroll
            for (int i = 0; i < kPieceValues; ++i) values[i] = sums_[i];
#pragma unroll
            for (int i = 0; i < kValues - kPieceValues; ++i) sums_[i] = sums_[i + kPieceValues];
            store_piece(values, row + piece * kPieceRows, token);
        }
    }

    __device__ __forceinline__ void store_piece(float (&values)[kPieceValues], int row, int token) {
        const EpilogueParams& e = p_.epilogue;
        const int lane = thread_ % 32;
        const int own_row = row + lane % 4 * 2;
        const int own_token = token + lane / 4;
        if (!e.plain) {
            scale_and_bias_rows(values, own_row);
            activate(values, e.activation);
            if (e.residual != nullptr) add_residual_pairs(values, own_row, own_token);
        }
        if (e.tensor_store) {
            store_through_shared(values, row, token);
        } else if (e.fp32_output) {
            store_each<float>(values, own_row, own_token);
        } else {
            store_each<Element>(values, own_row, own_token);
        }
    }

    __device__ __forceinline__ void scale_and_bias_rows(float (&values)[kPieceValues], int row) {
        const EpilogueParams& e = p_.epilogue;
#pragma unroll
        for (int i = 0; i < kPieceValues; ++i) {
            const int feature = row + i / 4 * 8 + i % 2;
            const bool biased = e.bias != nullptr && feature < e.out_features;
            values[i] = e.scale * values[i] + (biased ? __ldg(e.bias + feature) : 0.0f);
        }
    }

    /// Two neighbours at once where the residual's rows keep them aligned.
    __device__ __forceinline__ void add_residual_pairs(float (&values)[kPieceValues], int row,
                                                       int token) {
        const EpilogueParams& e = p_.epilogue;
        const auto* residual = static_cast<const Element*>(e.residual);
        const bool aligned =
            e.ld_residual % 2 == 0 && reinterpret_cast<uintptr_t>(residual) % sizeof(uint32_t) == 0;
#pragma unroll
        for (int i = 0; i < kPieceValues; i += 2) {
            const int feature = row + i / 4 * 8;
            const int t = token + i / 2 % 2 * 8;
            if (t >= e.tokens || feature >= e.out_features) continue;
            const Element* from = residual + t * e.ld_residual + feature;
            if (aligned && feature + 1 < e.out_features) {
                const uint32_t both = *reinterpret_cast<const uint32_t*>(from);
                const auto* pair = reinterpret_cast<const Element*>(&both);
                values[i] += to_fp32(pair[0]);
                values[i + 1] += to_fp32(pair[1]);
            } else {
                values[i] += to_fp32(from[0]);
                if (feature + 1 < e.out_features) values[i + 1] += to_fp32(from[1]);
            }
        }
    }

    /// 16 tokens through the warp's buffer, so that a token's rows leave in 16-byte pieces. Its
    /// pitch, an odd multiple of 16 bytes, keeps both sides free of bank conflicts.
    __device__ __forceinline__ void store_through_shared(const float (&values)[kPieceValues],
                                                         int row, int token) {
        const EpilogueParams& e = p_.epilogue;
        const int lane = thread_ % 32;
        const uint32_t buffer =
            ring_ + kStages * kStageBytes + (consumer_ * 4 + thread_ / 32) * kWideBufferBytes;
        const uint32_t to = buffer + lane / 4 * kWidePitch + lane % 4 * 4;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kPieceValues; i += 2) {
            ptx::store_shared(to + i / 4 * 16 + i / 2 % 2 * 8 * kWidePitch,
                              packed<Element>(values[i], values[i + 1]));
        }
        __syncwarp();
        constexpr int kChunks = kPieceRows / 8;
#pragma unroll
        for (int i = 0; i < (16 * kChunks + 31) / 32; ++i) {
            const int chunk = i * 32 + lane;
            const int t = chunk / kChunks;
            const int feature = row + chunk % kChunks * 8;
            if (t < 16 && token + t < e.tokens && feature < e.out_features) {
                const float4 v = ptx::load_shared(buffer + t * kWidePitch + chunk % kChunks * 16);
                *reinterpret_cast<float4*>(static_cast<Element*>(e.y) + (token + t) * e.ldy +
                                           feature) = v;
            }
        }
    }

    template <typename Output>
    __device__ __forceinline__ void store_each(const float (&values)[kPieceValues], int row,
                                               int token) {
        const EpilogueParams& e = p_.epilogue;
#pragma unroll
        for (int i = 0; i < kPieceValues; ++i) {
            const int feature = row + i / 4 * 8 + i % 2;
            const int t = token + i / 2 % 2 * 8;
            if (t < e.tokens && feature < e.out_features) {
                static_cast<Output*>(e.y)[t * e.ldy + feature] = rounded<Output>(values[i]);
            }
        }
    }

    static constexpr uint32_t kNone = 0;

    const PrefillParams& p_;
    const CUtensorMap& x_map_;
    const uint32_t ring_, full_, empty_;
    const int rank_, worker_;
    // Consumers only:
    int consumer_ = 0, thread_ = 0;
    RingReader reader_;
    bool hands_back_ = false;  // to one CTA of the cluster, a lane each
    uint32_t to_empty_ = 0;    // from a stage's full barrier here to its empty one there
    uint32_t done_ = kNone;    // full barrier of the stage to hand back
    float sums_[kValues];
};

template <typename Element, int kTokens, int kRows>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    split_gemm_wide(const __grid_constant__ CUtensorMap x_map,
                    const __grid_constant__ PrefillParams p) {
    extern __shared__ __align__(1024) uint8_t ring[];
    __shared__ __align__(8) uint64_t barriers[2 * wide_stages(kTokens, kRows)];
    WideCta<Element, kTokens, kRows> cta(p, x_map, ring, barriers);
    if (threadIdx.x == 0) cta.init_barriers();
    ptx::cluster_sync();
    if (threadIdx.x < 128) {
        ptx::decrease_registers<40>();
        if (threadIdx.x < 32) cta.stream_weights(static_cast<int>(threadIdx.x));
        if (threadIdx.x == 32) cta.stream_x();
    } else {
        ptx::increase_registers<232>();
        cta.consume(ptx::same_in_warp(static_cast<int>(threadIdx.x) / 128 - 1));
    }
    // No CTA may exit while another still copies into it or releases its stages.
    __syncwarp();
    ptx::cluster_sync();
}

}  // namespace dak::cuda
