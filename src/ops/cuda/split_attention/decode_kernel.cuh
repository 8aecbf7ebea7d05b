#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/mma.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_attention/decode_consumer.cuh"
#include "ops/cuda/split_attention/decode_results.cuh"
#include "ops/cuda/split_attention/decode_work.cuh"
#include "ops/cuda/split_attention/kv_block.cuh"
#include "ops/cuda/split_attention/params.h"

// One new token of every sequence over its cached keys and values: bound by the bytes of K and V.
//
// Work       An item is a (sequence, KV head); its query heads are the columns of all products, so
//            that a byte of K or V is read once. Each tier's pages, in item order, are cut into
//            ranges, one for each CTA of the tier (remote ones first) and, in long runs, small ones
//            that CTAs take when they are done: see plan_kernel.cu. A range's part of an item is a
//            segment.
// Grid       all CTAs resident at once.
// Block      4 consumer warps (16 tokens of every page each: S^T = K Q^T, O^T = V^T P^T with K and
//            V as the 16-row operand), a warp that streams pages, one that loads queries, 1 or 2
//            for the results.
// Shared     ring of K or V blocks, slots of queries, slots of results (one of each consumer warp).
// Barriers   full/empty pair per slot of each; named barrier 1 the set-up.
// Bytes      every K and V byte once, from its tier.
//
// An item in several segments is summed without atomics and always in the same order. Parts travel
// through slots in L2 that hold all ones (a NaN that no arithmetic yields) between uses: the data
// is its own flag. An item of one tier is summed by the CTA of its first segment, which gathers the
// other parts while its own pages are still in flight: they are the first segments of ranges that
// were taken before, because ranges are taken from the last to the first. Items with parts in both
// tiers are summed at the end, by all warps of the local CTAs, because remote parts come late.
//
// Only a sequence's newest token depends on the preceding kernel, which appends it: all others
// stream before that has finished, until the ring is full.

namespace dak::cuda {

__device__ __forceinline__ uint2 load_first_entries(const WorkRange* work, int lane) {
    return __ldcg(reinterpret_cast<const uint2*>(work->first) + lane % 8);
}

/// The warp that takes ranges and streams their pages.
template <int kHeadDim>
class PageStream {
  public:
    /// Lane i's `entry` is that of the i-th page of `work` (of the first 8).
    __device__ __forceinline__ PageStream(const DecodeAttentionParams& p,
                                          const DecodeAttentionShared& shared,
                                          const WorkHeader& work, uint2 entry, int lane)
        : p_(p),
          shared_(shared),
          lane_(lane),
          slots_(work.remote() ? p.remote_slots : p.slots),
          pages_(work.remote() ? p.remote : p.local),
          tables_(p.list.entries +
                  (work.remote() ? int64_t{p.sequences} * p.list.entry_stride : int64_t{0})),
          policy_(ptx::policy_evict_first()),
          work_(work),
          entry_(entry),
          waiting_(p.programmatic) {}

    __device__ __forceinline__ void run() {
        RingSlot ranges;
        while (load_range()) {
            if (lane_ == 0) {
                shared_.ranges[ranges.slot] = work_;
                ptx::mbarrier_arrive(shared_.range_full + 8 * ranges.slot);
            }
            ranges.advance(kRangeSlots);
        }
        if (waiting_) load_pending();
    }

  private:
    static constexpr uint32_t kBlock = kv_block_bytes(kHeadDim);

