#pragma once

#include "ops/cuda/ptx.cuh"
#include "ops/cuda/ring.cuh"
#include "ops/cuda/split_gemm/decode_epilogue.cuh"
#include "ops/cuda/split_gemm/params.h"
#include "ops/cuda/wgmma.cuh"

// y[n, m] = sum_k x[n, k] w[m, k] for few tokens: bound by the bytes of w.
//
// Grid       one CTA per worker of the WorkLine (remote ones first or last), all resident at once.
//            With two x sharers a worker is a cluster of two: each CTA has its own block of the
//            worker's pair, loads half of x and multicasts it (at 64 tokens x costs as much as w
//            otherwise).
// Block      224 threads: warps 0-3 multiply (one warpgroup, 64 weight rows as the wgmma M side),
//            warp 4 streams weights, warp 5 streams x, warp 6 prepares a folded norm.
// Shared     ring of 16 KiB weight slots (2 atoms of one row tile), ring of x slots (kXAtoms atoms
//            of all tokens), sums of the CTAs of a cluster that splits K.
// Barriers   full/empty pair per slot of either ring; named barrier 1 the warpgroup, 2 the set-up.
// Bytes      every weight atom once, from its own tier; x once per CTA and K range, from L2.
//
// Weights depend on no other kernel, so the first ring-full is under way before the barriers of
// the other warps exist; only readers of x and writers of results wait for the preceding kernel.

namespace dak::cuda {

inline constexpr int kMaxSlots = 16;
// Units that a worker takes to publish a partial sum: 16 atoms are ~3 us of one SM's share of HBM.
inline constexpr int kPublishUnits = 16;

/// Addresses of everything in shared memory.
struct DecodeShared {
    uint32_t weights, x;
    uint32_t exchange;  ///< sums of all CTAs of a cluster that splits K
    uint32_t weights_full, weights_empty, x_full, x_empty, exchange_full, norm_full;
    NormShared& norm;

    static constexpr int kBarriers = 4 * kMaxSlots + 2;

    __device__ __forceinline__ DecodeShared(const void* ring, const void* barriers,
                                            NormShared& norm_shared, int weight_slots,
                                            uint32_t x_bytes)
        : weights(ptx::shared_address(ring)),
          x(weights + weight_slots * kSlotBytes),
          exchange(x + x_bytes),
          weights_full(ptx::shared_address(barriers)),
          weights_empty(weights_full + 8 * kMaxSlots),
          x_full(weights_empty + 8 * kMaxSlots),
          x_empty(x_full + 8 * kMaxSlots),
          exchange_full(x_empty + 8 * kMaxSlots),
          norm_full(exchange_full + 8),
          norm(norm_shared) {}
};

/// Fills one weight slot with `atoms` (1 or 2) consecutive atoms. A single atom is loaded into both
/// halves: its second product is with zeros, which must not meet whatever was in the slot before.
__device__ __forceinline__ void load_weights(const WeightView& weight, int64_t atom, int atoms,
                                             uint32_t slot, uint32_t barrier, uint64_t policy) {
    ptx::mbarrier_arrive_expect(barrier, kSlotBytes);
    if (atoms == 2 && (atom >= weight.remote_atoms || atom + 1 < weight.remote_atoms)) {
        ptx::bulk_load(slot, weight.atom(atom), kSlotBytes, barrier, policy);
    } else {
        ptx::bulk_load(slot, weight.atom(atom), kGemmAtomBytes, barrier, policy);
        ptx::bulk_load(slot + kGemmAtomBytes, weight.atom(atom + atoms - 1), kGemmAtomBytes,
                       barrier, policy);
    }
}

/// Which part of the work this CTA does.
struct DecodePlace {
    int worker, rank;

    __device__ __forceinline__ explicit DecodePlace(const DecodeParams& p)
        : worker(static_cast<int>(blockIdx.x)), rank(0) {
        if (p.x_sharers > 1) {
            worker /= p.x_sharers;
            rank = static_cast<int>(ptx::cluster_rank());
        } else if (p.remote_last) {
            worker = p.line.workers() - 1 - worker;
        }
    }

