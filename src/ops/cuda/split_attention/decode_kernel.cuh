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
//            ranges of about the same length, one for each CTA of the tier (remote ones first): see
//            plan_kernel.cu. A CTA's part of an item is a segment.
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
// other parts while its own pages are still in flight. Items with parts in both tiers are summed at
// the end, by all warps of the local CTAs, because remote parts come late.
//
// Only a sequence's newest token depends on the preceding kernel, which appends it: all others
// stream before that has finished, until the ring is full.

namespace dak::cuda {

/// The warp that streams pages; lane i's `entry` is that of the i-th page (of the first 8).
template <int kHeadDim>
__device__ __forceinline__ void stream_pages(const DecodeAttentionParams& p,
                                             const DecodeAttentionShared& shared,
                                             const WorkHeader& work, uint2 entry, int lane) {
    constexpr uint32_t kBlock = kv_block_bytes(kHeadDim);
    const uint32_t slots = work.remote ? p.remote_slots : p.slots;
    const uint8_t* const base = work.remote ? p.remote : p.local;
    const uint64_t policy = ptx::policy_evict_first();
    const PageEntry* const tables =
        p.list.entries + (work.remote ? int64_t{p.sequences} * p.list.entry_stride : int64_t{0});

    // Lanes hold entries [window, window_end) of the table of `table`.
    int table = work.sequence, window = work.page, window_end = work.page + 8;
    PageWalk walk(p, work);
    RingSlot ring;
    // Blocks that wait for their newest token: lane i has that of slot i.
    const uint8_t* pending = nullptr;
    uint32_t newest_token = 0;
    bool waiting = p.programmatic;
    const auto load_pending = [&] {
        ptx::grid_wait();
        waiting = false;
        if (pending == nullptr) return;
        load_block<kHeadDim>(shared.ring + lane * kBlock, pending, newest_token, newest_token + 1,
                             shared.full + 8 * lane, policy);
    };
    for (int i = 0; i < work.count; ++i, walk.next_page()) {
        if (walk.sequence != table || walk.page < window || walk.page >= window_end) {
            table = walk.sequence;
            window = walk.page;
            window_end = window + 32;
            if (window + lane < walk.sequence_pages) {
                entry = __ldcg(reinterpret_cast<const uint2*>(
                    tables + int64_t{table} * p.list.entry_stride + window + lane));
            }
        }
        const uint32_t page = __shfl_sync(~0u, entry.x, walk.page - window);
        const uint32_t tokens = __shfl_sync(~0u, entry.y, walk.page - window);
        const uint32_t begin = tokens & 0xff, end = tokens >> 8 & 0xff;
        const bool newest = (tokens >> 16 & 0xff) != 0;
        const uint8_t* k = base + (int64_t{page} * p.kv_heads + walk.kv_head) * (2 * kBlock);
        const bool first = i == 0 || walk.page == 0;
        const bool last = i == work.count - 1 || walk.page == walk.sequence_pages - 1;
        for (int half = 0; half < 2; ++half) {
            // No slot is emptied before there are queries, which wait for the same kernel.
            if (waiting && ring.parity == 1) load_pending();
            const uint8_t* const from = k + half * kBlock;
            const bool partly = newest && waiting;
            if (partly && lane == static_cast<int>(ring.slot)) {
                pending = from;
                newest_token = end - 1;
            }
            if (lane == 0) {
                const uint32_t full = shared.full + 8 * ring.slot;
                ptx::mbarrier_wait(shared.empty + 8 * ring.slot, ring.parity ^ 1);
                if (half == 0) shared.marks[ring.slot] = page_mark(begin, end, first, last);
                ptx::mbarrier_arrive_expect(full, (end - begin) * kHeadDim * 2);
                load_block<kHeadDim>(shared.ring + ring.slot * kBlock, from, begin, end - partly,
                                     full, policy);
            }
            ring.advance(slots);
        }
    }
    if (waiting) load_pending();
}

/// The warp that loads each segment's queries.
template <int kHeadDim>
__device__ __forceinline__ void load_queries(const DecodeAttentionParams& p,
                                             const DecodeAttentionShared& shared,
                                             const WorkHeader& work, int lane) {
    constexpr int kChunks = kHeadDim / 8;
    const uint32_t slot_bytes = query_slot_bytes(kHeadDim, p.head_group);
    RingSlot ring;
    ptx::grid_wait();
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
    const auto shared = DecodeAttentionShared::of<kHeadDim>(p, memory, barriers, marks);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const CtaWork* const source = p.list.ctas + blockIdx.x;
    const WorkHeader work = WorkHeader::load(source);
    // Loaded with the header: a second trip to L2 would delay the first page.
    const uint2 entry = __ldcg(reinterpret_cast<const uint2*>(source->first) + lane % 8);

    if (warp == kConsumerWarps) {
        if (lane < kMaxDecodeSlots) {
            ptx::mbarrier_init(shared.full + 8 * lane, 1);
            ptx::mbarrier_init(shared.empty + 8 * lane, kConsumerWarps);
        }
        ptx::fence_mbarrier_init();
        __syncwarp();
        // At once: while every SM has one CTA of this kernel, each gets one of the next. Later, SMs
        // that are done would get two and others none.
        ptx::grid_launch_dependents();
        ptx::barrier_arrive(1, kThreads);
        stream_pages<kHeadDim>(p, shared, work, entry, lane);
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
    const WorkTotals totals = load_totals(p.list.totals);
    ptx::barrier_sync(1, kThreads);
    const bool consumer = warp < kConsumerWarps;
    const int epilogue = warp - kConsumerWarps - 2;
    if (consumer) {
        AttentionConsumer<Element, kHeadDim, kRows>(p, shared, work, warp, lane).run();
    } else {
        store_results<Element, kHeadDim, kRows>(p, shared, work, totals, epilogue, lane);
    }
    const int local_cta = static_cast<int>(blockIdx.x) - totals.remote_ctas;
    if (local_cta >= 0 && local_cta < totals.local_ctas && totals.mixed > 0) {
        ptx::grid_wait();
        store_mixed<Element, kHeadDim, kRows>(p, totals,
                                              consumer ? kEpilogueWarps + warp : epilogue,
                                              kEpilogueWarps + kConsumerWarps, lane);
    }
}

}  // namespace dak::cuda