    /// Loads the range's pages, then makes `work_` the next one, with no pages when there is none;
    /// false when it was known to be the last.
    __device__ __forceinline__ bool load_range() {
        uint32_t taken = 0;
        WorkHeader next{};
        uint2 next_entry{};
        // Lanes hold entries [window, window_end) of the table of `table`.
        int table = work_.sequence, window = work_.page, window_end = work_.page + 8;
        PageWalk walk(p_, work_);
        for (int i = 0; i < work_.count; ++i, walk.next_page()) {
            if (work_.small > 0) {
                if (i == larger(0, work_.count - kAhead)) taken = take();
                if (i == work_.count - 1) {
                    taken = __shfl_sync(~0u, taken, 0);
                    if (taken < work_.small) {
                        const WorkRange* range = p_.list.ranges + gridDim.x + taken;
                        next = WorkHeader::load(range);
                        next_entry = load_first_entries(range, lane_);
                    }
                }
            }
            if (walk.sequence != table || walk.page < window || walk.page >= window_end) {
                table = walk.sequence;
                window = walk.page;
                window_end = window + 32;
                if (window + lane_ < walk.sequence_pages) {
                    entry_ = __ldcg(reinterpret_cast<const uint2*>(
                        tables_ + int64_t{table} * p_.list.entry_stride + window + lane_));
                }
            }
            const uint32_t page = __shfl_sync(~0u, entry_.x, walk.page - window);
            const uint32_t tokens = __shfl_sync(~0u, entry_.y, walk.page - window);
            const bool first = i == 0 || walk.page == 0;
            const bool last = i == work_.count - 1 || walk.page == walk.sequence_pages - 1;
            load_page(pages_ + (int64_t{page} * p_.kv_heads + walk.kv_head) * (2 * kBlock), tokens,
                      first, last);
        }
        const bool more = work_.small > 0 && work_.count > 0;
        work_ = next;
        entry_ = next_entry;
        return more;
    }

    /// Pages before the end of a range: an atomic operation's way to L2 and back.
    static constexpr int kAhead = 8;

    __device__ __forceinline__ uint32_t take() {
        if (waiting_) load_pending();  // the preceding kernel may still take ranges
        // Every local CTA fails once: then the counter is back at zero.
        return lane_ == 0 ? atomicInc(p_.taken, work_.small + work_.local_ctas - 1) : 0;
    }

    __device__ __forceinline__ void load_page(const uint8_t* k, uint32_t tokens, bool first,
                                              bool last) {
        const uint32_t begin = tokens & 0xff, end = tokens >> 8 & 0xff;
        const bool newest = (tokens >> 16 & 0xff) != 0;
        for (int half = 0; half < 2; ++half) {
            // No slot is emptied before there are queries, which wait for the same kernel.
            if (waiting_ && ring_.parity == 1) load_pending();
            const uint8_t* const from = k + half * kBlock;
            const bool partly = newest && waiting_;
            if (partly && lane_ == static_cast<int>(ring_.slot)) {
                pending_ = from;
                newest_token_ = end - 1;
            }
            if (lane_ == 0) {
                const uint32_t full = shared_.full + 8 * ring_.slot;
                ptx::mbarrier_wait(shared_.empty + 8 * ring_.slot, ring_.parity ^ 1);
                if (half == 0) shared_.marks[ring_.slot] = page_mark(begin, end, first, last);
                ptx::mbarrier_arrive_expect(full, (end - begin) * kHeadDim * 2);
                load_block<kHeadDim>(shared_.ring + ring_.slot * kBlock, from, begin, end - partly,
                                     full, policy_);
            }
            ring_.advance(slots_);
        }
    }

    /// Loads the newest tokens, which the preceding kernel appends.
    __device__ __forceinline__ void load_pending() {
        ptx::grid_wait();
        waiting_ = false;
        if (pending_ == nullptr) return;
        load_block<kHeadDim>(shared_.ring + lane_ * kBlock, pending_, newest_token_,
                             newest_token_ + 1, shared_.full + 8 * lane_, policy_);
    }

