#pragma once

#include <cstdint>

// Sizes that the kernels and the host that launches them must agree on.

namespace dak::cuda {

inline constexpr uint32_t kGemmAtomBytes = 8192;

inline constexpr int kDecodeThreads = 192;
inline constexpr int kSlotAtoms = 2;  // 16 KiB copies: the smallest that reach the full HBM rate
inline constexpr uint32_t kSlotBytes = kSlotAtoms * kGemmAtomBytes;

/// Atoms of x in a slot: enough that copies are few, small enough that the first arrives soon.
constexpr int decode_x_atoms(int tokens_per_tile) { return tokens_per_tile == 8 ? 4 : 2; }

constexpr uint32_t decode_shared_bytes(int tokens_per_tile, int weight_slots, int x_slots) {
    return static_cast<uint32_t>(weight_slots) * kSlotBytes +
           static_cast<uint32_t>(x_slots * decode_x_atoms(tokens_per_tile) * tokens_per_tile) * 128;
}

inline constexpr int kPrefillThreads = 384;
inline constexpr int kPrefillRowTiles = 2;
inline constexpr int kPieceTokens = 64;
inline constexpr uint32_t kPieceBytes = 8192;  // 64 tokens x 64 rows of 16-bit results
// Cuts of the line fall on multiples of this: a piece of fewer steps costs more to hand over than
// to compute.
inline constexpr int kPrefillAlignment = 4;

constexpr int prefill_stages(int tokens_per_tile) { return tokens_per_tile == 256 ? 4 : 6; }

constexpr uint32_t prefill_shared_bytes(int tokens_per_tile) {
    const uint32_t stage =
        kPrefillRowTiles * kGemmAtomBytes + static_cast<uint32_t>(tokens_per_tile) * 128;
    return static_cast<uint32_t>(prefill_stages(tokens_per_tile)) * stage + 4 * kPieceBytes;
}

}  // namespace dak::cuda
