#pragma once

#include "ops/cuda/ptx.cuh"
#include "ops/cuda/ring.cuh"
#include "ops/cuda/split_gemm/epilogue.cuh"
#include "ops/cuda/split_gemm/params.h"
#include "ops/cuda/split_gemm/tile_walk.cuh"
#include "ops/cuda/wgmma.cuh"

// y[n, m] = sum_k x[n, k] w[m, k] for many tokens: bound by the matrix units.
//
// Tile       128 weight rows (a row block: 2 row tiles) x kTokens tokens, per CTA.
// Grid       kCluster CTAs per worker; the CTAs of a cluster work on the same row block and on
//            neighbouring token tiles, each loads 1/kCluster of the weights and multicasts it.
//            Or clusters split K of one tile and meet in shared memory (WorkLine::split).
// Block      384 threads: warpgroup 0 loads (warp 0 weights, warp 1 x), warpgroups 1 and 2
//            multiply one row tile each.
// Shared     ring of stages (2 weight atoms, one x atom of kTokens tokens); two 8 KiB pieces per
//            consumer for results on their way out.
// Barriers   per stage: full (both loaders), empty (8 consumer warps of every CTA that the stage's
//            weights come from or go to). Named barriers 1, 2 the consumers, 3, 4 gate and up.
// Bytes      a weight atom crosses its tier once per token tile of a cluster.

namespace dak::cuda {

template <typename Element, int kTokens, int kCluster>
class PrefillCta {
  public:
    __device__ __forceinline__ PrefillCta(const PrefillParams& p, const CUtensorMap& x_map,
                                          const CUtensorMap& y_map, const void* ring,
                                          const void* barriers)
        : p_(p),
          x_map_(x_map),
          y_map_(y_map),
          ring_(ptx::shared_address(ring)),
          pieces_(ring_ + kStages * kStageBytes),
          full_(ptx::shared_address(barriers)),
          empty_(full_ + 8 * kStages),
          rank_(kCluster > 1 ? static_cast<int>(ptx::cluster_rank()) : 0),
          worker_(static_cast<int>(blockIdx.x) / kCluster),
          reader_(full_, ring_) {}

    __device__ __forceinline__ void init_barriers() const {
        for (int i = 0; i < kStages; ++i) {
            ptx::mbarrier_init(full_ + 8 * i, 2);
            ptx::mbarrier_init(empty_ + 8 * i, 8 * kCluster);
        }
        ptx::fence_mbarrier_init();
        ptx::prefetch_tensor_map(x_map_);
        ptx::prefetch_tensor_map(y_map_);
    }