    __device__ __forceinline__ int block(const DecodeParams& p, int line_block) const {
        return line_block * p.x_sharers + rank;
    }
};

/// Waits until all warps of this CTA, and of those that share x with it, have come here.
__device__ __forceinline__ void meet(const DecodeParams& p, bool consumer) {
    if (p.line.split() > 1) ptx::cluster_arrive();
    if (p.x_sharers > 1) {
        ptx::cluster_sync();
    } else if (consumer) {
        ptx::barrier_sync(2, kDecodeThreads);
    } else {
        ptx::barrier_arrive(2, kDecodeThreads);
    }
}

/// The token groups of 8 that CTA `rank` of a cluster that splits K adds up.
struct DecodeShare {
    int begin, end;

    __device__ __forceinline__ DecodeShare(int groups, const WorkLine& line, int rank)
        : begin(line.begin_of_part(groups, rank)), end(line.begin_of_part(groups, rank + 1)) {}
    __device__ __forceinline__ int groups() const { return end - begin; }
};

/// Slots of this CTA's weight ring. A ring of one would stop: a slot is handed back when the next
/// one's products are under way.
__device__ __forceinline__ uint32_t ring_slots(const DecodeParams& p, int worker) {
    return p.line.is_remote(worker) ? larger(2, p.remote_slots) : p.weight_slots;
}

template <int kRowTiles>
__device__ __forceinline__ void stream_weights(const DecodeParams& p, const DecodeShared& shared,
                                               DecodePlace place, int lane) {
    const bool remote = p.line.is_remote(place.worker);
    const uint32_t slots = ring_slots(p, place.worker);
    const bool one_in_flight = remote && p.remote_slots == 1;
    if (lane < static_cast<int>(slots)) {
        ptx::mbarrier_init(shared.weights_full + 8 * lane, 1);
        ptx::mbarrier_init(shared.weights_empty + 8 * lane, kConsumerThreads / 32);
    }
    ptx::fence_mbarrier_init();
    __syncwarp();
    ptx::grid_launch_dependents();
    if (!p.early_weights) ptx::grid_wait();

    const uint64_t policy = remote ? ptx::policy_evict_normal() : ptx::policy_evict_first();
    const int k_atoms = p.line.k_atoms();
    // With an odd number of row tiles the last block loads its only tile twice.
    const auto first_atom = [&](int block, int tile) {
        const int row_tile = place.block(p, block) * kRowTiles + tile;
        return int64_t{smaller(row_tile, p.weight.row_tiles - 1)} * k_atoms;
    };
    const auto load = [&](int block, int tile, int k, int k_end, uint32_t slot) {
        load_weights(p.weight, first_atom(block, tile) + k, smaller(kSlotAtoms, k_end - k),
                     shared.weights + slot * kSlotBytes, shared.weights_full + 8 * slot, policy);
    };

    // The first ring-full of the first segment, one slot a lane.
    int unit = p.line.begin(place.worker);
    const int end = p.line.begin(place.worker + 1);
    uint32_t issued = 0;
    if (unit < end) {
        const int block = p.line.block(unit);
        const int k_begin = unit - block * k_atoms;
        const int k_end = smaller(k_atoms, end - block * k_atoms);
        const uint32_t segment_slots = (k_end - k_begin + kSlotAtoms - 1) / kSlotAtoms * kRowTiles;
        issued = one_in_flight ? 1 : segment_slots < slots ? segment_slots : slots;
        if (lane < static_cast<int>(issued)) {
            load(block, lane % kRowTiles, k_begin + lane / kRowTiles * kSlotAtoms, k_end, lane);
        }
    }
    __syncwarp();
    meet(p, false);
    if (lane != 0) return;

    RingSlot ring, previous;
    uint32_t position = 0;
    while (unit < end) {
        const int block = p.line.block(unit);
        const int start = block * k_atoms;
        const int k_end = smaller(k_atoms, end - start);
        for (int k = unit - start; k < k_end; k += kSlotAtoms) {
#pragma unroll
            for (int tile = 0; tile < kRowTiles; ++tile) {
                if (position++ >= issued) {
                    ptx::mbarrier_wait(shared.weights_empty + 8 * ring.slot, ring.parity ^ 1);
                    if (one_in_flight) {
                        ptx::mbarrier_wait(shared.weights_full + 8 * previous.slot,
                                           previous.parity);
                    }
                    load(block, tile, k, k_end, ring.slot);
                }
                previous = ring;
                ring.advance(slots);
            }
        }
        unit = start + k_end;
    }
}

template <int kTokens>
__device__ __forceinline__ void stream_x(const DecodeParams& p, const CUtensorMap& x_map,
                                         const DecodeShared& shared, DecodePlace place) {
    constexpr int kXAtoms = decode_x_atoms(kTokens);
    constexpr uint32_t kAtomBytes = kTokens * 128;
    const int k_atoms = p.line.k_atoms();
    int unit = p.line.begin(place.worker);
    const int end = p.line.begin(place.worker + 1);
    RingSlot ring;
    ptx::grid_wait();
    while (unit < end) {
        const int start = p.line.block(unit) * k_atoms;
        const int k_end = smaller(k_atoms, end - start);
        for (int k = unit - start; k < k_end; k += kXAtoms) {
            const uint32_t full = shared.x_full + 8 * ring.slot;
            ptx::mbarrier_wait(shared.x_empty + 8 * ring.slot, ring.parity ^ 1);
            // A last odd atom is followed by zeros, which lie past the end of x.
            const int count = smaller(kXAtoms, (k_end - k + 1) / kSlotAtoms * kSlotAtoms);
            ptx::mbarrier_arrive_expect(full, count * kAtomBytes);
            for (int i = place.rank; i < count; i += p.x_sharers) {
                const int column = (k + i < k_end ? k + i : k_atoms) * 64;
                const uint32_t to = shared.x + (ring.slot * kXAtoms + i) * kAtomBytes;
                if (p.x_sharers > 1) {
                    ptx::tensor_load_multicast(to, x_map, column, 0, full, 0b11);
                } else {
                    ptx::tensor_load(to, x_map, column, 0, full);
                }
            }
            ring.advance(p.x_slots);
        }
        unit = start + k_end;
    }
}

/// The multiplying warpgroup.
template <typename Element, int kTokens, int kRowTiles>
class DecodeConsumer {
  public:
    __device__ __forceinline__ DecodeConsumer(const DecodeParams& p, const DecodeShared& shared,
                                              DecodePlace place)
        : p_(p),
          shared_(shared),
          place_(place),
          slots_(ring_slots(p, place.worker)),
          weights_(shared.weights_full, shared.weights),
          x_(shared.x_full, shared.x) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        hands_back_weights_ = lane == 0;
        hands_back_x_ = lane < p.x_sharers;
        if (p.x_sharers > 1) {
            to_x_empty_ += ptx::map_to_rank(shared.x_full, smaller(lane, 1)) - shared.x_full;
        }
    }

