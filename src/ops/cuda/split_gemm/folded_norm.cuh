#pragma once

#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_gemm/params.h"

// The half of a FoldedNorm (folded_norm.h) that comes before the product: what corrects its sums.
// Moments are sums of differences from the assumed mean, and of their squares, over kNormTile
// elements.

namespace dak::cuda {

/// What corrects the sums of one token: factor * (sum - offset * weight_sum).
struct NormCorrection {
    float factor, offset;
};

using NormCorrections = NormCorrection[kMaxFoldedTokens];

/// Zero for columns that are no tokens.
__device__ __forceinline__ NormScale assumed_scale(const NormParams& norm, int token, int tokens) {
    if (token >= tokens) return {0.0f, 0.0f};
    const float2 scale = __ldcg(reinterpret_cast<const float2*>(norm.assumed) + token);
    return {scale.x, scale.y};
}

/// A warp puts the moments of all tokens together.
__device__ __forceinline__ void prepare_corrections(const NormParams& norm, int tokens,
                                                    NormCorrections& corrections, int lane) {
    constexpr int kUnroll = 8;  // loads in flight
    const int tiles = (norm.width + kNormTile - 1) / kNormTile;
    const float per_element = 1.0f / static_cast<float>(norm.width);
    for (int first = 0; first < tokens; first += 8) {
        const int token = first + lane % 8;
        const NormScale assumed = assumed_scale(norm, token, tokens);
        float sum = 0.0f, squares = 0.0f;
        for (int base = lane / 8; base < tiles; base += 4 * kUnroll) {
            float2 tile[kUnroll];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                const int i = base + 4 * u;
                tile[u] = i < tiles ? __ldcg(norm.moments + i * kMaxFoldedTokens + token)
                                    : make_float2(0.0f, 0.0f);
            }
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                sum += tile[u].x;
                squares += tile[u].y;
            }
        }
#pragma unroll
        for (int step = 8; step < 32; step *= 2) {
            sum += __shfl_xor_sync(~0u, sum, step);
            squares += __shfl_xor_sync(~0u, squares, step);
        }
        if (lane >= 8) continue;
        const float shift = sum * per_element;
        const float square = squares * per_element;
        const NormScale found =
            norm.centred ? NormScale{assumed.mean + shift,
                                     rsqrtf(fmaxf(square - shift * shift, 0.0f) + norm.eps)}
                         : NormScale{0.0f, rsqrtf(square + norm.eps)};
        corrections[token] = {found.factor / assumed.factor,
                              (found.mean - assumed.mean) * assumed.factor};
        if (blockIdx.x == 0 && token < tokens) norm.found[token] = found;
    }
}

}  // namespace dak::cuda