    __device__ __forceinline__ void stream_weights() const {
        const bool remote = p_.line.is_remote(worker_);
        const uint64_t policy =
            !remote && p_.evict_first ? ptx::policy_evict_first() : ptx::policy_evict_normal();
        ptx::grid_launch_dependents();
        if (!p_.early_weights) ptx::grid_wait();

        uint32_t stage = 0, parity = 1;
        uint32_t oldest = 0, oldest_parity = 0;  // that may be in flight beside a remote one
        int issued = 0;
        TileWalk walk(p_, worker_);
        for (Segment s; walk.next(s);) {
            const int row_tile = place_of(p_, s.block).row_block * kPrefillRowTiles;
            for (int k = s.k_begin; k < s.k_end; ++k) {
                ptx::mbarrier_wait(empty_ + 8 * stage, parity);
                if (remote && issued++ >= p_.remote_stages) {
                    if (int64_t{row_tile} * p_.weight.k_atoms + k < p_.weight.remote_atoms) {
                        ptx::mbarrier_wait(full_ + 8 * oldest, oldest_parity);
                    }
                    if (++oldest == kStages) {
                        oldest = 0;
                        oldest_parity ^= 1;
                    }
                }
                const uint32_t full = full_ + 8 * stage;
                const uint32_t to = ring_ + stage * kStageBytes;
                ptx::mbarrier_arrive_expect(full, kWeightBytes);
                if constexpr (kCluster == 1) {
#pragma unroll
                    for (int t = 0; t < kPrefillRowTiles; ++t) {
                        ptx::bulk_load(to + t * kGemmAtomBytes, atom(row_tile + t, k),
                                       kGemmAtomBytes, full, policy);
                    }
                } else {
                    constexpr uint32_t kShare = kWeightBytes / kCluster;
                    const uint32_t offset = rank_ * kShare;
                    const auto tile = static_cast<int>(offset / kGemmAtomBytes);
                    ptx::bulk_load_multicast(to + offset,
                                             atom(row_tile + tile, k) + offset % kGemmAtomBytes,
                                             kShare, full, kEveryCta, policy);
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
            for (int k = s.k_begin; k < s.k_end; ++k) {
                ptx::mbarrier_wait(empty_ + 8 * stage, parity);
                ptx::mbarrier_arrive_expect(full_ + 8 * stage, kXBytes);
                ptx::tensor_load(ring_ + stage * kStageBytes + kWeightBytes, x_map_, k * 64, token,
                                 full_ + 8 * stage);
                if (++stage == kStages) {
                    stage = 0;
                    parity ^= 1;
                }
            }
        }
    }

    /// Warpgroup `consumer` (0 or 1) multiplies row tile `consumer` of every row block.
    __device__ __forceinline__ void consume(int consumer) {
        consumer_ = consumer;
        thread_ = static_cast<int>(threadIdx.x) % 128;
        hands_back_ = thread_ % 32 < kCluster;
        to_empty_ = empty_ - full_;
        if (kCluster > 1) {
            to_empty_ = ptx::map_to_rank(empty_, smaller(thread_ % 32, kCluster - 1)) - full_;
        }
        ptx::grid_wait();
        int units_done = 0;
        TileWalk walk(p_, worker_);
        if (p_.line.split() > 1) {
            Segment s;
            if (walk.next(s)) {
                multiply_all(s.length());
                reduce_in_cluster(place_of(p_, s.block));
            }
            return;
        }
        for (Segment s; walk.next(s);) {
            const bool complete = compute(s, units_done);
            units_done += s.length();
            if (complete) store(place_of(p_, s.block));
        }
        publish();
        if (thread_ == 0) ptx::bulk_wait_read<0>();
    }

  private:
    static constexpr int kStages = prefill_stages(kTokens);
    static constexpr uint32_t kWeightBytes = kPrefillRowTiles * kGemmAtomBytes;
    static constexpr uint32_t kXBytes = kTokens * 128;
    static constexpr uint32_t kStageBytes = kWeightBytes + kXBytes;
    static constexpr int kPieceValues = kPieceTokens / 2;
    static constexpr int kValues = kTokens / 2;
    static constexpr int kVectors = kTokens / 8;  // of 4 values, a thread's part of a tile
    static constexpr int kChunk = 4;              // vectors of a partial sum added per step
    static constexpr int kChunks = kVectors / kChunk;
    static constexpr uint16_t kEveryCta = (1u << kCluster) - 1;
    static constexpr int kDrainSteps = 3;    // until the stores of a partial sum have drained
    static constexpr int kPublishSteps = 8;  // until it can be read

    __device__ __forceinline__ const uint8_t* atom(int row_tile, int k) const {
        const int existing = smaller(row_tile, p_.weight.row_tiles - 1);
        return p_.weight.atom(int64_t{existing} * p_.weight.k_atoms + k);
    }

    __device__ __forceinline__ int token_base(TilePlace place) const {
        return (place.token_tile * kCluster + rank_) * kTokens;
    }

    __device__ __forceinline__ void clear_sums() {
#pragma unroll
        for (float& value : sums_) value = 0.0f;
        ptx::pin(sums_);
        ptx::wgmma_fence();
    }

    __device__ __forceinline__ void finish_products() {
        ptx::wgmma_wait<0>();
        ptx::pin(sums_);
        release();
    }

    __device__ __forceinline__ void multiply_all(int steps) {
        clear_sums();
        for (int k = 0; k < steps; ++k) step();
        finish_products();
    }

    /// Computes a segment; true when the sums are the whole tile's, for this CTA to store.
    __device__ __forceinline__ bool compute(const Segment& s, int units_before) {
        clear_sums();

        const bool head = s.head == worker_;
        int add_at = s.length();
        if (head && s.last == worker_ + 1) {
            const int at = larger(kDrainSteps + 1, add_position(p_.line.k_atoms() - s.k_end,
                                                                units_before, kPublishSteps));
            if (at + kChunks <= s.length()) add_at = at;
        }
        int k = 0;
        for (; k < add_at; ++k) {
            step();
            if (k == kDrainSteps) publish();
        }
        const bool added = add_at < s.length();
        if (added) {
            add_while_multiplying(s.last);
            for (k += kChunks; k < s.length(); ++k) step();
        }
        finish_products();

        if (!head) {
            publish();
            write_partial();
            return false;
        }
        if (!added) {
            for (int worker = worker_ + 1; worker <= s.last; ++worker) {
                if (p_.line.begin(worker) < p_.line.begin(worker + 1)) add_partial(worker);
            }
        }
        return true;
    }

    /// One k atom.
    __device__ __forceinline__ void step() {
        reader_.wait();
        const uint64_t a = ptx::operand_of_low(reader_.operand + consumer_ * (kGemmAtomBytes >> 4));
        const uint64_t b = ptx::operand_of_low(reader_.operand + (kWeightBytes >> 4));
        ptx::wgmma_fence();
#pragma unroll
        for (int k16 = 0; k16 < 4; ++k16) {
            ptx::Wgmma<Element, kTokens>::multiply(sums_, a + k16 * 2, b + k16 * 2);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        release();
        if (hands_back_) done_ = reader_.full;
        reader_.advance(kStages, kStageBytes);
    }

    /// Hands back the stage before the newest, whose products have completed.
    __device__ __forceinline__ void release() {
        if (done_ == kNone) return;
        if (kCluster > 1) {
            ptx::mbarrier_arrive_cluster(done_ + to_empty_);
        } else {
            ptx::mbarrier_arrive(done_ + to_empty_);
        }
        done_ = kNone;
    }

    // ---- partial sums: slot and flag of this CTA's and consumer's counterpart at `worker` ----

    __device__ __forceinline__ int slot_of(int worker) const {
        return (worker * kCluster + rank_) * 2 + consumer_;
    }
    __device__ __forceinline__ float4* partial(int worker) const {
        return p_.scratch.partials + int64_t{slot_of(worker)} * kVectors * 128 + thread_;
    }

    __device__ __forceinline__ void write_partial() {
        float4* to = partial(worker_);
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
            const float* v = &sums_[i * 4];
            __stcg(to + i * 128, make_float4(v[0], v[1], v[2], v[3]));
        }
        unpublished_ = true;
    }

    __device__ __forceinline__ void publish() {
        if (!unpublished_) return;
        unpublished_ = false;
        __threadfence();
        ptx::barrier_sync(1 + consumer_, 128);
        if (thread_ == 0) ptx::store_release(p_.scratch.flags + slot_of(worker_), 1);
    }

    __device__ __forceinline__ void clear_flag(int worker) {
        ptx::barrier_sync(1 + consumer_, 128);
        if (thread_ == 0) p_.scratch.flags[slot_of(worker)] = 0;
    }

    template <int kSize>
    __device__ __forceinline__ void add_chunk(int chunk, const float4 (&v)[kSize]) {
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
            float* sum = &sums_[(chunk * kSize + i) * 4];
            sum[0] += v[i].x;
            sum[1] += v[i].y;
            sum[2] += v[i].z;
            sum[3] += v[i].w;
        }
    }

    template <int kSize>
    __device__ __forceinline__ void load_chunk(const float4* from, int chunk, float4 (&v)[kSize]) {
#pragma unroll
        for (int i = 0; i < kSize; ++i) v[i] = __ldcg(from + (chunk * kSize + i) * 128);
    }

    /// Each chunk is loaded before the one before it is added.
    __device__ __forceinline__ void add_partial(int worker) {
        constexpr int kSize = 8;
        ptx::wait_flag(p_.scratch.flags + slot_of(worker));
        const float4* from = partial(worker);
        float4 v[2][kSize];
        load_chunk(from, 0, v[0]);
#pragma unroll
        for (int chunk = 0; chunk < kVectors / kSize; ++chunk) {
            if (chunk + 1 < kVectors / kSize) load_chunk(from, chunk + 1, v[(chunk + 1) % 2]);
            add_chunk(chunk, v[chunk % 2]);
        }
        clear_flag(worker);
    }

    /// The same, a chunk per step, each loaded under the step before.
    __device__ __forceinline__ void add_while_multiplying(int worker) {
        ptx::wait_flag(p_.scratch.flags + slot_of(worker));
        const float4* from = partial(worker);
        float4 v[kChunk];
        load_chunk(from, 0, v);
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            step();
            ptx::wgmma_wait<0>();
            ptx::pin(sums_);
            add_chunk(chunk, v);
            if (chunk + 1 < kChunks) load_chunk(from, chunk + 1, v);
            ptx::pin(sums_);
        }
        clear_flag(worker);
    }

