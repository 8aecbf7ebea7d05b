#pragma once

#include <cstdint>

// Sizes that the kernels and the host that launches them must agree on.

namespace dak::cuda {

inline constexpr uint32_t kGemmAtomBytes = 8192;

inline constexpr int kDecodeThreads = 224;
inline constexpr int kConsumerThreads = 128;  // of a decode CTA: the warpgroup that multiplies
inline constexpr int kSlotAtoms = 2;  // 16 KiB copies: the smallest that reach the full HBM rate
inline constexpr uint32_t kSlotBytes = kSlotAtoms * kGemmAtomBytes;

/// Atoms of x in a slot: enough that copies are few, small enough that the first arrives soon.
constexpr int decode_x_atoms(int tokens_per_tile) { return tokens_per_tile == 8 ? 4 : 2; }

constexpr uint32_t decode_shared_bytes(int tokens_per_tile, int weight_slots, int x_slots) {
    return static_cast<uint32_t>(weight_slots) * kSlotBytes +
           static_cast<uint32_t>(x_slots * decode_x_atoms(tokens_per_tile) * tokens_per_tile) * 128;
}

/// What a CTA of a cluster that splits K receives: fp32 sums of its share of the groups of 8 tokens
/// from every CTA.
constexpr uint32_t decode_exchange_bytes(int tokens_per_tile, int row_tiles, int split) {
    const int most_groups = (tokens_per_tile / 8 + split - 1) / split;
    return static_cast<uint32_t>(split * most_groups * row_tiles) * 64 * 8 * 4;
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

inline constexpr int kWideCluster = 2;
inline constexpr uint32_t kWidePitch = 112;  // bytes between tokens in a buffer for results
inline constexpr uint32_t kWideBufferBytes = 16 * kWidePitch;  // per consumer warp

/// Of a consumer's `columns` weight rows, those that leave together: at most kWidePitch / 2.
constexpr int wide_piece_rows(int columns) {
    return columns % 56 == 0 ? 56 : columns % 48 == 0 ? 48 : 32;
}

/// k atoms of a stage: small tiles would spend more time on barriers than on the products of one.
constexpr int wide_stage_atoms(int tokens_per_tile) { return tokens_per_tile == 64 ? 2 : 1; }

constexpr uint32_t wide_stage_bytes(int tokens_per_tile, int rows_per_tile) {
    return static_cast<uint32_t>(wide_stage_atoms(tokens_per_tile) *
                                 (tokens_per_tile + rows_per_tile)) *
           128;
}

/// As many as fit.
constexpr int wide_stages(int tokens_per_tile, int rows_per_tile) {
    constexpr uint32_t kRingBytes = 210 * 1024;
    return static_cast<int>(kRingBytes / wide_stage_bytes(tokens_per_tile, rows_per_tile));
}

constexpr uint32_t wide_shared_bytes(int tokens_per_tile, int rows_per_tile) {
    return static_cast<uint32_t>(wide_stages(tokens_per_tile, rows_per_tile)) *
               wide_stage_bytes(tokens_per_tile, rows_per_tile) +
           8 * kWideBufferBytes;
}

}  // namespace dak::cuda
