#pragma once

#include <cstdint>

#include "base/transformer.h"

namespace dak::cuda {

inline constexpr int kMaxFoldedTokens = 16;  ///< more would cost the decode kernel more than a norm
inline constexpr int kNormTile = 64;         ///< elements that share their moments

/// A norm between two products of up to kMaxFoldedTokens tokens, done by them, so that no kernel
/// stands in between. With g and b its weight and bias, m and s a row's mean (0 of an RMS norm) and
/// factor, and m' and s' any numbers near these,
///   W norm(x) = s / s' (W (g (x - m') s') - (m - m') s' W g) + W b.
/// The product that ends in x stores g (x - m') s' besides, and x's moments. The one that reads
/// these corrects its sums; W g and W b are known long before. Mean and factor of the norm before,
/// in the same stream of residuals, are near enough to keep the digits of 16-bit numbers, and their
/// range as long as no element of x grows 65,504 times beside them (fp16).
struct FoldedNorm {
    NormKind kind = NormKind::kRms;
    float eps = 1e-5f;
    int64_t width = 0;
    const float* weight = nullptr;       ///< g [width]; null: ones
    const float* weight_sums = nullptr;  ///< W g [weight rows] of the product that reads; null: RMS
    const NormScale* assumed = nullptr;  ///< m', s' [tokens]
    NormScale* found = nullptr;          ///< m, s [tokens], left by the product that reads
    void* scaled = nullptr;    ///< [tokens, width] of the weights' type, x of that product
    int64_t ld = 0;            ///< elements between its rows
    float* moments = nullptr;  ///< folded_norm_floats(width)
};

/// Size of FoldedNorm::moments.
constexpr int64_t folded_norm_floats(int64_t width) {
    return (width + kNormTile - 1) / kNormTile * kMaxFoldedTokens * 2;
}

}  // namespace dak::cuda
