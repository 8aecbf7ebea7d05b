#pragma once

#include "ops/cuda/ptx.cuh"
#include "ops/cuda/ring.cuh"
#include "ops/cuda/split_attention/params.h"

// What a CTA of the decode kernel has to do, and the shared memory in which its warps meet.

namespace dak::cuda {

// ---- the work of a CTA ------------------------------------------------------------------------

/// A range of pages, without its entries.
struct alignas(16) WorkHeader {
    int sequence, kv_head, page, count, sequence_pages, index, local_ctas, small;

    static __device__ __forceinline__ WorkHeader load(const WorkRange* work) {
        const int4 a = __ldcg(reinterpret_cast<const int4*>(work));
        const int4 b = __ldcg(reinterpret_cast<const int4*>(work) + 1);
        return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    }
    __device__ __forceinline__ bool remote() const { return local_ctas == 0; }
};

/// Addresses of everything in shared memory.
struct DecodeAttentionShared {
    uint32_t ring, queries, results;
    uint32_t full, empty, query_full, query_empty, result_full, result_empty, range_full;
    volatile uint32_t* marks;  ///< [slots] what the page in a K slot is (see page_mark)
    /// [kRangeSlots] ranges after the first. They need no barriers of empty slots: no warp lags as
    /// many ranges behind the one that streams pages, because these are longer than the ring.
    WorkHeader* ranges;

    static constexpr int kBarriers =
        2 * kMaxDecodeSlots + 2 * kMaxQuerySlots + 2 * kMaxResultSlots + kRangeSlots;

    template <int kHeadDim>
    static __device__ __forceinline__ DecodeAttentionShared of(const DecodeAttentionParams& p,
                                                               void* memory, void* barriers,
                                                               uint32_t* marks,
                                                               WorkHeader* ranges) {
        DecodeAttentionShared s;
        s.ring = ptx::shared_address(memory);
        s.queries = s.ring + p.slots * kv_block_bytes(kHeadDim);
        s.results = s.queries + p.query_slots * query_slot_bytes(kHeadDim, p.head_group);
        s.full = ptx::shared_address(barriers);
        s.empty = s.full + 8 * kMaxDecodeSlots;
        s.query_full = s.empty + 8 * kMaxDecodeSlots;
        s.query_empty = s.query_full + 8 * kMaxQuerySlots;
        s.result_full = s.query_empty + 8 * kMaxQuerySlots;
        s.result_empty = s.result_full + 8 * kMaxResultSlots;
        s.range_full = s.result_empty + 8 * kMaxResultSlots;
        s.marks = marks;
        s.ranges = ranges;
        return s;
    }
};

/// The ranges of a CTA, one after the other, for all warps but the one that takes them.
class TakenRanges {
  public:
    __device__ __forceinline__ TakenRanges(const DecodeAttentionShared& shared) : shared_(shared) {}

    /// Replaces `work` by the next range; false when there is none.
    __device__ __forceinline__ bool next(WorkHeader& work) {
        if (work.small == 0) return false;
        ptx::mbarrier_wait(shared_.range_full + 8 * ring_.slot, ring_.parity);
        work = shared_.ranges[ring_.slot];
        ring_.advance(kRangeSlots);
        return work.count > 0;
    }

  private:
    const DecodeAttentionShared& shared_;
    RingSlot ring_;
};

/// Walks a range page by page or segment by segment.
struct PageWalk {
    const int32_t* counts;  ///< of the tier
    int sequences, kv_heads;
    int sequence, kv_head, page, left, sequence_pages;

    __device__ __forceinline__ PageWalk(const DecodeAttentionParams& p, const WorkHeader& work)
        : counts(p.list.counts + (work.remote() ? p.sequences : 0)),
          sequences(p.sequences),
          kv_heads(p.kv_heads),
          sequence(work.sequence),
          kv_head(work.kv_head),
          page(work.page),
          left(work.count),
          sequence_pages(work.sequence_pages) {}

    __device__ __forceinline__ int segment_pages() const {
        return smaller(sequence_pages - page, left);
    }
    __device__ __forceinline__ void next_segment() {
        left -= segment_pages();
        if (left > 0) next_item();
    }
    __device__ __forceinline__ void next_page() {
        --left;
        if (++page == sequence_pages && left > 0) next_item();
    }

  private:
    __device__ __forceinline__ void next_item() {
        page = 0;
        if (++kv_head < kv_heads) return;
        kv_head = 0;
        do {
            sequence_pages = __ldcg(counts + ++sequence);
        } while (sequence_pages == 0);
    }
};

// A page's mark: tokens [begin, end) of it, and whether it is the first or last of a segment.
inline constexpr uint32_t kFirstOfSegment = 1u << 16;
inline constexpr uint32_t kLastOfSegment = 1u << 17;

__device__ __forceinline__ uint32_t page_mark(uint32_t begin, uint32_t end, bool first, bool last) {
    return begin | end << 8 | (first ? kFirstOfSegment : 0) | (last ? kLastOfSegment : 0);
}

}  // namespace dak::cuda
