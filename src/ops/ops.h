#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/transformer.h"
#include "memory/kv_page.h"
#include "memory/split_tensor.h"

// The operations of a transformer. Activations are fp32 and row-major; weights and KV pages are
// read from whichever tier they live in.

namespace dak::ops {

/// Threads that the operations use from now on; 0 means one per available core.
void set_num_threads(int num_threads);

/// out[t, :] = table[rows[t], :]. `out` is [rows.size(), table.shape.cols]; every row must be
/// inside the table.
void gather_rows(const SplitTensor& table, std::span<const int32_t> rows, float* out);

/// out[i] += values[i].
void add(std::span<const float> values, std::span<float> out);

/// Normalises each of `rows` rows of `width` elements. Empty `weight` and `bias` leave their term
/// out. `out` may be `x`.
struct Norm {
    NormKind kind = NormKind::kRms;
    double eps = 1e-5;
    std::span<const float> weight;
    std::span<const float> bias;
};
void norm(const Norm& norm, int64_t rows, int64_t width, const float* x, float* out);

/// Normalises each of `num_heads` heads of each token in place. Token t starts at x + t * stride.
void norm_heads(const Norm& norm, int64_t tokens, int64_t num_heads, int64_t head_dim,
                int64_t stride, float* x);

/// What follows a matrix product, in this order: bias, activation, gate, residual.
struct Epilogue {
    std::span<const float> bias{};  ///< [weight rows] or empty
    Activation activation = Activation::kNone;
    /// The weight holds gate and up interleaved by 64-row tiles; out = activation(gate) * up.
    bool gated = false;
    const float* residual = nullptr;  ///< [tokens, out_features], added; may be `out`
};

/// out[t, m] = epilogue(sum_k x[t, k] * weight[m, k]).
/// x is [tokens, weight.shape.cols], out [tokens, out_features]; out_features is the weight's row
/// count, or the width of one of its halves when gated (padding dropped).
void linear(const SplitTensor& weight, const Epilogue& epilogue, int64_t tokens, const float* x,
            int64_t out_features, float* out);

/// Inverse frequencies of a rotary embedding, [head_dim / 2]. `length` matters to dynamic scaling
/// only: the tokens of the sequence so far.
std::vector<float> rope_frequencies(const Rope& rope, int64_t head_dim, int64_t length);

/// Rotates `num_heads` heads of each token in place. Token t starts at x + t * stride and is turned
/// by positions[t] * frequencies[t][i].
struct RopeAngles {
    std::vector<float> cos, sin;  ///< [tokens, head_dim / 2]
};
void append_rope_angles(std::span<const float> frequencies, int64_t first_position, int64_t count,
                        RopeAngles& angles);
void rope(const RopeAngles& angles, int64_t tokens, int64_t num_heads, int64_t head_dim,
          int64_t stride, float* x);

/// One sequence's share of a step: `count` new tokens after `past` cached ones.
struct AttentionSequence {
    int64_t count = 0;
    int64_t past = 0;
    const int32_t* pages = nullptr;  ///< page indices; page i holds tokens 64 i .. 64 i + 63
};

/// Attention of the new tokens of several sequences over their paged KV cache, causal. Rows of q,
/// k, v and out are the sequences' new tokens one after the other.
struct Attention {
    int64_t num_heads = 0;
    PagedKv kv;
    float scale = 1.0f;
    int64_t sliding_window = 0;  ///< tokens a query may look back on, itself included; 0: all
    std::span<const AttentionSequence> sequences;
};

/// Stores new keys and values in their pages, rounded to the cache's type. Rows of `k` and `v` are
/// `stride` elements apart, [num_kv_heads, head_dim] each.
void append_kv(const Attention& attention, const float* k, const float* v, int64_t stride);

/// Rows of `q` are `stride` elements apart, [num_heads, head_dim] each; `out` is dense.
void attention(const Attention& attention, const float* q, int64_t stride, float* out);

}  // namespace dak::ops
