#pragma once

#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_attention/params.h"

// Places inside a K or V block (memory/kv_page.h) of 16-bit elements.

namespace dak::ptx {

/// Shared to global; addresses and `bytes` are multiples of 16. Completes with the bulk group.
__device__ __forceinline__ void bulk_store(void* to, uint32_t from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}

/// Waits until what at most `kPending` groups store is not yet visible.
template <int kPending>
__device__ __forceinline__ void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Orders generic and asynchronous accesses to any memory.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

}  // namespace dak::ptx

namespace dak::cuda {

/// The panels of a block: full ones of 128 bytes a token, and what is left of head_dim.
template <int kHeadDim>
struct Panels {
    static constexpr int kFull = kHeadDim / 64;
    static constexpr int kRestColumns = kHeadDim % 64;
    static constexpr uint32_t kRestRowBytes = kRestColumns * 2;
    static_assert(kRestColumns == 0 || kRestColumns == 16 || kRestColumns == 32);
};

/// What a lane adds to a block's address to reach chunk 2 * pair + half of its token, for any pair.
template <int kHeadDim>
class LaneOffsets {
  public:
    __device__ __forceinline__ LaneOffsets(int token, int half)
        : full_(token * 128), full_xor_((half ^ (token & 7)) << 4) {
        if (Panels<kHeadDim>::kRestColumns == 32) {
            rest_ = token * 64;
            rest_xor_ = (half ^ ((token >> 1) & 3)) << 4;
        } else if (Panels<kHeadDim>::kRestColumns == 16) {
            rest_ = token * 32;
            rest_xor_ = (half ^ ((token >> 2) & 1)) << 4;
        }
    }
    __device__ __forceinline__ uint32_t operator()(int pair) const {
        const int panel = pair / 4;
        const uint32_t in_row = (pair % 4) * 32;
        if (panel < Panels<kHeadDim>::kFull) {
            return panel * kPanelBytes + full_ + (in_row ^ full_xor_);
        }
        return panel * kPanelBytes + rest_ + (in_row ^ rest_xor_);
    }

  private:
    uint32_t full_, full_xor_;
    uint32_t rest_ = 0, rest_xor_ = 0;
};

/// Loads tokens [begin, end) of a block to their places; counts their bytes on `barrier`.
template <int kHeadDim>
__device__ __forceinline__ void load_block(uint32_t to, const uint8_t* from, uint32_t begin,
                                           uint32_t end, uint32_t barrier, uint64_t policy) {
    if (begin == 0 && end == 64) {
        ptx::bulk_load(to, from, kv_block_bytes(kHeadDim), barrier, policy);
        return;
    }
    if (begin == end) return;
#pragma unroll
    for (int panel = 0; panel * 64 < kHeadDim; ++panel) {
        const uint32_t row =
            panel < Panels<kHeadDim>::kFull ? 128u : Panels<kHeadDim>::kRestRowBytes;
        const uint32_t offset = panel * kPanelBytes + begin * row;
        ptx::bulk_load(to + offset, from + offset, (end - begin) * row, barrier, policy);
    }
}

}  // namespace dak::cuda
