#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_attention/kernels.h"

// The work list of a decode step: each sequence's pages, sorted by tier, then cut into equal ranges
// for the CTAs of the decode kernel. One block does it all for few sequences; for many, a warp per
// sequence sorts in a kernel before.
//
// Neither kernel lets the next one start early: the attention kernels read the list before they
// wait for their predecessor.

namespace dak::cuda {
namespace {

constexpr int kPlanThreads = 1024;
constexpr int kSortThreads = 256;
constexpr int kMaxSequencesOfOneBlock = 64;
constexpr int kUnroll = 4;  // loads of the page table in flight

/// A warp sorts the pages that `sequence` attends to by tier.
__device__ __forceinline__ void sort_pages(const PlanParams& p, int sequence, int lane) {
    const int length = p.lengths[sequence];
    const int first = p.sliding_window > 0 ? larger(0, length - p.sliding_window) : 0;
    const int end_page = (length + 63) / 64;
    const int32_t* table = p.pages + sequence * p.pages_stride;
    PageEntry* const to[2] = {
        p.list.entries + int64_t{sequence} * p.list.entry_stride,
        p.list.entries + int64_t{p.sequences + sequence} * p.list.entry_stride};
    int count[2] = {0, 0};
    for (int base = first / 64; base < end_page; base += 32 * kUnroll) {
        int page[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int i = base + 32 * u + lane;
            page[u] = i < end_page ? table[i] : 0;
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int i = base + 32 * u + lane;
            const bool valid = i < end_page;
            const bool remote = page[u] >= p.num_local_pages;
            PageEntry entry{};
            entry.page = static_cast<uint32_t>(remote ? page[u] - p.num_local_pages : page[u]);
            entry.begin = static_cast<uint8_t>(larger(0, first - i * 64));
            entry.end = static_cast<uint8_t>(smaller(64, length - i * 64));
            entry.newest = i == end_page - 1;
            const uint32_t before = (1u << lane) - 1;
#pragma unroll
            for (int tier = 0; tier < 2; ++tier) {
                const bool mine = valid && remote == (tier == 1);
                const uint32_t votes = __ballot_sync(~0u, mine);
                if (mine) to[tier][count[tier] + __popc(votes & before)] = entry;
                count[tier] += __popc(votes);
            }
        }
    }
    if (lane == 0) {
        p.list.counts[sequence] = count[0];
        p.list.counts[p.sequences + sequence] = count[1];
    }
}

__global__ void __launch_bounds__(kSortThreads)
    sort_all_pages(const __grid_constant__ PlanParams p) {
    const int sequence = static_cast<int>(blockIdx.x * kSortThreads + threadIdx.x) / 32;
    if (sequence < p.sequences) sort_pages(p, sequence, static_cast<int>(threadIdx.x) % 32);
}

/// Exclusive prefix sums over the block of one value a thread; `total` receives the sum of all.
__device__ __forceinline__ int prefix_sum(int value, int (&warp_sums)[32], int& total) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    int sum = value;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const int other = __shfl_up_sync(~0u, sum, offset);
        if (lane >= offset) sum += other;
    }
    __syncthreads();  // the last call's readers are done
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    int before = 0;
    total = 0;
    for (int w = 0; w < 32; ++w) {
        if (w < warp) before += warp_sums[w];
        total += warp_sums[w];
    }
    return before + sum - value;
}

/// An equal share, rounded up to a multiple of a power of two where that costs at most 3% of the
/// CTAs (not of the rate, which is that of HBM), so that ranges end where items do.
__device__ __forceinline__ int pages_per_cta(int pages, int ctas) {
    const int least = (pages + ctas - 1) / ctas;
    for (int multiple = 16; multiple > 1; multiple /= 2) {
        const int rounded = (least + multiple - 1) / multiple * multiple;
        if (rounded * 32 <= least * 33) return rounded;
    }
    return least;
}

__device__ __forceinline__ LocalRanges cut_evenly(int pages, int ctas) {
    // Pages of a CTA from which on small ranges gain more than it costs to hand over their parts.
    constexpr int kLongShare = 200;
    LocalRanges ranges{};
    if (pages == 0) return ranges;
    const int share = (pages + ctas - 1) / ctas;
    if (share < kLongShare) {
        ranges.pages = pages_per_cta(pages, ctas);
        ranges.count = (pages + ranges.pages - 1) / ranges.pages;
        return ranges;
    }
    ranges.small_pages = 16;
    ranges.small = ctas * smaller(share / 4 / ranges.small_pages, kMaxRangesPerCta - 1);
    const int rest = pages - ranges.small * ranges.small_pages;
    ranges.pages = (rest + ctas - 1) / ctas;
    ranges.count = ranges.small + (rest + ranges.pages - 1) / ranges.pages;
    return ranges;
}

