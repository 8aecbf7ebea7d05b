#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "base/transformer.h"

namespace dak {

/// One step of a transformer layer. `x` is the residual stream [tokens, hidden_size], `h` the value
/// that flows from step to step; h = x at the start of a layer and after a post-norm.
enum class LayerStep : uint8_t {
    kAttentionNorm,      ///< h = norm(x), before attention (pre-norm)
    kQkv,                ///< h -> q, k, v
    kQkNorm,             ///< RMS norm of each head of q and k
    kRope,               ///< rotate q and k
    kAttention,          ///< append k, v to the cache; h = attention(q)
    kOutput,             ///< x += output projection of h
    kPostAttentionNorm,  ///< x = norm(x), after attention (post-norm)
    kMlpNorm,            ///< h = norm(x), before the MLP
    kUp,                 ///< h = activation(up(h)), or activation(gate(h)) * up(h) when gated
    kDown,               ///< x += down projection of h
    kPostMlpNorm,        ///< x = norm(x), after the MLP
};

/// Everything about a model but its weights. Sizes count elements.
struct ModelConfig {
    std::string architecture;  ///< "LlamaForCausalLM"
    DType dtype = DType::kBF16;

    int64_t vocab_size = 0;
    int64_t hidden_size = 0;
    int64_t embedding_size = 0;  ///< width of the token embedding; OPT-350M's is not hidden_size
    int64_t intermediate_size = 0;
    int64_t num_layers = 0;
    int64_t num_heads = 0;
    int64_t num_kv_heads = 0;
    int64_t head_dim = 0;
    int64_t max_position = 0;  ///< longest context, tokens; dynamic rope: factor times the trained

    NormKind norm = NormKind::kRms;
    double norm_eps = 1e-5;
    bool norm_scale = true;
    bool norm_bias = false;
    bool final_norm = true;
    bool qkv_bias = false;
    bool output_bias = false;
    bool mlp_bias = false;
    bool gated_mlp = true;
    Activation activation = Activation::kSilu;
    bool tied_embeddings = false;

    std::optional<Rope> rope;     ///< absent: learned positions
    int64_t position_offset = 0;  ///< learned positions: row of position 0 (OPT: 2)
    /// Tokens a query may look back on, itself included; per layer, nothing for full attention.
    std::vector<std::optional<int64_t>> sliding_window;

    std::vector<LayerStep> layer_steps;

    std::optional<int32_t> bos_token;
    std::vector<int32_t> eos_tokens;

    int64_t q_size() const { return num_heads * head_dim; }
    int64_t kv_size() const { return num_kv_heads * head_dim; }
    bool has_step(LayerStep step) const;
    /// Tokens that attention looks at with `context` in the cache, summed over the layers.
    double attended_tokens(double context) const;
};

/// Reads config.json and generation_config.json of a Hugging Face model folder. The dtype is the
/// one given, else config.json's, else that of most of the checkpoint's bytes. Throws Error naming
/// the field that is missing, inconsistent or asks for something not supported.
ModelConfig load_config(const std::filesystem::path& model_dir, std::optional<DType> dtype = {});

/// The same from parsed JSON; `generation` may be null, an unnamed dtype is bf16. `where` names the
/// model or its folder in errors.
ModelConfig parse_config(const Json& config, const Json& generation, std::string_view where);

}  // namespace dak
