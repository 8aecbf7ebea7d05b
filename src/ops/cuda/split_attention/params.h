#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cuda/split_gemm/schedule.h"

// What the host hands to the kernels by value, and what the planning kernel leaves for them in
// device memory.

namespace dak::cuda {

inline constexpr int kMaxHeadGroup = 16;    // query heads that share a KV head
inline constexpr int kMaxSequences = 1024;  // the planner scans them with one thread each
inline constexpr int kConsumerWarps = 4;    // 16 tokens of a page each
inline constexpr int kMaxDecodeSlots = 16;  // K or V blocks in the ring
inline constexpr int kMaxQuerySlots = 4;
inline constexpr int kMaxResultSlots = 4;
inline constexpr int kMaxRangesPerCta = 29;    // of the work list; see LocalRanges
inline constexpr int kRangeSlots = 16;         // ranges that a CTA has taken and not finished
inline constexpr uint32_t kPanelBytes = 8192;  // 64 tokens x 128 bytes

/// Query heads that one instance of the decode kernel serves: 1, 4, 8 or 16.
constexpr int decode_rows(int head_group) {
    return head_group == 1 ? 1 : head_group <= 4 ? 4 : head_group <= 8 ? 8 : 16;
}
constexpr int decode_epilogue_warps(int rows) { return rows >= 4 ? 2 : 1; }
constexpr int decode_threads(int rows) {
    return 32 * (kConsumerWarps + 2 + decode_epilogue_warps(rows));
}

/// CTAs of an instance that the registers of an SM allow.
constexpr int decode_ctas_per_sm(int head_dim, int rows) {
    return rows > 8 || head_dim == 256 ? 1 : 2;
}

// ---- the decode kernel's shared memory --------------------------------------------------------

constexpr uint32_t kv_block_bytes(int head_dim) {
    return 64u * static_cast<uint32_t>(head_dim) * 2;
}
/// Rows of q in shared memory are an odd number of 16-byte chunks apart: no bank conflicts.
constexpr uint32_t query_row_bytes(int head_dim) {
    return static_cast<uint32_t>(head_dim) * 2 + 16;
}
constexpr uint32_t query_slot_bytes(int head_dim, int head_group) {
    return static_cast<uint32_t>(head_group) * query_row_bytes(head_dim);
}
/// A row of a partial result: head_dim sums, then the largest score, the sum of weights, 2 unused.
constexpr int part_row_floats(int head_dim) { return head_dim + 4; }
/// One partial result of each consumer warp.
constexpr uint32_t result_slot_bytes(int head_dim, int head_group) {
    return static_cast<uint32_t>(kConsumerWarps * head_group * part_row_floats(head_dim)) * 4;
}
constexpr uint32_t decode_shared_bytes(int head_dim, int head_group, int slots, int query_slots,
                                       int result_slots) {
    return static_cast<uint32_t>(slots) * kv_block_bytes(head_dim) +
           static_cast<uint32_t>(query_slots) * query_slot_bytes(head_dim, head_group) +
           static_cast<uint32_t>(result_slots) * result_slot_bytes(head_dim, head_group);
}

// ---- the prefill kernel's shared memory -------------------------------------------------------

inline constexpr int kPrefillAttentionThreads = 384;
inline constexpr int kPrefillTileRows = 128;
inline constexpr int kKvStages = 2;

/// Tokens of a K or V block: what leaves room for two stages.
constexpr int prefill_block_tokens(int head_dim) { return head_dim == 256 ? 64 : 128; }
/// Tiles whose queries are in shared memory at once.
constexpr int prefill_query_stages(int head_dim) { return head_dim == 256 ? 1 : 2; }
constexpr uint32_t prefill_attention_bytes(int head_dim) {
    const auto row = static_cast<uint32_t>(head_dim) * 2;
    const int rows = prefill_query_stages(head_dim) * kPrefillTileRows +
                     2 * kKvStages * prefill_block_tokens(head_dim);
    return row * static_cast<uint32_t>(rows);
}

inline constexpr int kCopyThreads = 256;

// ---- the work list of a decode step -----------------------------------------------------------

/// Tokens [begin, end) of a page, which is the `page`th of its tier.
struct PageEntry {
    uint32_t page;
    uint8_t begin;
    uint8_t end;
    uint8_t newest;  ///< holds the token that this step appends
    uint8_t unused;
};
static_assert(sizeof(PageEntry) == 8);

/// A range of its tier's list of pages, which is ordered by (sequence, KV head, page).
struct alignas(16) WorkRange {
    int32_t sequence;
    int32_t kv_head;
    int32_t page;            ///< first page, counted among the sequence's pages in the tier
    int32_t count;           ///< pages of the range
    int32_t sequence_pages;  ///< pages of `sequence` in the tier
    int32_t index;           ///< in list order, remote ranges first: the slot of its part
    int32_t local_ctas;      ///< that share the local ranges; 0: the range is a remote one
    int32_t small;           ///< ranges to be taken after the first ones
    PageEntry first[8];      ///< entries of `sequence` from `page` on
};
static_assert(sizeof(WorkRange) == 96);

/// How the list of local pages is cut: in long runs some SMs are up to 15% faster than others, so
/// that large ranges, one for each CTA, hold most pages, and small ones are taken by whoever is
/// done. Cuts are then moved, see WorkList::cuts.
struct LocalRanges {
    int32_t count;        ///< of all ranges
    int32_t pages;        ///< of a large one
    int32_t small;        ///< number of small ones, the first in the list
    int32_t small_pages;  ///< of each of these

