#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_attention/kernels.h"
#include "ops/cuda/split_attention/kv_block.cuh"

// Copies the remote pages that a prefill needs into local memory, each once, however many tiles
// read it. A few CTAs keep the link busy; the prefill kernel runs beside them and waits for each
// page's flag. A unit of work is one head of one page, in the order in which the tiles ask for
// them: by sequence, by KV head, from the last page to the first.

namespace dak::cuda {
namespace {

constexpr int kWarps = kCopyThreads / 32;

struct NeededPages {
    int begin, end;  ///< pages that a sequence's new tokens see

    __device__ __forceinline__ NeededPages(const CopyPagesParams& p, int sequence) {
        const int new_tokens = p.query_starts[sequence + 1] - p.query_starts[sequence];
        const int length = p.lengths[sequence];
        const int oldest = length - new_tokens;
        const int first = p.sliding_window > 0 ? larger(0, oldest + 1 - p.sliding_window) : 0;
        begin = first / 64;
        end = new_tokens > 0 ? (length + 63) / 64 : begin;
    }
};

/// Counts a sequence's remote pages, or gives them slots from `first_slot` on, from its last page
/// to its first.
template <bool kAssign>
__device__ __forceinline__ int visit_pages(const CopyPagesParams& p, int sequence, int first_slot,
                                           int lane) {
    const NeededPages needed(p, sequence);
    const int32_t* table = p.pages + sequence * p.pages_stride;
    int32_t* slots = p.copies.slots + int64_t{sequence} * p.copies.slot_stride;
    int count = 0;
    for (int base = needed.end - 1; base >= needed.begin; base -= 32) {
        const int i = base - lane;
        const int page = i >= needed.begin ? table[i] : 0;
        const bool remote = i >= needed.begin && page >= p.num_local_pages;
        const uint32_t votes = __ballot_sync(~0u, remote);
        if (kAssign && i >= needed.begin) {
            const int slot = first_slot + count + __popc(votes & ((1u << lane) - 1));
            const bool copied = remote && slot < p.copies.capacity;
            slots[i] = copied ? slot : -1;
            if (copied) p.copies.sources[slot] = page - p.num_local_pages;
        }
        count += __popc(votes);
    }
    return count;
}

/// Gives every page its slot. All CTAs do the same and store the same, so that none waits for
/// another; `starts` receives each sequence's first slot.
__device__ __forceinline__ void assign_slots(const CopyPagesParams& p, int* starts) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    for (int s = warp; s < p.sequences; s += kWarps) {
        const int count = visit_pages<false>(p, s, 0, lane);
        if (lane == 0) starts[s] = count;
    }
    __syncthreads();
    if (warp == 0) {
        int total = 0;
        for (int base = 0; base < p.sequences; base += 32) {
            const int s = base + lane;
            const int count = s < p.sequences ? starts[s] : 0;
            int sum = count;
#pragma unroll
            for (int offset = 1; offset < 32; offset *= 2) {
                const int other = __shfl_up_sync(~0u, sum, offset);
                if (lane >= offset) sum += other;
            }
            if (s < p.sequences) starts[s] = smaller(total + sum - count, p.copies.capacity);
            total += __shfl_sync(~0u, sum, 31);
        }
        if (lane == 0) starts[p.sequences] = smaller(total, p.copies.capacity);
    }
    __syncthreads();
    for (int s = warp; s < p.sequences; s += kWarps) {
        visit_pages<true>(p, s, starts[s], lane);
    }
    __threadfence();
    __syncthreads();
}

/// The units of this CTA, every gridDim.x-th of all.
class UnitWalk {
  public:
    __device__ __forceinline__ UnitWalk(const CopyPagesParams& p, const int* starts)
        : p_(p), starts_(starts), unit_(static_cast<int>(blockIdx.x)) {}

    __device__ __forceinline__ bool next(int& slot, int& head) {
        if (unit_ >= starts_[p_.sequences] * p_.kv_heads) return false;
        while (unit_ >= starts_[sequence_ + 1] * p_.kv_heads) ++sequence_;
        const int slots = starts_[sequence_ + 1] - starts_[sequence_];
        const int rest = unit_ - starts_[sequence_] * p_.kv_heads;
        head = rest / slots;
        slot = starts_[sequence_] + rest % slots;
        unit_ += static_cast<int>(gridDim.x);
        return true;
    }

