#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/mma.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_attention/kv_block.cuh"
#include "ops/cuda/split_attention/params.h"

// One new token of every sequence over its cached keys and values: bound by the bytes of K and V.
//
// Work       An item is a (sequence, KV head); its query heads are the columns of all products, so
//            that a byte of K or V is read once. Each tier's pages, in item order, are cut into
//            equal ranges, one for each CTA of the tier (remote ones first): see plan_kernel.cu. A
//            CTA's part of an item is a segment.
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
// Pages depend on the preceding kernel only where that appends this step's tokens: all others
// stream before it has finished.

namespace dak::cuda {

struct RingSlot {
    uint32_t slot = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ void advance(uint32_t slots) {
        if (++slot == slots) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/// Addresses of everything in shared memory.
struct DecodeAttentionShared {
    uint32_t ring, queries, results;
    uint32_t full, empty, query_full, query_empty, result_full, result_empty;
    volatile uint32_t* marks;  ///< [slots] what the page in a K slot is (see page_mark)

    static constexpr int kBarriers = 2 * kMaxDecodeSlots + 2 * kMaxQuerySlots + 2 * kMaxResultSlots;

    template <int kHeadDim>
    static __device__ __forceinline__ DecodeAttentionShared of(const DecodeAttentionParams& p,
                                                               void* memory, void* barriers,
                                                               uint32_t* marks) {
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
        s.marks = marks;
        return s;
    }
};

// ---- the work of a CTA ------------------------------------------------------------------------

struct WorkHeader {
    int sequence, kv_head, page, count, sequence_pages;
    bool remote;

    static __device__ __forceinline__ WorkHeader load(const CtaWork* work) {
        const int4 a = __ldcg(reinterpret_cast<const int4*>(work));
        const int2 b = __ldcg(reinterpret_cast<const int2*>(work) + 2);
        return {a.x, a.y, a.z, a.w, b.x, b.y != 0};
    }
};

/// Walks a CTA's range page by page or segment by segment.
struct PageWalk {
    const int32_t* counts;  ///< of the tier
    int sequences, kv_heads;
    int sequence, kv_head, page, left, sequence_pages;

    __device__ __forceinline__ PageWalk(const DecodeAttentionParams& p, const WorkHeader& work)
        : counts(p.list.counts + (work.remote ? p.sequences : 0)),
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
    bool waited = false;
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
        if (newest && !waited) {
            ptx::grid_wait();
            waited = true;
        }
        if (lane != 0) continue;
        const uint8_t* k = base + (int64_t{page} * p.kv_heads + walk.kv_head) * (2 * kBlock);
        const bool first = i == 0 || walk.page == 0;
        const bool last = i == work.count - 1 || walk.page == walk.sequence_pages - 1;
        for (int half = 0; half < 2; ++half) {
            const uint32_t full = shared.full + 8 * ring.slot;
            ptx::mbarrier_wait(shared.empty + 8 * ring.slot, ring.parity ^ 1);
            if (half == 0) shared.marks[ring.slot] = page_mark(begin, end, first, last);
            ptx::mbarrier_arrive_expect(full, (end - begin) * kHeadDim * 2);
            load_block<kHeadDim>(shared.ring + ring.slot * kBlock, k + half * kBlock, begin, end,
                                 full, policy);
            ring.advance(slots);
        }
    }
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

// ---- consumers --------------------------------------------------------------------------------

template <typename Element, int kHeadDim, int kRows>
class AttentionConsumer {
  public:
    __device__ __forceinline__ AttentionConsumer(const DecodeAttentionParams& p,
                                                 const DecodeAttentionShared& shared,
                                                 const WorkHeader& work, int warp, int lane)
        : p_(p),
          shared_(shared),
          slots_(work.remote ? p.remote_slots : p.slots),
          count_(work.count),
          warp_(warp),
          lane_(lane),
          k_offsets_(16 * warp + lane % 16, lane / 16),
          v_offsets_(16 * warp + lane % 8 + lane / 16 * 8, lane / 8 % 2) {}

    __device__ __forceinline__ void run() {
        for (int i = 0; i < count_; ++i) {
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

  private:
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
    const int count_;
    const int warp_, lane_;
    const LaneOffsets<kHeadDim> k_offsets_, v_offsets_;
    RingSlot ring_, queries_, results_;
    uint32_t held_[kHoldQueries ? kSteps : 1][kColumnTiles][2];
    // O^T, column tile by column tile: rows 16k + lane/4 (+8), columns 2(lane%4) + {0, 1}.
    float sums_[kSteps][kColumnTiles][4];
    float max_[kColumnTiles][2];
    float total_[kColumnTiles][2];  // of this lane's tokens
};

// ---- results ----------------------------------------------------------------------------------

/// Sums parts of an item. A warp has the rows share, share + kShares, ...; a lane has columns
/// 4 lane .. 4 lane + 3 (and 128 further, for head_dim 256).
template <typename Element, int kHeadDim, int kRows>
class PartSum {
  public:
    static constexpr int kShares = decode_epilogue_warps(kRows);
    static constexpr int kWarpRows = (kRows + kShares - 1) / kShares;
    static constexpr int kVectors = (kHeadDim + 127) / 128;
    static constexpr int kRowFloats = part_row_floats(kHeadDim);

    __device__ __forceinline__ PartSum(const DecodeAttentionParams& p, int share, int lane)
        : p_(p), share_(share), lane_(lane), part_floats_(p.head_group * kRowFloats) {
        clear();
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int r = 0; r < kWarpRows; ++r) {
            max_[r] = -INFINITY;
            total_[r] = 0;
#pragma unroll
            for (int v = 0; v < kVectors; ++v) sums_[r][v] = make_float4(0, 0, 0, 0);
        }
    }

    __device__ __forceinline__ int row(int r) const { return share_ + r * kShares; }
    __device__ __forceinline__ bool has(int r) const { return row(r) < p_.head_group; }
    __device__ __forceinline__ bool has_column(int v) const {
        return v * 128 + lane_ * 4 < kHeadDim;
    }
    __device__ __forceinline__ float* part(int64_t slot) const {
        return p_.parts + slot * part_floats_;
    }

    /// Waits for parts 0 .. count - 1, part j being in slot slot_of(j), adds them and leaves the
    /// slots all ones. With `kPatient`, for parts that may take milliseconds, it polls seldom.
    template <bool kPatient, typename SlotOf>
    __device__ __forceinline__ void gather(SlotOf slot_of, int count) {
        for (int first = 0; first < count; first += 32) {
            const int batch = smaller(32, count - first);
            const float* mine = part(slot_of(first + smaller(lane_, batch - 1)));
            uint2 heads[kWarpRows];
            float weights[kWarpRows];
            // The first sums travel with the heads: a trip to L2 takes longer than all the rest.
            for (int i = 0; i < batch; i += kInFlight) {
                uint4 values[kInFlight][kWarpRows][kVectors];
                wait_until<kPatient>([&] {
                    bool ready = load_values(slot_of, first + i, batch - i, values);
                    if (i == 0) ready = load_heads(mine, heads) && ready;
                    return ready;
                });
                if (i == 0) weigh(heads, batch, weights);
                add(slot_of, first, i, batch, values, weights);
            }
        }
    }

    /// Adds the four consumer warps' parts in shared memory.
    __device__ __forceinline__ void add_results(uint32_t results) {
#pragma unroll
        for (int r = 0; r < kWarpRows; ++r) {
            if (!has(r)) break;
            const uint32_t at = results + row(r) * kRowFloats * 4;
            const uint32_t stride = part_floats_ * 4;
            float2 head[kConsumerWarps];
            float m = max_[r];
#pragma unroll
            for (int w = 0; w < kConsumerWarps; ++w) {
                head[w] = load2(at + w * stride + kHeadDim * 4);
                m = fmaxf(m, head[w].x);
            }
            scale(r, ptx::exp2(max_[r] - m));
            max_[r] = m;
#pragma unroll
            for (int w = 0; w < kConsumerWarps; ++w) {
                const float weight = ptx::exp2(head[w].x - m);
                total_[r] += head[w].y * weight;
#pragma unroll
                for (int v = 0; v < kVectors; ++v) {
                    if (!has_column(v)) continue;
                    add_scaled(sums_[r][v],
                               ptx::load_shared(at + w * stride + (v * 128 + lane_ * 4) * 4),
                               weight);
                }
            }
        }
    }

    __device__ __forceinline__ void store_part(int64_t slot) const {
        float* to = part(slot);
#pragma unroll
        for (int r = 0; r < kWarpRows; ++r) {
            if (!has(r)) break;
            float* at = to + row(r) * kRowFloats;
#pragma unroll
            for (int v = 0; v < kVectors; ++v) {
                if (has_column(v)) ptx::store_relaxed4(at + v * 128 + lane_ * 4, sums_[r][v]);
            }
            if (lane_ == 0) ptx::store_relaxed2(at + kHeadDim, make_float2(max_[r], total_[r]));
        }
    }

    __device__ __forceinline__ void store_output(int sequence, int kv_head) const {
        auto* to = static_cast<Element*>(p_.out) + sequence * p_.ldo +
                   int64_t{kv_head} * p_.head_group * kHeadDim;
#pragma unroll
        for (int r = 0; r < kWarpRows; ++r) {
            if (!has(r)) break;
            const float factor = 1.0f / total_[r];
#pragma unroll
            for (int v = 0; v < kVectors; ++v) {
                if (!has_column(v)) continue;
                const float4& s = sums_[r][v];
                const uint2 packed = {ptx::pack<Element>(s.x * factor, s.y * factor),
                                      ptx::pack<Element>(s.z * factor, s.w * factor)};
                *reinterpret_cast<uint2*>(to + row(r) * kHeadDim + v * 128 + lane_ * 4) = packed;
            }
        }
    }

  private:
    static constexpr uint32_t kEmpty = 0xffffffffu;
    // Parts that a lane loads at once, as registers allow: a trip to L2 takes longer than the sums.
    static constexpr int kVectorsInFlight = kRows == 1 ? 12 : kRows == 4 ? 8 : 4;
    static constexpr int kInFlight = kVectorsInFlight / (kWarpRows * kVectors) > 0
                                         ? kVectorsInFlight / (kWarpRows * kVectors)
                                         : 1;

    static __device__ __forceinline__ float2 load2(uint32_t address) {
        float2 v;
        asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];"
                     : "=f"(v.x), "=f"(v.y)
                     : "r"(address)
                     : "memory");
        return v;
    }

    static __device__ __forceinline__ void add_scaled(float4& to, float4 v, float factor) {
        to.x += v.x * factor;
        to.y += v.y * factor;
        to.z += v.z * factor;
        to.w += v.w * factor;
    }

    __device__ __forceinline__ void scale(int r, float factor) {
        total_[r] *= factor;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
            float4& s = sums_[r][v];
            s = make_float4(s.x * factor, s.y * factor, s.z * factor, s.w * factor);
        }
    }