    __device__ __forceinline__ void run() {
        ptx::grid_wait();
        int unit = p_.line.begin(place_.worker);
        const int first = unit;
        const int end = p_.line.begin(place_.worker + 1);
        while (unit < end) {
            const Segment segment = p_.line.segment(unit, end, place_.worker);
            compute(segment, unit - first);
            unit += segment.length();
        }
    }

  private:
    static constexpr int kXAtoms = decode_x_atoms(kTokens);
    static constexpr uint32_t kXAtomBytes = kTokens * 128;
    static constexpr bool kLoadEarly = kTokens == 8;  // registers allow it
    static constexpr int kValues = kTokens / 2;       // accumulators of one row tile
    static constexpr int kGroups = kTokens / 8;
    // Independent accumulator sets shorten the chain of dependent products at the end of a segment;
    // registers allow them for few tokens only.
    static constexpr int kSets = kTokens * kRowTiles <= 32 ? 4 : kTokens * kRowTiles <= 64 ? 2 : 1;
    static constexpr bool kFolds = kTokens <= kMaxFoldedTokens;
    using Epilogue = DecodeEpilogue<Element, kRowTiles, kValues, kFolds>;
    static constexpr int kPartialVectors = kRowTiles * kTokens / 8 * kConsumerThreads;

    __device__ __forceinline__ void compute(const Segment& segment, int units_before) {
#pragma unroll
        for (auto& tile : sums_) {
#pragma unroll
            for (auto& set : tile) {
#pragma unroll
                for (float& value : set) value = 0.0f;
            }
        }
        pin_sums();
        ptx::wgmma_fence();

        const bool shared_block = segment.head != segment.last;
        const bool in_cluster = shared_block && p_.line.split() > 1;
        const bool head = shared_block && segment.head == place_.worker;
        Epilogue epilogue(p_.epilogue, place_.block(p_, segment.block), 0);
        if (kLoadEarly && (!shared_block || head || in_cluster)) epilogue.load();

        // The partial sum of the only other worker may be ready before this one's own products.
        int partial = head && !in_cluster ? segment.head + 1 : segment.last + 1;
        int k = segment.k_begin;
        if (partial == segment.last) {
            const int at =
                add_position(p_.line.k_atoms() - segment.k_end, units_before, kPublishUnits);
            const int stop = k + (at + kXAtoms - 1) / kXAtoms * kXAtoms;
            if (stop < segment.k_end) {
                multiply(k, stop, segment.k_end);
                finish_products();
                add_partial(partial++);
                pin_sums();
                ptx::wgmma_fence();
                k = stop;
            }
        }
        multiply(k, segment.k_end, segment.k_end);
        finish_products();
        release_slots();
        combine_sets();
        if (shared_block && !head && !in_cluster) {
            publish_partial();
            return;
        }
        if (in_cluster && !reduce_in_cluster(segment.block)) return;
#pragma unroll 1
        for (; partial <= segment.last; ++partial) {
            if (p_.line.begin(partial) < p_.line.begin(partial + 1)) add_partial(partial);
        }
        store(epilogue);
    }