    // ---- K split over a cluster ----

    /// The CTAs of a cluster hold partial sums of one tile: each puts its own into its (now idle)
    /// ring, and adds up and stores an equal share of the tokens.
    __device__ __forceinline__ void reduce_in_cluster(TilePlace place) {
        constexpr int kPieces = kTokens / kPieceTokens;
        constexpr uint32_t kVectorBytes = 128 * 16;
        const uint32_t mine = ring_ + consumer_ * kVectors * kVectorBytes + thread_ * 16;
        ptx::barrier_sync(3, 256);  // both consumers have read the last stage
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
            const float* v = &sums_[i * 4];
            ptx::store_shared(mine + i * kVectorBytes, make_float4(v[0], v[1], v[2], v[3]));
        }
        ptx::cluster_sync();
        const int split = p_.line.split();
        const auto rank = static_cast<int>(ptx::cluster_rank());
#pragma unroll 1
        for (int piece = kPieces * rank / split; piece < kPieces * (rank + 1) / split; ++piece) {
            float values[kPieceValues] = {};
            for (int other = 0; other < split; ++other) {
                const uint32_t from =
                    ptx::map_to_rank(mine + piece * (kPieceTokens / 8) * kVectorBytes, other);
#pragma unroll
                for (int i = 0; i < kPieceTokens / 8; ++i) {
                    const float4 v = ptx::load_shared_cluster(from + i * kVectorBytes);
                    values[i * 4] += v.x;
                    values[i * 4 + 1] += v.y;
                    values[i * 4 + 2] += v.z;
                    values[i * 4 + 3] += v.w;
                }
            }
            store_piece(values, place, piece);
        }
        if (thread_ == 0) ptx::bulk_wait_read<0>();
        __syncwarp();
        ptx::cluster_sync();  // no CTA may exit while another still reads its shared memory
    }

