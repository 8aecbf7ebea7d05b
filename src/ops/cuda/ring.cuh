#pragma once

#include "ops/cuda/ptx.cuh"

namespace dak::cuda {

/// Position in a ring and the parity of its current round.
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

/// Where a multiplying warpgroup is in a ring of slots. Addresses are carried along and not
/// computed from the slot's number: that arithmetic would stand between the products of two slots.
struct RingReader {
    uint32_t full;     ///< barrier of the slot
    uint32_t operand;  ///< ptx::operand_low of the slot
    uint32_t slot = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ RingReader(uint32_t full_barriers, uint32_t data)
        : full(full_barriers), operand(ptx::operand_low(data)) {}

    __device__ __forceinline__ void wait() const { ptx::mbarrier_wait(full, parity); }

    __device__ __forceinline__ void advance(uint32_t slots, uint32_t slot_bytes) {
        full += 8;
        operand += slot_bytes >> 4;
        if (++slot == slots) {
            full -= 8 * slots;
            operand -= slots * (slot_bytes >> 4);
            slot = 0;
            parity ^= 1;
        }
    }
};

}  // namespace dak::cuda