    constexpr int begin(int range) const {
        return smaller(range, small) * small_pages + larger(0, range - small) * pages;
    }
    constexpr int owner(int page) const {
        const int in_large = page - small * small_pages;
        return in_large < 0 ? page / small_pages : small + in_large / pages;
    }
};

struct WorkTotals {
    LocalRanges local;
    Shares remote;  ///< of the pages among the CTAs
    int32_t remote_ctas;
    int32_t mixed;  ///< sequences with pages in both tiers
};
static_assert(sizeof(WorkTotals) == 32);  // kernels load it as two vectors

/// Device memory of a work list. [2] is the tier, local first.
struct WorkList {
    WorkTotals* totals = nullptr;
    /// In the order in which they are taken, each CTA's first one before all others: remote ones,
    /// then local ones from the last to the first.
    WorkRange* ranges = nullptr;
    int32_t* cuts = nullptr;       ///< [local ranges + 1] first local page of each
    int32_t* counts = nullptr;     ///< [2][sequences] pages
    int32_t* starts = nullptr;     ///< [2][sequences + 1] pages of all sequences before
    int32_t* mixed = nullptr;      ///< sequences with pages in both tiers
    PageEntry* entries = nullptr;  ///< [2][sequences][entry_stride]
    int entry_stride = 0;
};

struct PlanParams {
    const int32_t* lengths;
    const int32_t* pages;
    int64_t pages_stride;
    WorkList list;
    int sequences;
    int kv_heads;
    int ctas;
    int remote_ctas;
    int num_local_pages;
    int sliding_window;
};

struct DecodeAttentionParams {
    const void* q;
    void* out;
    int64_t ldq, ldo;
    const uint8_t* local;
    const uint8_t* remote;
    WorkList list;
    /// Slots of partial results, [head_group][part_row_floats]: max_ranges, then one of each
    /// (sequence, KV head) in each tier. They hold all ones between uses.
    float* parts;
    uint32_t* taken;  ///< small ranges taken; zero between kernels
    int max_ranges;
    int sequences, kv_heads, head_group;
    int slots, remote_slots, query_slots, result_slots;
    float score_scale;  ///< of products, to the argument of tanh or of 2^x
    float cap_scale;    ///< of tanh, to the argument of 2^x; 0: no cap
    bool programmatic;  ///< the preceding kernel may still run
};

/// Local copies of remote pages, made while prefill runs and good for one launch of it.
struct PageCopies {
    int32_t* slots = nullptr;    ///< [sequences, slot_stride] slot of each page's copy; -1: none
    int32_t* sources = nullptr;  ///< [capacity] remote page that a slot copies
    /// [capacity, kv_heads] the epoch of the launch whose copy of the head is complete.
    uint32_t* flags = nullptr;
    uint32_t* epoch = nullptr;  ///< of the last launch
    uint8_t* pages = nullptr;   ///< [capacity] pages
    int capacity = 0;           ///< 0: remote pages are read in place
    int slot_stride = 0;
};

struct CopyPagesParams {
    PageCopies copies;
    const uint8_t* remote;
    const int32_t* lengths;
    const int32_t* query_starts;
    const int32_t* pages;
    int64_t pages_stride;
    int num_local_pages;
    int sequences, kv_heads;
    int sliding_window;
    uint32_t block_bytes;  ///< of K or V of one page and head
    int slots;             ///< of the ring, of block_bytes each
};

struct PrefillAttentionParams {
    const void* q;
    void* out;
    int64_t ldq, ldo;
    const uint8_t* local;
    const uint8_t* remote;
    const int32_t* lengths;
    const int32_t* query_starts;
    const int32_t* pages;
    int64_t pages_stride;
    PageCopies copies;
    uint32_t* counters;  ///< [2] tiles taken and CTAs done; zero between kernels
    int num_local_pages;
    int sequences, kv_heads, head_group;
    int sliding_window;
    float score_scale;  ///< as in DecodeAttentionParams
    float cap_scale;
};

}  // namespace dak::cuda
