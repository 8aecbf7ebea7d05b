#include "engine/transformer.h"

#include <algorithm>
#include <cmath>

namespace dak {

namespace {

ops::Norm norm_op(const ModelConfig& config, const NormWeights& weights) {
    return {config.norm, config.norm_eps, weights.weight, weights.bias};
}

int64_t count_tokens(std::span<const SequenceChunk> chunks) {
    int64_t tokens = 0;
    for (const SequenceChunk& chunk : chunks) tokens += static_cast<int64_t>(chunk.tokens.size());
    return tokens;
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, const ModelWeights& weights, KvCache& cache)
    : config_(config), weights_(weights), cache_(cache) {
    if (config.rope) frequencies_ = ops::rope_frequencies(*config.rope, config.head_dim, 0);
}

std::span<float> Transformer::forward(std::span<const SequenceChunk> chunks) {
    tokens_ = count_tokens(chunks);
    sequences_.clear();
    for (const SequenceChunk& chunk : chunks) {
        sequences_.push_back(
            {static_cast<int64_t>(chunk.tokens.size()), chunk.past, chunk.pages.data()});
    }
    const auto size = [&](int64_t width) { return static_cast<size_t>(tokens_ * width); };
    residual_.resize(size(config_.hidden_size));
    hidden_.resize(size(config_.hidden_size));
    qkv_.resize(size(config_.q_size() + 2 * config_.kv_size()));
    attention_out_.resize(size(config_.q_size()));
    mlp_.resize(size(config_.intermediate_size));

    embed(chunks);
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) run_layer(layer);
    return project_logits(chunks);
}

void Transformer::embed(std::span<const SequenceChunk> chunks) {
    std::vector<int32_t> ids;
    std::vector<int32_t> positions;
    angles_ = {};
    for (const SequenceChunk& chunk : chunks) {
        const auto count = static_cast<int64_t>(chunk.tokens.size());
        ids.insert(ids.end(), chunk.tokens.begin(), chunk.tokens.end());
        for (int64_t i = 0; i < count; ++i) {
            positions.push_back(static_cast<int32_t>(chunk.past + i + config_.position_offset));
        }
        if (!config_.rope) continue;
        if (config_.rope->scaling == RopeScaling::kDynamic) {
            frequencies_ =
                ops::rope_frequencies(*config_.rope, config_.head_dim, chunk.rope_length);
        }
        ops::append_rope_angles(frequencies_, chunk.past, count, angles_);
    }
    if (weights_.project_in) {
        std::vector<float> embedded(ids.size() * static_cast<size_t>(config_.embedding_size));
        ops::gather_rows(weights_.embedding, ids, embedded.data());
        ops::linear(weights_.project_in->weight, {.bias = weights_.project_in->bias}, tokens_,
                    embedded.data(), config_.hidden_size, residual_.data());
    } else {
        ops::gather_rows(weights_.embedding, ids, residual_.data());
    }
    if (weights_.positions) {
        ops::gather_rows(*weights_.positions, positions, hidden_.data());
        ops::add(hidden_, residual_);
    }
}

void Transformer::run_layer(int64_t layer) {
    const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    const int64_t hidden_size = config_.hidden_size;
    const int64_t qkv_width = config_.q_size() + 2 * config_.kv_size();
    const auto normalise = [&](const NormWeights& norm, std::vector<float>& out) {
        ops::norm(norm_op(config_, norm), tokens_, hidden_size, residual_.data(), out.data());
        return out.data();
    };
    const auto add_to_residual = [&](const LinearWeights& linear, const std::vector<float>& x) {
        ops::linear(linear.weight, {.bias = linear.bias, .residual = residual_.data()}, tokens_,
                    x.data(), hidden_size, residual_.data());
        return residual_.data();
    };
    const float* input = residual_.data();
    for (const LayerStep step : config_.layer_steps) {
        switch (step) {
            case LayerStep::kAttentionNorm:
                input = normalise(weights.attention_norm, hidden_);
                break;
            case LayerStep::kQkv:
                ops::linear(weights.qkv.weight, {.bias = weights.qkv.bias}, tokens_, input,
                            qkv_width, qkv_.data());
                break;
            case LayerStep::kQkNorm:
                ops::norm_heads(norm_op(config_, weights.q_norm), tokens_, config_.num_heads,
                                config_.head_dim, qkv_width, qkv_.data());
                ops::norm_heads(norm_op(config_, weights.k_norm), tokens_, config_.num_kv_heads,
                                config_.head_dim, qkv_width, qkv_.data() + config_.q_size());
                break;
            case LayerStep::kRope:
                // q and k stand side by side: one call turns the heads of both.
                ops::rope(angles_, tokens_, config_.num_heads + config_.num_kv_heads,
                          config_.head_dim, qkv_width, qkv_.data());
                break;
            case LayerStep::kAttention:
                run_attention(layer);
                break;
            case LayerStep::kOutput:
                input = add_to_residual(weights.output, attention_out_);
                break;
            case LayerStep::kPostAttentionNorm:
                input = normalise(weights.attention_norm, residual_);
                break;
            case LayerStep::kMlpNorm:
                input = normalise(weights.mlp_norm, hidden_);
                break;
            case LayerStep::kUp:
                ops::linear(weights.up.weight,
                            {.bias = weights.up.bias,
                             .activation = config_.activation,
                             .gated = config_.gated_mlp},
                            tokens_, input, config_.intermediate_size, mlp_.data());
                break;
            case LayerStep::kDown:
                input = add_to_residual(weights.down, mlp_);
                break;
            case LayerStep::kPostMlpNorm:
                input = normalise(weights.mlp_norm, residual_);
                break;
        }
    }
}

void Transformer::run_attention(int64_t layer) {
    const int64_t stride = config_.q_size() + 2 * config_.kv_size();
    const auto& window = config_.sliding_window;
    const ops::Attention attention{
        .num_heads = config_.num_heads,
        .kv = cache_.layer(layer),
        .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
        .sliding_window = window.empty() ? 0 : window[static_cast<size_t>(layer)].value_or(0),
        .sequences = sequences_};
    const float* k = qkv_.data() + config_.q_size();
    ops::append_kv(attention, k, k + config_.kv_size(), stride);
    ops::attention(attention, qkv_.data(), stride, attention_out_.data());
}

std::span<float> Transformer::project_logits(std::span<const SequenceChunk> chunks) {
    int64_t rows = 0;
    int64_t end = 0;
    // Gathers the rows that matter to the front of hidden_.
    for (const SequenceChunk& chunk : chunks) {
        end += static_cast<int64_t>(chunk.tokens.size());
        if (!chunk.wants_token) continue;
        std::copy_n(residual_.begin() + (end - 1) * config_.hidden_size, config_.hidden_size,
                    hidden_.begin() + rows++ * config_.hidden_size);
    }
    if (config_.final_norm) {
        ops::norm(norm_op(config_, weights_.final_norm), rows, config_.hidden_size, hidden_.data(),
                  hidden_.data());
    }
    const float* input = hidden_.data();
    if (weights_.project_out) {
        ops::linear(weights_.project_out->weight, {.bias = weights_.project_out->bias}, rows, input,
                    config_.embedding_size, residual_.data());
        input = residual_.data();
    }
    logits_.resize(static_cast<size_t>(rows * config_.vocab_size));
    ops::linear(weights_.lm_head, {}, rows, input, config_.vocab_size, logits_.data());
    return logits_;
}

}  // namespace dak
