#pragma once

#include <cstdint>

#include "base/transformer.h"
#include "ops/cuda/split_gemm/folded_norm.h"
#include "ops/cuda/split_gemm/kernel_plan.h"
#include "ops/cuda/split_gemm/schedule.h"

// What the host hands to the kernels by value.

namespace dak::cuda {

/// A packed weight in two tiers (memory/split_tensor.h), as the device sees it.
struct WeightView {
    const uint8_t* remote = nullptr;
    const uint8_t* local = nullptr;
    int64_t remote_atoms = 0;
    int k_atoms = 0;
    int row_tiles = 0;

    constexpr const uint8_t* atom(int64_t index) const {
        return index < remote_atoms ? remote + index * kGemmAtomBytes
                                    : local + (index - remote_atoms) * kGemmAtomBytes;
    }
};

/// FoldedNorm as a kernel sees it; without moments there is none.
struct NormParams {
    const float* weight = nullptr;
    const float* weight_sums = nullptr;
    const NormScale* assumed = nullptr;
    NormScale* found = nullptr;
    void* scaled = nullptr;
    float2* moments = nullptr;
    int64_t ld = 0;
    int width = 0;
    float eps = 0.0f;
    bool centred = false;
};

/// y = activation(scale * product + bias) [* up] + residual, stored as the weight's type or fp32.
struct EpilogueParams {
    void* y = nullptr;
    const float* bias = nullptr;     ///< [weight rows]; null: none
    const void* residual = nullptr;  ///< same type as the weight; null: none
    int64_t ldy = 0;                 ///< elements between rows of y
    int64_t ld_residual = 0;
    int tokens = 0;
    int out_features = 0;  ///< columns of y; past them nothing is stored
    float scale = 1.0f;
    Activation activation = Activation::kNone;
    bool gated = false;
    bool fp32_output = false;
    bool plain = false;         ///< nothing but rounding
    bool tensor_store = false;  ///< prefill: y can be stored in steps of 16 bytes
    NormParams norm_before;     ///< decode
    NormParams norm_after;      ///< decode
};

/// Partial sums between CTAs. Every CTA has one slot of each; flags are zero between kernels.
struct GemmScratch {
    float4* partials = nullptr;
    uint32_t* flags = nullptr;
};

struct DecodeParams {
    WeightView weight;
    EpilogueParams epilogue;
    GemmScratch scratch;
    WorkLine line;
    int x_sharers = 1;     ///< CTAs of a worker: neighbouring blocks that load x together (1 or 2)
    int weight_slots = 0;  ///< ring of 16 KiB slots
    int remote_slots = 0;  ///< how many of them a remote CTA uses: its part of the window
    int x_slots = 0;
    bool remote_last = false;   ///< workers are numbered against the order of CTAs
    bool early_weights = true;  ///< weights stream before the preceding kernel has finished
};

struct PrefillParams {
    WeightView weight;
    EpilogueParams epilogue;
    GemmScratch scratch;
    TileOrder remote_tiles;  ///< of the row blocks that hold remote atoms, worked on first
    TileOrder local_tiles;   ///< of the others, numbered after them
    WorkLine line;           ///< over all remote tiles and the first local ones
    int whole_tiles = 0;     ///< local tiles after the line, dealt whole to the local workers
    int remote_stages = 0;   ///< stages of remote bytes in flight per CTA
    bool evict_first = false;
    bool early_weights = true;
};

}  // namespace dak::cuda