    /// Products of K atoms [k, k_stop); the segment ends at `k_end`.
    __device__ __forceinline__ void multiply(int k, int k_stop, int k_end) {
        for (; k < k_stop; k += kXAtoms) {
            x_.wait();
#pragma unroll
            for (int a = 0; a < kXAtoms; a += kSlotAtoms) {
                if (a > 0 && k + a >= k_end) break;
#pragma unroll
                for (int tile = 0; tile < kRowTiles; ++tile) {
                    weights_.wait();
                    multiply_slot(tile, a);
                    release_slots();
                    if (hands_back_weights_) done_weights_ = weights_.full;
                    weights_.advance(slots_, kSlotBytes);
                }
            }
            if (hands_back_x_) done_x_ = x_.full;
            x_.advance(p_.x_slots, kXAtoms * kXAtomBytes);
        }
    }

    __device__ __forceinline__ void multiply_slot(int tile, int x_atom) {
        const uint64_t a = ptx::operand_of_low(weights_.operand);
        const uint64_t b = ptx::operand_of_low(x_.operand + ((x_atom * kXAtomBytes) >> 4));
        ptx::wgmma_fence();
#pragma unroll
        for (int atom = 0; atom < kSlotAtoms; ++atom) {
#pragma unroll
            for (int k16 = 0; k16 < 4; ++k16) {
                ptx::Wgmma<Element, kTokens>::multiply(sums_[tile][k16 % kSets],
                                                       a + ((atom * kGemmAtomBytes) >> 4) + k16 * 2,
                                                       b + ((atom * kXAtomBytes) >> 4) + k16 * 2);
            }
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
    }

    /// Hands back the slots whose products have completed: all but the newest. An x slot goes back
    /// to every CTA that shares it, a lane each.
    __device__ __forceinline__ void release_slots() {
        if (done_weights_ != kNoSlot) ptx::mbarrier_arrive(done_weights_ + kEmptyOffset);
        if (done_x_ != kNoSlot) {
            if (p_.x_sharers > 1) {
                ptx::mbarrier_arrive_cluster(done_x_ + to_x_empty_);
            } else {
                ptx::mbarrier_arrive(done_x_ + to_x_empty_);
            }
        }
        done_weights_ = kNoSlot;
        done_x_ = kNoSlot;
    }

    __device__ __forceinline__ void finish_products() {
        ptx::wgmma_wait<0>();
        pin_sums();
    }

    __device__ __forceinline__ void pin_sums() {
#pragma unroll
        for (auto& tile : sums_) {
#pragma unroll
            for (auto& set : tile) ptx::pin(set);
        }
    }

    __device__ __forceinline__ void combine_sets() {
#pragma unroll
        for (auto& tile : sums_) {
#pragma unroll
            for (int i = 0; i < kValues; ++i) {
                if (kSets >= 2) tile[0][i] += tile[1 % kSets][i];
                if (kSets == 4) tile[0][i] += tile[2 % kSets][i] + tile[3 % kSets][i];
            }
        }
    }

    /// Partial sum and flag of the CTA that computes this CTA's block at `worker`.
    __device__ __forceinline__ int cta_of(int worker) const {
        return worker * p_.x_sharers + place_.rank;
    }
    __device__ __forceinline__ float4* partial(int worker) const {
        return p_.scratch.partials + int64_t{cta_of(worker)} * kPartialVectors + threadIdx.x;
    }

    __device__ __forceinline__ void add_partial(int worker) {
        ptx::wait_flag(p_.scratch.flags + cta_of(worker));
        const float4* from = partial(worker);
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
            for (int g = 0; g < kTokens / 8; ++g) {
                const float4 v = __ldcg(from + (tile * kTokens / 8 + g) * kConsumerThreads);
                float* sum = &sums_[tile][0][g * 4];
                sum[0] += v.x;
                sum[1] += v.y;
                sum[2] += v.z;
                sum[3] += v.w;
            }
        }
        ptx::barrier_sync(1, kConsumerThreads);
        if (threadIdx.x == 0) p_.scratch.flags[cta_of(worker)] = 0;
    }