    /// Largest score and total of a part; false when they are not there yet.
    __device__ __forceinline__ bool load_heads(const float* from, uint2 (&heads)[kWarpRows]) const {
        bool ready = true;
#pragma unroll
        for (int r = 0; r < kWarpRows; ++r) {
            heads[r] = make_uint2(0, 0);
            if (has(r)) heads[r] = ptx::load_relaxed2(from + row(r) * kRowFloats + kHeadDim);
            ready = ready && heads[r].x != kEmpty && heads[r].y != kEmpty;
        }
        return ready;
    }

    /// Sums of up to kInFlight parts from part `first` on; false when not all are there yet.
    template <typename SlotOf>
    __device__ __forceinline__ bool load_values(
        SlotOf slot_of, int first, int count,
        uint4 (&values)[kInFlight][kWarpRows][kVectors]) const {
        bool ready = true;
#pragma unroll
        for (int j = 0; j < kInFlight; ++j) {
            if (j >= count) break;
            const float* from = part(slot_of(first + j));
#pragma unroll
            for (int r = 0; r < kWarpRows; ++r) {
#pragma unroll
                for (int v = 0; v < kVectors; ++v) {
                    values[j][r][v] = make_uint4(0, 0, 0, 0);
                    if (has(r) && has_column(v)) {
                        values[j][r][v] =
                            ptx::load_relaxed4(from + row(r) * kRowFloats + v * 128 + lane_ * 4);
                    }
                }
            }
        }
#pragma unroll
        for (int j = 0; j < kInFlight; ++j) {
            if (j >= count) break;
#pragma unroll
            for (int r = 0; r < kWarpRows; ++r) {
#pragma unroll
                for (int v = 0; v < kVectors; ++v) {
                    const uint4& value = values[j][r][v];
                    ready = ready && value.x != kEmpty && value.y != kEmpty && value.z != kEmpty &&
                            value.w != kEmpty;
                }
            }
        }
        return ready;
    }

