#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "memory/arena.h"
#include "memory/split_tensor.h"
#include "model/config.h"

namespace dak {

/// The packed weights of a model in the order they are stored, by role. Layer roles repeat.
enum class WeightRole : uint8_t {
    kEmbedding,   ///< [vocab_size, embedding_size]; also the LM head when tied
    kPositions,   ///< learned positions [max_position + offset, hidden_size]
    kProjectIn,   ///< [hidden_size, embedding_size]
    kQkv,         ///< [q_size + 2 kv_size, hidden_size]: rows of q, then k, then v
    kOutput,      ///< [hidden_size, q_size]
    kUp,          ///< [intermediate, hidden]; gated: gate and up interleaved by 64-row tile, each
                  ///< padded to whole tiles, so [2 * round_up(intermediate, 64), hidden]
    kDown,        ///< [hidden_size, intermediate_size]
    kProjectOut,  ///< [embedding_size, hidden_size]
    kLmHead,      ///< [vocab_size, embedding_size], when not tied
};

/// One packed weight: what it is and its shape. The planner splits these.
struct WeightSpec {
    std::string name;  ///< "layers.3.qkv", "embedding", "lm_head"
    WeightRole role;
    int64_t layer = -1;  ///< -1 outside the layers
    PackedShape shape;
};

/// All packed weights of a model, in storage order.
std::vector<WeightSpec> weight_specs(const ModelConfig& config);

/// Whether a step gathers only rows of the weight instead of reading all of it.
bool only_gathered(const WeightSpec& spec, const ModelConfig& config);

/// Elements of each of a model's vectors as stored: norms and biases, fp32.
std::vector<int64_t> vector_sizes(const ModelConfig& config);

/// Elements of each vector, fp32, that products behind norms need to do these themselves: for every
/// such weight two, as long as it has rows.
std::vector<int64_t> folded_vector_sizes(const ModelConfig& config);

/// How many atoms of each weight are remote; parallel to weight_specs().
using Placement = std::vector<int64_t>;

/// The same share of every weight, so rounded that the total is within one atom of
/// `offload_ratio` (0..1) of all atoms.
Placement uniform_placement(const std::vector<WeightSpec>& specs, double offload_ratio);

/// y = x W^T + b.
struct LinearWeights {
    SplitTensor weight;
    std::vector<float> bias;  ///< empty: none. Gated up: in the interleaved, padded row order.
};

struct NormWeights {
    std::vector<float> weight;  ///< empty: no scale (OPT without elementwise affine)
    std::vector<float> bias;    ///< empty: none
};

struct LayerWeights {
    NormWeights attention_norm;
    LinearWeights qkv;
    NormWeights q_norm, k_norm;  ///< [head_dim]; empty without QkNorm
    LinearWeights output;
    NormWeights mlp_norm;
    LinearWeights up;
    LinearWeights down;
};

/// A model's weights in their tiers. Move-only; owns the arenas that the split tensors point into.
struct ModelWeights {
    Arena local;
    Arena remote;
    SplitTensor embedding{};
    std::optional<SplitTensor> positions{};
    std::optional<LinearWeights> project_in{};
    std::vector<LayerWeights> layers{};
    NormWeights final_norm{};
    std::optional<LinearWeights> project_out{};
    SplitTensor lm_head{};  ///< the embedding itself when tied

    int64_t vector_bytes() const;  ///< norms and biases, always local
};

struct LoadOptions {
    int num_threads = 0;  ///< 0: one per core
    bool progress = true;
    TierMemory memory = TierMemory::on_host();
};

/// Loads and packs the checkpoint in `model_dir`. `config.dtype` is the type the weights are
/// stored in; other checkpoint types are converted. Throws Error on a missing, truncated or
/// inconsistent checkpoint.
ModelWeights load_weights(const std::filesystem::path& model_dir, const ModelConfig& config,
                          const Placement& placement, const LoadOptions& options = {});

/// Random weights of plausible scale, the same for a seed whatever the placement and the threads.
ModelWeights random_weights(const ModelConfig& config, const Placement& placement, uint64_t seed,
                            const LoadOptions& options = {});

}  // namespace dak