    // ---- results ----

    /// 64 tokens at a time. With an epilogue every piece passes through the first registers, so
    /// that its code exists once.
    __device__ __forceinline__ void store(TilePlace place) {
        constexpr int kPieces = kTokens / kPieceTokens;
        if (p_.epilogue.plain && p_.epilogue.tensor_store) {
            const int row = (place.row_block * kPrefillRowTiles + consumer_) * 64;
#pragma unroll
            for (int piece = 0; piece < kPieces; ++piece) {
                store_through_shared(&sums_[piece * kPieceValues], piece % 2, row,
                                     token_base(place) + piece * kPieceTokens);
            }
            return;
        }
#pragma unroll 1
        for (int piece = 0; piece < kPieces; ++piece) {
            float values[kPieceValues];
#pragma unroll
            for (int i = 0; i < kPieceValues; ++i) values[i] = sums_[i];
#pragma unroll
            for (int i = 0; i < kValues - kPieceValues; ++i) sums_[i] = sums_[i + kPieceValues];
            store_piece(values, place, piece);
        }
    }

    __device__ __forceinline__ void store_piece(float (&values)[kPieceValues], TilePlace place,
                                                int piece) {
        const EpilogueParams& e = p_.epilogue;
        const FragmentPlace fragment = fragment_place(thread_);
        const int row_tile = place.row_block * kPrefillRowTiles + consumer_;
        const int row = (e.gated ? place.row_block : row_tile) * 64;
        const int token = token_base(place) + piece * kPieceTokens;
        scale_and_bias(values, e, row_tile, fragment);
        if (!e.gated || consumer_ == 0) activate(values, e.activation);
        if (e.gated) {
            multiply_by_up(values);
            if (consumer_ == 1) return;
        }
        if (!e.tensor_store) {
            finish_tile<Element>(values, e, row, token, fragment);
            return;
        }
        if (e.residual != nullptr) add_residual<Element>(values, e, row, token, fragment);
        store_through_shared(values, piece % 2, row, token);
    }

