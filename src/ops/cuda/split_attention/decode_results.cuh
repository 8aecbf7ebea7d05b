#pragma once

#include "ops/cuda/mma.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_attention/decode_work.cuh"

// What becomes of the sums of a segment: output, or a part that another CTA adds.

namespace dak::cuda {

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

__device__ __forceinline__ WorkTotals load_totals(const WorkTotals* from) {
    const int4 a = __ldcg(reinterpret_cast<const int4*>(from));
    const int4 b = __ldcg(reinterpret_cast<const int4*>(from) + 1);
    WorkTotals totals;
    totals.local = {a.x, a.y, a.z, a.w};
    totals.remote = {b.x, b.y};
    totals.remote_ctas = b.z;
    totals.mixed = b.w;
    return totals;
}

/// Which ranges have parts of an item.
struct ItemParts {
    int local_first = 0, remote_first = 0;  ///< range of the item's first part in the tier
    int local_count = 0, remote_count = 0;  ///< ranges with a part in the tier

    __device__ __forceinline__ ItemParts(const DecodeAttentionParams& p, int sequence,
                                         int kv_head) {
        const WorkTotals totals = load_totals(p.list.totals);
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
    /// The local range (counted among those) that holds `page` of the list.
    static __device__ __forceinline__ int local_owner(const DecodeAttentionParams& p,
                                                      const WorkTotals& totals, int page) {
        int range = smaller(totals.local.owner(page), totals.local.count - 1);
        while (page < __ldcg(p.list.cuts + range)) --range;
        while (page >= __ldcg(p.list.cuts + range + 1)) ++range;
        return range;
    }
};

/// The slot of the first part of an item in one tier, used when the item is mixed.
__device__ __forceinline__ int64_t item_slot(const DecodeAttentionParams& p, bool remote,
                                             int sequence, int kv_head) {
    return p.max_ranges + (int64_t{remote} * p.sequences + sequence) * p.kv_heads + kv_head;
}

/// The warps that turn each segment's four partial results into output or into a part.
template <typename Element, int kHeadDim, int kRows>
__device__ __forceinline__ void store_results(const DecodeAttentionParams& p,
                                              const DecodeAttentionShared& shared, WorkHeader work,
                                              int share, int lane) {
    RingSlot ring;
    TakenRanges ranges(shared);
    int sequence = -1, other_pages = 0;
    ptx::grid_wait();
    do {
        for (PageWalk walk(p, work); walk.left > 0; walk.next_segment()) {
            if (walk.sequence != sequence) {
                sequence = walk.sequence;
                other_pages = __ldcg(p.list.counts + (work.remote() ? 0 : p.sequences) + sequence);
            }
            const bool mixed = other_pages > 0;
            const bool whole = walk.segment_pages() == walk.sequence_pages;
            const bool head = walk.page == 0;
            PartSum<Element, kHeadDim, kRows> sum(p, share, lane);
            if (head && !mixed && !whole) {
                const ItemParts parts(p, sequence, walk.kv_head);
                sum.template gather<false>([&](int j) { return int64_t{work.index + 1 + j}; },
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
                sum.store_part(head ? item_slot(p, work.remote(), sequence, walk.kv_head)
                                    : work.index);
            }
        }
    } while (ranges.next(work));
}

/// Sums the items that have parts in both tiers; `worker` of `workers` in this CTA.
template <typename Element, int kHeadDim, int kRows>
__device__ __forceinline__ void store_mixed(const DecodeAttentionParams& p, int worker, int workers,
                                            int lane) {
    const WorkTotals totals = load_totals(p.list.totals);
    constexpr int kShares = decode_epilogue_warps(kRows);
    const int tasks = totals.mixed * p.kv_heads * kShares;
    const int cta = static_cast<int>(blockIdx.x) - totals.remote_ctas;
    const int ctas = static_cast<int>(gridDim.x) - totals.remote_ctas;
    for (int task = cta * workers + worker; task < tasks; task += ctas * workers) {
        const int item = task / kShares;
        const int sequence = __ldcg(p.list.mixed + item / p.kv_heads);
        const int kv_head = item % p.kv_heads;
        const ItemParts parts(p, sequence, kv_head);
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

}  // namespace dak::cuda
