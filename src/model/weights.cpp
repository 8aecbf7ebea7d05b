#include "model/weights.h"

#include <cmath>

namespace dak {

namespace {

int64_t up_rows(const ModelConfig& config) {
    return config.gated_mlp ? 2 * round_up(config.intermediate_size, kAtomRows)
                            : config.intermediate_size;
}

int64_t bytes_of(const NormWeights& norm) {
    return static_cast<int64_t>((norm.weight.size() + norm.bias.size()) * sizeof(float));
}

int64_t bytes_of(const LinearWeights& linear) {
    return static_cast<int64_t>(linear.bias.size() * sizeof(float));
}

}  // namespace

std::vector<WeightSpec> weight_specs(const ModelConfig& config) {
    std::vector<WeightSpec> specs;
    const auto add = [&](std::string name, WeightRole role, int64_t layer, int64_t rows,
                         int64_t cols) {
        specs.push_back({std::move(name), role, layer, {rows, cols, config.dtype}});
    };
    const bool projected = config.embedding_size != config.hidden_size;
    add("embedding", WeightRole::kEmbedding, -1, config.vocab_size, config.embedding_size);
    if (!config.rope) {
        add("positions", WeightRole::kPositions, -1, config.max_position + config.position_offset,
            config.hidden_size);
    }
    if (projected) {
        add("project_in", WeightRole::kProjectIn, -1, config.hidden_size, config.embedding_size);
    }
    for (int64_t i = 0; i < config.num_layers; ++i) {
        add(fmt::format("layers.{}.qkv", i), WeightRole::kQkv, i,
            config.q_size() + 2 * config.kv_size(), config.hidden_size);
        add(fmt::format("layers.{}.output", i), WeightRole::kOutput, i, config.hidden_size,
            config.q_size());
        add(fmt::format("layers.{}.up", i), WeightRole::kUp, i, up_rows(config),
            config.hidden_size);
        add(fmt::format("layers.{}.down", i), WeightRole::kDown, i, config.hidden_size,
            config.intermediate_size);
    }
    if (projected) {
        add("project_out", WeightRole::kProjectOut, -1, config.embedding_size, config.hidden_size);
    }
    if (!config.tied_embeddings) {
        add("lm_head", WeightRole::kLmHead, -1, config.vocab_size, config.embedding_size);
    }
    return specs;
}

bool only_gathered(const WeightSpec& spec, const ModelConfig& config) {
    return spec.role == WeightRole::kPositions ||
           (spec.role == WeightRole::kEmbedding && !config.tied_embeddings);
}

std::vector<int64_t> vector_sizes(const ModelConfig& config) {
    std::vector<int64_t> sizes;
    const auto add = [&](bool there, int64_t size) {
        if (there) sizes.push_back(size);
    };
    const auto add_norm = [&] {
        add(config.norm_scale, config.hidden_size);
        add(config.norm_bias, config.hidden_size);
    };
    for (int64_t i = 0; i < config.num_layers; ++i) {
        add_norm();
        add_norm();
        add(config.has_step(LayerStep::kQkNorm), config.head_dim);
        add(config.has_step(LayerStep::kQkNorm), config.head_dim);
        add(config.qkv_bias, config.q_size() + 2 * config.kv_size());
        add(config.output_bias, config.hidden_size);
        add(config.mlp_bias, up_rows(config));
        add(config.mlp_bias, config.hidden_size);
    }
    add_norm();
    return sizes;
}

std::vector<int64_t> folded_vector_sizes(const ModelConfig& config) {
    std::vector<int64_t> sizes;
    for (const WeightSpec& spec : weight_specs(config)) {
        if (spec.role != WeightRole::kQkv && spec.role != WeightRole::kUp) continue;
        sizes.insert(sizes.end(), 2, spec.shape.rows);
    }
    return sizes;
}

Placement uniform_placement(const std::vector<WeightSpec>& specs, double offload_ratio) {
    require(offload_ratio >= 0 && offload_ratio <= 1, "offload ratio {} is not between 0 and 1",
            offload_ratio);
    // Rounding the running total instead of each share keeps the sum exact.
    Placement placement;
    int64_t atoms = 0;
    int64_t remote_atoms = 0;
    for (const WeightSpec& spec : specs) {
        atoms += spec.shape.atoms();
        const auto target = std::llround(offload_ratio * static_cast<double>(atoms));
        placement.push_back(target - remote_atoms);
        remote_atoms = target;
    }
    return placement;
}

int64_t ModelWeights::vector_bytes() const {
    int64_t bytes = bytes_of(final_norm);
    for (const LayerWeights& layer : layers) {
        for (const NormWeights* norm :
             {&layer.attention_norm, &layer.q_norm, &layer.k_norm, &layer.mlp_norm}) {
            bytes += bytes_of(*norm);
        }
        for (const LinearWeights* linear : {&layer.qkv, &layer.output, &layer.up, &layer.down}) {
            bytes += bytes_of(*linear);
        }
    }
    return bytes;
}

}  // namespace dak