    /// Scales the sums so far to the largest score of all, and gives each lane its part's weight.
    __device__ __forceinline__ void weigh(const uint2 (&heads)[kWarpRows], int batch,
                                          float (&weights)[kWarpRows]) {
#pragma unroll
        for (int r = 0; r < kWarpRows; ++r) {
            const bool counts = lane_ < batch && has(r);
            const float mine_max = counts ? __uint_as_float(heads[r].x) : -INFINITY;
            float m = mine_max;
#pragma unroll
            for (int offset = 16; offset > 0; offset /= 2) {
                m = fmaxf(m, __shfl_xor_sync(~0u, m, offset));
            }
            m = has(r) ? fmaxf(m, max_[r]) : 0;
            weights[r] = ptx::exp2(mine_max - m);
            float total = counts ? __uint_as_float(heads[r].y) * weights[r] : 0;
#pragma unroll
            for (int offset = 16; offset > 0; offset /= 2) {
                total += __shfl_xor_sync(~0u, total, offset);
            }
            scale(r, ptx::exp2(max_[r] - m));
            total_[r] += total;
            max_[r] = m;
        }
    }

    /// Adds parts first + i on, and empties their slots.
    template <typename SlotOf>
    __device__ __forceinline__ void add(SlotOf slot_of, int first, int i, int batch,
                                        const uint4 (&values)[kInFlight][kWarpRows][kVectors],
                                        const float (&weights)[kWarpRows]) {
#pragma unroll
        for (int j = 0; j < kInFlight; ++j) {
            if (i + j >= batch) break;
#pragma unroll
            for (int r = 0; r < kWarpRows; ++r) {
                if (!has(r)) break;
                const float weight = __shfl_sync(~0u, weights[r], i + j);
                float* at = part(slot_of(first + i + j)) + row(r) * kRowFloats;
#pragma unroll
                for (int v = 0; v < kVectors; ++v) {
                    if (!has_column(v)) continue;
                    const uint4 u = values[j][r][v];
                    add_scaled(sums_[r][v],
                               make_float4(__uint_as_float(u.x), __uint_as_float(u.y),
                                           __uint_as_float(u.z), __uint_as_float(u.w)),
                               weight);
                    __stcg(reinterpret_cast<uint4*>(at + v * 128 + lane_ * 4),
                           make_uint4(kEmpty, kEmpty, kEmpty, kEmpty));
                }
                if (lane_ == 0) {
                    __stcg(reinterpret_cast<uint2*>(at + kHeadDim), make_uint2(kEmpty, kEmpty));
                }
            }
        }
    }