    /// Through one of this consumer's two buffers, token-major and swizzled as y's tensor map
    /// expects.
    __device__ __forceinline__ void store_through_shared(const float* values, int which, int row,
                                                         int token) {
        const int lane = thread_ % 32;
        if (thread_ == 0) ptx::bulk_wait_read<1>();
        ptx::barrier_sync(1 + consumer_, 128);
        const uint32_t buffer = pieces_ + (consumer_ * 2 + which) * kPieceBytes;
        const int chunk = thread_ / 32 * 2 + (lane >> 3 & 1);
        const int in_group = (lane & 7) + (lane >> 4) * 8;
        const uint32_t to = buffer + in_group * 128 + ((chunk ^ (lane & 7)) << 4);
#pragma unroll
        for (int g = 0; g < 8; g += 2) {
            const float* v = &values[g * 4];
            ptx::store_matrix_transposed(to + g * 1024, packed<Element>(v[0], v[1]),
                                         packed<Element>(v[2], v[3]), packed<Element>(v[4], v[5]),
                                         packed<Element>(v[6], v[7]));
        }
        ptx::fence_async_shared();
        ptx::barrier_sync(1 + consumer_, 128);
        if (thread_ == 0) {
            ptx::tensor_store(y_map_, row, token, buffer);
            ptx::bulk_commit();
        }
    }

    /// Consumer 0 holds the gate, consumer 1 the up half: they meet in consumer 1's buffers, which
    /// it has no other use for, in fp32.
    __device__ __forceinline__ void multiply_by_up(float (&values)[kPieceValues]) {
        const uint32_t mine = pieces_ + 2 * kPieceBytes + thread_ * 16;
        if (consumer_ == 1) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float* v = &values[i * 4];
                ptx::store_shared(mine + i * 2048, make_float4(v[0], v[1], v[2], v[3]));
            }
        }
        ptx::barrier_sync(3, 256);
        if (consumer_ == 0) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                float* v = &values[i * 4];
                const float4 up = ptx::load_shared(mine + i * 2048);
                v[0] *= up.x;
                v[1] *= up.y;
                v[2] *= up.z;
                v[3] *= up.w;
            }
        }
        ptx::barrier_sync(4, 256);
    }

    static constexpr uint32_t kNone = 0;

    const PrefillParams& p_;
    const CUtensorMap& x_map_;
    const CUtensorMap& y_map_;
    const uint32_t ring_, pieces_, full_, empty_;
    const int rank_, worker_;
    // Consumers only:
    int consumer_ = 0, thread_ = 0;
    RingReader reader_;
    bool hands_back_ = false;  // to one CTA of the cluster, a lane each
    uint32_t to_empty_ = 0;    // from a stage's full barrier here to its empty one there
    uint32_t done_ = kNone;    // full barrier of the stage to hand back
    bool unpublished_ = false;
    float sums_[kValues];
};

template <typename Element, int kTokens, int kCluster>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    split_gemm_prefill(const __grid_constant__ CUtensorMap x_map,
                       const __grid_constant__ CUtensorMap y_map,
                       const __grid_constant__ PrefillParams p) {
    extern __shared__ __align__(1024) uint8_t ring[];
    __shared__ __align__(8) uint64_t barriers[2 * prefill_stages(kTokens)];
    PrefillCta<Element, kTokens, kCluster> cta(p, x_map, y_map, ring, barriers);
    if (threadIdx.x == 0) cta.init_barriers();
    if constexpr (kCluster > 1) {
        ptx::cluster_sync();
    } else {
        __syncthreads();
    }
    if (threadIdx.x < 128) {
        ptx::decrease_registers<40>();
        if (threadIdx.x == 0) cta.stream_weights();
        if (threadIdx.x == 32) cta.stream_x();
    } else {
        ptx::increase_registers<232>();
        cta.consume(ptx::same_in_warp(static_cast<int>(threadIdx.x) / 128 - 1));
    }
    // No CTA may exit while another still copies into it or releases its stages.
    if constexpr (kCluster > 1) {
        __syncwarp();
        ptx::cluster_sync();
    }
}

}  // namespace dak::cuda