    const DecodeAttentionParams& p_;
    const DecodeAttentionShared& shared_;
    const int lane_;
    const uint32_t slots_;
    const uint8_t* const pages_;
    const PageEntry* const tables_;
    const uint64_t policy_;
    WorkHeader work_;
    uint2 entry_;
    RingSlot ring_;
    // Blocks that wait for their newest token: lane i has that of slot i.
    bool waiting_;
    const uint8_t* pending_ = nullptr;
    uint32_t newest_token_ = 0;
};

/// The warp that loads each segment's queries.
template <int kHeadDim>
__device__ __forceinline__ void load_queries(const DecodeAttentionParams& p,
                                             const DecodeAttentionShared& shared, WorkHeader work,
                                             int lane) {
    constexpr int kChunks = kHeadDim / 8;
    const uint32_t slot_bytes = query_slot_bytes(kHeadDim, p.head_group);
    RingSlot ring;
    ptx::grid_wait();
    TakenRanges ranges(shared);
    do {
        for (PageWalk walk(p, work); walk.left > 0; walk.next_segment()) {
            ptx::mbarrier_wait(shared.query_empty + 8 * ring.slot, ring.parity ^ 1);
            const uint32_t to = shared.queries + ring.slot * slot_bytes;
            const auto* from =
                static_cast<const uint8_t*>(p.q) +
                (walk.sequence * p.ldq + int64_t{walk.kv_head} * p.head_group * kHeadDim) * 2;
            for (int i = lane; i < p.head_group * kChunks; i += 32) {
                ptx::copy_async(to + i / kChunks * query_row_bytes(kHeadDim) + i % kChunks * 16,
                                from + i * 16);
            }
            ptx::copy_async_arrive(shared.query_full + 8 * ring.slot);
            ring.advance(p.query_slots);
        }
    } while (ranges.next(work));
    ptx::copy_async_wait_all();
}

template <typename Element, int kHeadDim, int kRows>
__global__ void __launch_bounds__(decode_threads(kRows), decode_ctas_per_sm(kHeadDim, kRows))
    decode_attention(const __grid_constant__ DecodeAttentionParams p) {
    constexpr int kThreads = decode_threads(kRows);
    constexpr int kEpilogueWarps = decode_epilogue_warps(kRows);
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ __align__(8) uint64_t barriers[DecodeAttentionShared::kBarriers];
    __shared__ uint32_t marks[kMaxDecodeSlots];
    __shared__ WorkHeader ranges[kRangeSlots];
    const auto shared = DecodeAttentionShared::of<kHeadDim>(p, memory, barriers, marks, ranges);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const WorkRange* const source = p.list.ranges + blockIdx.x;
    const WorkHeader work = WorkHeader::load(source);
    // Loaded with the header: a second trip to L2 would delay the first page.
    const uint2 entry = load_first_entries(source, lane);

    if (warp == kConsumerWarps) {
        if (lane < kMaxDecodeSlots) {
            ptx::mbarrier_init(shared.full + 8 * lane, 1);
            ptx::mbarrier_init(shared.empty + 8 * lane, kConsumerWarps);
        } else if (lane < kMaxDecodeSlots + kRangeSlots) {
            ptx::mbarrier_init(shared.range_full + 8 * (lane - kMaxDecodeSlots), 1);
        }
        ptx::fence_mbarrier_init();
        __syncwarp();
        // At once: while every SM has one CTA of this kernel, each gets one of the next. Later, SMs
        // that are done would get two and others none.
        ptx::grid_launch_dependents();
        ptx::barrier_arrive(1, kThreads);
        PageStream<kHeadDim>(p, shared, work, entry, lane).run();
        return;
    }
    if (warp == kConsumerWarps + 1) {
        if (lane < kMaxQuerySlots) {
            ptx::mbarrier_init(shared.query_full + 8 * lane, 32);
            ptx::mbarrier_init(shared.query_empty + 8 * lane, kConsumerWarps);
        } else if (lane < kMaxQuerySlots + kMaxResultSlots) {
            const int i = lane - kMaxQuerySlots;
            ptx::mbarrier_init(shared.result_full + 8 * i, kConsumerWarps);
            ptx::mbarrier_init(shared.result_empty + 8 * i, kEpilogueWarps);
        }
        ptx::fence_mbarrier_init();
        __syncwarp();
        ptx::barrier_arrive(1, kThreads);
        load_queries<kHeadDim>(p, shared, work, lane);
        return;
    }
    const bool mixed = __ldcg(&p.list.totals->mixed) > 0;
    ptx::barrier_sync(1, kThreads);
    const bool consumer = warp < kConsumerWarps;
    const int epilogue = warp - kConsumerWarps - 2;
    if (consumer) {
        AttentionConsumer<Element, kHeadDim, kRows>(p, shared, work, warp, lane).run();
    } else {
        store_results<Element, kHeadDim, kRows>(p, shared, work, epilogue, lane);
    }
    if (!work.remote() && mixed) {
        ptx::grid_wait();
        store_mixed<Element, kHeadDim, kRows>(p, consumer ? kEpilogueWarps + warp : epilogue,
                                              kEpilogueWarps + kConsumerWarps, lane);
    }
}

}  // namespace dak::cuda
