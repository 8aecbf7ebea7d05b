#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ops/cuda/split_gemm/params.h"

// What follows a product, on accumulators in the layout of wgmma (see Wgmma): a thread holds, of a
// 64-row tile, rows `row` and `row + 8` of columns 8g + column + {0, 1}.

namespace dak::cuda {

struct FragmentPlace {
    int row;
    int column;
};

/// Of thread `thread` (0..127) of a warpgroup.
__device__ __forceinline__ FragmentPlace fragment_place(int thread) {
    return {(thread >> 5) * 16 + ((thread & 31) >> 2), (thread & 3) * 2};
}

__device__ __forceinline__ float to_fp32(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float to_fp32(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_fp32(float value) { return value; }

template <typename Element>
__device__ __forceinline__ Element rounded(float value);
template <>
__device__ __forceinline__ __nv_bfloat16 rounded<__nv_bfloat16>(float value) {
    return __float2bfloat16_rn(value);
}
template <>
__device__ __forceinline__ __half rounded<__half>(float value) {
    return __float2half_rn(value);
}
template <>
__device__ __forceinline__ float rounded<float>(float value) {
    return value;
}

/// Two neighbouring values as stored, the first at the lower address.
template <typename Element>
__device__ __forceinline__ uint32_t packed(float low, float high) {
    const Element pair[2] = {rounded<Element>(low), rounded<Element>(high)};
    return *reinterpret_cast<const uint32_t*>(pair);
}

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

/// The error function is long: once in a kernel is enough.
inline __device__ __noinline__ float exact_gelu(float x) {
    return x * 0.5f * (1.0f + erff(x * 0.70710678f));
}

template <int kCount>
__device__ __forceinline__ void activate(float (&values)[kCount], Activation activation) {
    switch (activation) {
        case Activation::kNone:
            return;
        case Activation::kRelu:
#pragma unroll
            for (int i = 0; i < kCount; ++i) values[i] = fmaxf(values[i], 0.0f);
            return;
        case Activation::kGelu:
#pragma unroll
            for (int i = 0; i < kCount; ++i) values[i] = exact_gelu(values[i]);
            return;
        case Activation::kGeluTanh:
        case Activation::kSilu: {
            // Both are x sigmoid(x (a + b x^2)): (1 + tanh(z)) / 2 = sigmoid(2 z), and GELU's z is
            // sqrt(2 / pi) (x + 0.044715 x^3).
            const bool silu = activation == Activation::kSilu;
            const float a = silu ? 1.0f : 1.59576912f;
            const float b = silu ? 0.0f : 1.59576912f * 0.044715f;
#pragma unroll
            for (int i = 0; i < kCount; ++i) {
                const float x = values[i];
                values[i] = x * sigmoid(x * (a + b * x * x));
            }
            return;
        }
    }
}

/// values = scale * values + bias of weight row tile `tile`.
template <int kCount>
__device__ __forceinline__ void scale_and_bias(float (&values)[kCount], const EpilogueParams& p,
                                               int tile, FragmentPlace place) {
    float bias[2] = {0.0f, 0.0f};
    if (p.bias != nullptr) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = tile * 64 + place.row + half * 8;
            if (p.gated || row < p.out_features) bias[half] = __ldg(p.bias + row);
        }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = p.scale * values[i] + bias[(i >> 1) & 1];
}

/// values += residual; `row_base` is the first output column of the tile, `token_base` the token
/// of its column 0.
template <typename Element, int kCount>
__device__ __forceinline__ void add_residual(float (&values)[kCount], const EpilogueParams& p,
                                             int row_base, int token_base, FragmentPlace place) {
    const auto* residual = static_cast<const Element*>(p.residual);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        const int row = row_base + place.row + ((i >> 1) & 1) * 8;
        const int token = token_base + (i >> 2) * 8 + place.column + (i & 1);
        if (row < p.out_features && token < p.tokens) {
            values[i] += to_fp32(residual[token * p.ld_residual + row]);
        }
    }
}

template <typename Output, int kCount>
__device__ __forceinline__ void store_values(const float (&values)[kCount], const EpilogueParams& p,
                                             int row_base, int token_base, FragmentPlace place) {
    auto* y = static_cast<Output*>(p.y);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        const int row = row_base + place.row + ((i >> 1) & 1) * 8;
        const int token = token_base + (i >> 2) * 8 + place.column + (i & 1);
        if (row < p.out_features && token < p.tokens) {
            y[token * p.ldy + row] = rounded<Output>(values[i]);
        }
    }
}

/// Residual and store of values that are bias-added and activated already.
template <typename Element, int kCount>
__device__ __forceinline__ void finish_tile(float (&values)[kCount], const EpilogueParams& p,
                                            int row_base, int token_base, FragmentPlace place) {
    if (p.residual != nullptr) add_residual<Element>(values, p, row_base, token_base, place);
    if (p.fp32_output) {
        store_values<float>(values, p, row_base, token_base, place);
    } else {
        store_values<Element>(values, p, row_base, token_base, place);
    }
}

}  // namespace dak::cuda