    /// Repeats `poll` until it is true for all lanes.
    template <bool kPatient, typename Poll>
    static __device__ __forceinline__ void wait_until(Poll poll) {
        if (__all_sync(~0u, poll())) return;
        const ptx::WaitLimit limit;
        while (!__all_sync(~0u, poll())) {
            if (kPatient) __nanosleep(500);
            limit.check();
        }
    }

    const DecodeAttentionParams& p_;
    const int share_, lane_;
    const int part_floats_;
    float4 sums_[kWarpRows][kVectors];
    float max_[kWarpRows];
    float total_[kWarpRows];
};

/// Which CTAs have parts of an item, and where they leave them.
struct ItemParts {
    int local_first = 0, remote_first = 0;  ///< CTA of the item's first part in the tier
    int local_count = 0, remote_count = 0;  ///< CTAs with a part in the tier

    __device__ __forceinline__ ItemParts(const DecodeAttentionParams& p, const WorkTotals& totals,
                                         int sequence, int kv_head) {
        const int32_t* counts = p.list.counts + sequence;
        const int32_t* starts = p.list.starts + sequence;
        const int local_pages = __ldcg(counts);
        const int remote_pages = __ldcg(counts + p.sequences);
        const int local_before = __ldcg(starts);
        const int remote_before = __ldcg(starts + p.sequences + 1);
        if (local_pages > 0) {
            const int start = local_before * p.kv_heads + kv_head * local_pages;
            const int first = local_owner(p, totals, start);
            local_first = totals.remote_ctas + first;
            local_count = local_owner(p, totals, start + local_pages - 1) - first + 1;
        }
        if (remote_pages > 0) {
            const int start = remote_before * p.kv_heads + kv_head * remote_pages;
            remote_first = totals.remote.owner(start);
            remote_count = totals.remote.owner(start + remote_pages - 1) - remote_first + 1;
        }
    }