    __device__ __forceinline__ void publish_partial() {
        float4* to = partial(place_.worker);
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
            for (int g = 0; g < kTokens / 8; ++g) {
                const float* sum = &sums_[tile][0][g * 4];
                __stcg(to + (tile * kTokens / 8 + g) * kConsumerThreads,
                       make_float4(sum[0], sum[1], sum[2], sum[3]));
            }
        }
        __threadfence();
        ptx::barrier_sync(1, kConsumerThreads);
        if (threadIdx.x == 0) ptx::store_release(p_.scratch.flags + cta_of(place_.worker), 1);
    }

    /// The CTAs of a cluster hold partial sums of one block: each adds up a share of the token
    /// groups, whose sums the others push into its shared memory, and stores them; a single group
    /// is left to be stored, with true. Its own sums go there too, so that the code that stores a
    /// group exists once.
    __device__ __forceinline__ bool reduce_in_cluster(int block) {
        constexpr uint32_t kVectorBytes = kConsumerThreads * 16;
        constexpr uint32_t kGroupBytes = kRowTiles * kVectorBytes;
        const int split = p_.line.split();
        const auto rank = static_cast<int>(ptx::cluster_rank());
        const uint32_t mine = shared_.exchange + threadIdx.x * 16;
        ptx::cluster_wait();  // the others' barriers exist
#pragma unroll 1
        for (int to = 0; to < split; ++to) {
            const DecodeShare share(kGroups, p_.line, to);
            const uint32_t barrier = ptx::map_to_rank(shared_.exchange_full, to);
            uint32_t at = ptx::map_to_rank(mine, to) + rank * share.groups() * kGroupBytes;
#pragma unroll
            for (int g = 0; g < kGroups; ++g) {
                if (g < share.begin || g >= share.end) continue;
#pragma unroll
                for (int tile = 0; tile < kRowTiles; ++tile) {
                    const float* sum = &sums_[tile][0][g * 4];
                    ptx::store_async(at, make_float4(sum[0], sum[1], sum[2], sum[3]), barrier);
                    at += kVectorBytes;
                }
            }
        }
        const DecodeShare own(kGroups, p_.line, rank);
        wait_for_norm();
        if (own.groups() > 0) ptx::mbarrier_wait(shared_.exchange_full, 0);
#pragma unroll 1
        for (int g = 0; g < own.groups(); ++g) {
            float values[kRowTiles][4] = {};
#pragma unroll 1
            for (int from = 0; from < split; ++from) {
#pragma unroll
                for (int tile = 0; tile < kRowTiles; ++tile) {
                    const float4 v = ptx::load_shared(
                        mine + (from * own.groups() + g) * kGroupBytes + tile * kVectorBytes);
                    values[tile][0] += v.x;
                    values[tile][1] += v.y;
                    values[tile][2] += v.z;
                    values[tile][3] += v.w;
                }
            }
            if constexpr (kGroups == 1) {
#pragma unroll
                for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) sums_[tile][0][i] = values[tile][i];
                }
            } else {
                DecodeEpilogue<Element, kRowTiles, 4, kFolds> of_group(
                    p_.epilogue, place_.block(p_, block), (own.begin + g) * 8);
                of_group.load();
                of_group.finish(values, shared_.norm);
            }
        }
        return kGroups == 1 && own.groups() > 0;
    }

    __device__ __forceinline__ void store(Epilogue& epilogue) {
        if (!kLoadEarly) epilogue.load();
        float values[kRowTiles][kValues];
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
            for (int i = 0; i < kValues; ++i) values[tile][i] = sums_[tile][0][i];
        }
        wait_for_norm();
        epilogue.finish(values, shared_.norm);
    }

    __device__ __forceinline__ void wait_for_norm() const {
        if (kFolds && p_.epilogue.norm_before.moments != nullptr) {
            ptx::mbarrier_wait(shared_.norm_full, 0);
        }
    }

    static constexpr uint32_t kNoSlot = 0;
    static constexpr uint32_t kEmptyOffset = 8 * kMaxSlots;  // from a slot's full barrier

    const DecodeParams& p_;
    const DecodeShared& shared_;
    const DecodePlace place_;
    const uint32_t slots_;
    RingReader weights_, x_;
    bool hands_back_weights_, hands_back_x_;
    uint32_t to_x_empty_ = kEmptyOffset;                  // from an x slot's full barrier
    uint32_t done_weights_ = kNoSlot, done_x_ = kNoSlot;  // full barriers of slots to hand back
    float sums_[kRowTiles][kSets][kValues];
};