/// The last sequence of a tier that starts at or before `page` of its list.
__device__ __forceinline__ int sequence_at(const PlanParams& p, const int* starts, int page) {
    int low = 0, high = p.sequences - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (starts[middle] * p.kv_heads <= page) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/// A cut moved to the start or end of the item that it would split, if that is near: to hand over a
/// part takes as long as to stream five pages while HBM is not the limit.
__device__ __forceinline__ int moved_cut(const PlanParams& p, const int* starts, int cut) {
    constexpr int kNear = 2;
    if (cut >= starts[p.sequences] * p.kv_heads) return starts[p.sequences] * p.kv_heads;
    const int sequence = sequence_at(p, starts, cut);
    const int pages = starts[sequence + 1] - starts[sequence];
    const int before = (cut - starts[sequence] * p.kv_heads) % pages;
    const int after = pages - before;
    if (before <= kNear && before <= after) return cut - before;
    return after <= kNear ? cut + after : cut;
}

/// Pages [begin, end) of a tier's list, whose sequences start at `starts`.
__device__ __forceinline__ WorkRange make_range(const PlanParams& p, const int* starts, int tier,
                                                int begin, int end) {
    WorkRange work{};
    work.count = end - begin;
    if (work.count == 0) return work;
    work.sequence = sequence_at(p, starts, begin);
    const int rest = begin - starts[work.sequence] * p.kv_heads;
    work.sequence_pages = starts[work.sequence + 1] - starts[work.sequence];
    work.kv_head = rest / work.sequence_pages;
    work.page = rest % work.sequence_pages;
    const PageEntry* entries =
        p.list.entries + int64_t{tier * p.sequences + work.sequence} * p.list.entry_stride;
    for (int i = 0; i < 8; ++i) {
        if (work.page + i < work.sequence_pages) work.first[i] = entries[work.page + i];
    }
    return work;
}

__global__ void __launch_bounds__(kPlanThreads)
    make_work_list(const __grid_constant__ PlanParams p, bool sort) {
    __shared__ int starts[2][kMaxSequences + 1];
    __shared__ int warp_sums[32];
    const int thread = static_cast<int>(threadIdx.x);
    if (sort) {
        for (int s = thread / 32; s < p.sequences; s += 32) sort_pages(p, s, thread % 32);
        __syncthreads();
    }
    const bool exists = thread < p.sequences;
    int count[2], total[2];
#pragma unroll
    for (int tier = 0; tier < 2; ++tier) {
        count[tier] = exists ? p.list.counts[tier * p.sequences + thread] : 0;
        const int start = prefix_sum(count[tier], warp_sums, total[tier]);
        int32_t* to = p.list.starts + tier * (p.sequences + 1);
        if (exists) starts[tier][thread] = to[thread] = start;
        if (thread == 0) starts[tier][p.sequences] = to[p.sequences] = total[tier];
    }
    const bool is_mixed = count[0] > 0 && count[1] > 0;
    int mixed;
    const int mixed_before = prefix_sum(is_mixed ? 1 : 0, warp_sums, mixed);
    if (is_mixed) p.list.mixed[mixed_before] = thread;

    const int pages[2] = {total[0] * p.kv_heads, total[1] * p.kv_heads};
    const int remote_ctas = smaller(p.remote_ctas, pages[1]);
    WorkTotals totals{};
    totals.remote = Shares::of(pages[1], remote_ctas);
    totals.remote_ctas = remote_ctas;
    totals.mixed = mixed;
    const int local_ctas = p.ctas - remote_ctas;
    totals.local = cut_evenly(pages[0], local_ctas);
    if (thread == 0) *p.list.totals = totals;
    for (int i = thread; i <= totals.local.count; i += kPlanThreads) {
        const int cut = smaller(totals.local.begin(i), pages[0]);
        p.list.cuts[i] = i < totals.local.small ? cut : moved_cut(p, starts[0], cut);
    }
    __syncthreads();
    const int ranges = remote_ctas + larger(local_ctas, totals.local.count);
    for (int i = thread; i < ranges; i += kPlanThreads) {
        const int local = totals.local.count - 1 - (i - remote_ctas);
        WorkRange work{};
        if (i < remote_ctas) {
            work = make_range(p, starts[1], 1, totals.remote.begin(i), totals.remote.begin(i + 1));
            work.index = i;
        } else {
            if (local >= 0) {
                work = make_range(p, starts[0], 0, p.list.cuts[local], p.list.cuts[local + 1]);
            }
            work.index = remote_ctas + local;
            work.local_ctas = local_ctas;
            work.small = larger(0, totals.local.count - local_ctas);
        }
        p.list.ranges[i] = work;
    }
}

}  // namespace

void launch_plan(const PlanParams& params, cudaStream_t stream) {
    const bool one_block = params.sequences <= kMaxSequencesOfOneBlock;
    if (!one_block) {
        const unsigned blocks =
            (static_cast<unsigned>(params.sequences) * 32 + kSortThreads - 1) / kSortThreads;
        sort_all_pages<<<blocks, kSortThreads, 0, stream>>>(params);
    }
    make_work_list<<<1, kPlanThreads, 0, stream>>>(params, one_block);
}

}  // namespace dak::cuda