  private:
    const CopyPagesParams& p_;
    const int* starts_;
    int unit_;
    int sequence_ = 0;
};

/// One thread copies: blocks come into a ring and leave it again; a unit's flag is raised when both
/// its blocks have arrived.
class PageCopier {
  public:
    __device__ __forceinline__ PageCopier(const CopyPagesParams& p, uint32_t ring,
                                          uint32_t barriers, uint32_t epoch)
        : p_(p), ring_(ring), barriers_(barriers), epoch_(epoch) {}

    __device__ __forceinline__ void run(const int* starts) {
        const uint64_t policy = ptx::policy_evict_first();
        UnitWalk loads(p_, starts), stores(p_, starts);
        for (int slot, head; loads.next(slot, head);) {
            const uint8_t* from = p_.remote + offset(p_.copies.sources[slot], head);
            for (int half = 0; half < 2; ++half) {
                // The block that was in this slot is not the last one stored.
                if (loaded_ - stored_ == p_.slots - 1u) store_next(stores);
                ptx::bulk_wait_read<1>();
                const uint32_t barrier = barriers_ + 8 * (loaded_ % p_.slots);
                ptx::mbarrier_arrive_expect(barrier, p_.block_bytes);
                ptx::bulk_load(ring_ + loaded_ % p_.slots * p_.block_bytes,
                               from + half * p_.block_bytes, p_.block_bytes, barrier, policy);
                ++loaded_;
            }
        }
        while (stored_ < loaded_) store_next(stores);
        if (loaded_ > 0) raise_flag();
    }

  private:
    __device__ __forceinline__ int64_t offset(int page, int head) const {
        return (int64_t{page} * p_.kv_heads + head) * (2 * p_.block_bytes);
    }

    __device__ __forceinline__ void store_next(UnitWalk& stores) {
        if (stored_ % 2 == 0) {
            if (stored_ > 0) raise_flag();
            stores.next(slot_, head_);
        }
        const uint32_t place = stored_ % p_.slots;
        ptx::mbarrier_wait(barriers_ + 8 * place, stored_ / p_.slots & 1);
        ptx::bulk_store(p_.copies.pages + offset(slot_, head_) + stored_ % 2 * p_.block_bytes,
                        ring_ + place * p_.block_bytes, p_.block_bytes);
        ptx::bulk_commit();
        ++stored_;
    }

    /// Of the unit whose blocks have been stored last.
    __device__ __forceinline__ void raise_flag() {
        ptx::bulk_wait<0>();
        ptx::fence_async();
        ptx::store_release(p_.copies.flags + int64_t{slot_} * p_.kv_heads + head_, epoch_);
    }

    const CopyPagesParams& p_;
    const uint32_t ring_, barriers_, epoch_;
    uint32_t loaded_ = 0, stored_ = 0;  // blocks
    int slot_ = 0, head_ = 0;           // of the unit being stored
};

__global__ void __launch_bounds__(kCopyThreads)
    copy_pages(const __grid_constant__ CopyPagesParams p) {
    extern __shared__ __align__(1024) uint8_t ring[];
    __shared__ __align__(8) uint64_t barriers[kMaxDecodeSlots];
    __shared__ int starts[kMaxSequences + 1];
    if (threadIdx.x == 0) {
        for (int i = 0; i < p.slots; ++i) {
            ptx::mbarrier_init(ptx::shared_address(&barriers[i]), 1);
        }
        ptx::fence_mbarrier_init();
    }
    ptx::grid_wait();
    assign_slots(p, starts);
    // The prefill kernel may start now: all that came before has finished, and it knows the slots.
    ptx::grid_launch_dependents();
    if (threadIdx.x == 0) {
        PageCopier(p, ptx::shared_address(ring), ptx::shared_address(barriers), *p.copies.epoch + 1)
            .run(starts);
    }
}

}  // namespace

const void* copy_pages_kernel() { return reinterpret_cast<const void*>(&copy_pages); }

}  // namespace dak::cuda