template <typename Element, int kTokens, int kRowTiles>
__global__ void __launch_bounds__(kDecodeThreads, kTokens* kRowTiles < 64 ? 2 : 1)
    split_gemm_decode(const __grid_constant__ CUtensorMap x_map,
                      const __grid_constant__ DecodeParams p) {
    extern __shared__ __align__(1024) uint8_t ring[];
    __shared__ __align__(8) uint64_t barriers[DecodeShared::kBarriers];
    __shared__ NormShared norm;
    const DecodeShared shared(ring, barriers, norm, p.weight_slots,
                              p.x_slots * decode_x_atoms(kTokens) * kTokens * 128);
    const DecodePlace place(p);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;

    if (warp == 4) {
        stream_weights<kRowTiles>(p, shared, place, lane);
    } else if (warp == 5) {
        if (lane < p.x_slots) {
            ptx::mbarrier_init(shared.x_full + 8 * lane, 1);
            ptx::mbarrier_init(shared.x_empty + 8 * lane, kConsumerThreads / 32 * p.x_sharers);
        }
        if (lane == 0 && p.line.split() > 1) {
            const DecodeShare own(kTokens / 8, p.line, static_cast<int>(ptx::cluster_rank()));
            ptx::mbarrier_init(shared.exchange_full, 1);
            ptx::fence_mbarrier_init();
            ptx::mbarrier_arrive_expect(
                shared.exchange_full,
                p.line.split() * own.groups() * kRowTiles * kConsumerThreads * 16);
        }
        ptx::fence_mbarrier_init();
        __syncwarp();
        meet(p, false);
        if (lane == 0) {
            ptx::prefetch_tensor_map(x_map);
            stream_x<kTokens>(p, x_map, shared, place);
        }
    } else if (warp == 6) {
        if (lane == 0) ptx::mbarrier_init(shared.norm_full, 1);
        ptx::fence_mbarrier_init();
        __syncwarp();
        meet(p, false);
        if (kTokens <= kMaxFoldedTokens && p.epilogue.norm_before.moments != nullptr) {
            ptx::grid_wait();
            prepare_corrections(p.epilogue.norm_before, p.epilogue.tokens, norm.corrections, lane);
            __syncwarp();
            if (lane == 0) ptx::mbarrier_arrive(shared.norm_full);
        }
    } else {
        meet(p, true);
        DecodeConsumer<Element, kTokens, kRowTiles>(p, shared, place).run();
    }
    // No CTA may exit while another still copies into it or hands back its slots.
    if (p.x_sharers > 1) {
        __syncwarp();
        ptx::cluster_sync();
    }
}

}  // namespace dak::cuda