  private:
    /// The local CTA (counted among those) whose range holds `page` of the list.
    static __device__ __forceinline__ int local_owner(const DecodeAttentionParams& p,
                                                      const WorkTotals& totals, int page) {
        int cta = smaller(totals.local.owner(page), totals.local_ctas - 1);
        while (page < __ldcg(p.list.cuts + cta)) --cta;
        while (page >= __ldcg(p.list.cuts + cta + 1)) ++cta;
        return cta;
    }
};

__device__ __forceinline__ WorkTotals load_totals(const WorkTotals* from) {
    const int4 a = __ldcg(reinterpret_cast<const int4*>(from));
    const int4 b = __ldcg(reinterpret_cast<const int4*>(from) + 1);
    WorkTotals totals;
    totals.local = {a.x, a.y};
    totals.remote = {a.z, a.w};
    totals.local_ctas = b.x;
    totals.remote_ctas = b.y;
    totals.mixed = b.z;
    return totals;
}

/// The slot of the first part of an item in one tier, used when the item is mixed.
__device__ __forceinline__ int64_t item_slot(const DecodeAttentionParams& p, bool remote,
                                             int sequence, int kv_head) {
    return gridDim.x + (int64_t{remote} * p.sequences + sequence) * p.kv_heads + kv_head;
}

/// The warps that turn each segment's four partial results into output or into a part.
template <typename Element, int kHeadDim, int kRows>
__device__ __forceinline__ void store_results(const DecodeAttentionParams& p,
                                              const DecodeAttentionShared& shared,
                                              const WorkHeader& work, const WorkTotals& totals,
                                              int share, int lane) {
    const auto cta = static_cast<int>(blockIdx.x);
    RingSlot ring;
    int sequence = -1, other_pages = 0;
    ptx::grid_wait();
    for (PageWalk walk(p, work); walk.left > 0; walk.next_segment()) {
        if (walk.sequence != sequence) {
            sequence = walk.sequence;
            other_pages = __ldcg(p.list.counts + (work.remote ? 0 : p.sequences) + sequence);
        }
        const bool mixed = other_pages > 0;
        const bool whole = walk.segment_pages() == walk.sequence_pages;
        const bool head = walk.page == 0;
        PartSum<Element, kHeadDim, kRows> sum(p, share, lane);
        if (head && !mixed && !whole) {
            const ItemParts parts(p, totals, sequence, walk.kv_head);
            sum.template gather<false>([&](int j) { return int64_t{cta + 1 + j}; },
                                       parts.local_count + parts.remote_count - 1);
        }
        ptx::mbarrier_wait(shared.result_full + 8 * ring.slot, ring.parity);
        sum.add_results(shared.results + ring.slot * result_slot_bytes(kHeadDim, p.head_group));
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(shared.result_empty + 8 * ring.slot);
        ring.advance(p.result_slots);
        if (head && !mixed) {
            sum.store_output(sequence, walk.kv_head);
        } else {
            sum.store_part(head ? item_slot(p, work.remote, sequence, walk.kv_head) : cta);
        }
    }
}

/// Sums the items that have parts in both tiers; `worker` of `workers` in this CTA.
template <typename Element, int kHeadDim, int kRows>
__device__ __forceinline__ void store_mixed(const DecodeAttentionParams& p,
                                            const WorkTotals& totals, int worker, int workers,
                                            int lane) {
    constexpr int kShares = decode_epilogue_warps(kRows);
    const int tasks = totals.mixed * p.kv_heads * kShares;
    const int cta = static_cast<int>(blockIdx.x) - totals.remote_ctas;
    for (int task = cta * workers + worker; task < tasks; task += totals.local_ctas * workers) {
        const int item = task / kShares;
        const int sequence = __ldcg(p.list.mixed + item / p.kv_heads);
        const int kv_head = item % p.kv_heads;
        const ItemParts parts(p, totals, sequence, kv_head);
        PartSum<Element, kHeadDim, kRows> sum(p, task % kShares, lane);
        sum.template gather<true>(
            [&](int j) {
                const bool remote = j >= parts.local_count;
                const int i = remote ? j - parts.local_count : j;
                if (i == 0) return item_slot(p, remote, sequence, kv_head);
                return int64_t{(remote ? parts.remote_first : parts.local_first) + i};
            },
            parts.local_count + parts.remote_count);
        sum.store_output(sequence, kv_head);
    }
}

// ---- the kernel -------------------------------------------------------------------------------

template <typename Element, int kHeadDim, int kRows>
__global__ void __launch_bounds__(decode_threads(kRows), kRows > 8 || kHeadDim == 256 ? 1 : 2)
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
