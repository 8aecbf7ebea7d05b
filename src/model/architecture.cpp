#include "model/architecture.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "model/config_fields.h"

namespace dak {

namespace {

constexpr TensorNames kLlamaTensors = {
    .prefixes = {"model.", ""},
    .embedding = "embed_tokens",
    .positions = {},
    .project_in = {},
    .project_out = {},
    .final_norm = "norm",
    .lm_head = "lm_head",
    .attention_norm = "layers.{}.input_layernorm",
    .q = "layers.{}.self_attn.q_proj",
    .k = "layers.{}.self_attn.k_proj",
    .v = "layers.{}.self_attn.v_proj",
    .output = "layers.{}.self_attn.o_proj",
    .q_norm = "layers.{}.self_attn.q_norm",
    .k_norm = "layers.{}.self_attn.k_norm",
    .mlp_norm = "layers.{}.post_attention_layernorm",
    .gate = "layers.{}.mlp.gate_proj",
    .up = "layers.{}.mlp.up_proj",
    .down = "layers.{}.mlp.down_proj",
};

constexpr TensorNames kOptTensors = {
    .prefixes = {"model.decoder.", "decoder.", ""},
    .embedding = "embed_tokens",
    .positions = "embed_positions",
    .project_in = "project_in",
    .project_out = "project_out",
    .final_norm = "final_layer_norm",
    .lm_head = "lm_head",
    .attention_norm = "layers.{}.self_attn_layer_norm",
    .q = "layers.{}.self_attn.q_proj",
    .k = "layers.{}.self_attn.k_proj",
    .v = "layers.{}.self_attn.v_proj",
    .output = "layers.{}.self_attn.out_proj",
    .q_norm = {},
    .k_norm = {},
    .mlp_norm = "layers.{}.final_layer_norm",
    .gate = {},
    .up = "layers.{}.fc1",
    .down = "layers.{}.fc2",
};

/// What Llama and its descendants share.
void read_llama_family(const JsonFields& json, ModelConfig& config) {
    config.embedding_size = config.hidden_size;
    config.intermediate_size = read_size(json, "intermediate_size", kMaxVocab);
    config.num_kv_heads =
        read_size_or(json, "num_key_value_heads", config.num_heads, config.num_heads);
    if (json.find("head_dim")) {
        config.head_dim = read_size(json, "head_dim", kMaxHeadDim);
    } else {
        config.head_dim = config.hidden_size / config.num_heads;
        require(config.hidden_size % config.num_heads == 0,
                "{}: field 'hidden_size' ({}) is no multiple of 'num_attention_heads' ({}) and "
                "'head_dim' is absent",
                json.where(), config.hidden_size, config.num_heads);
    }
    config.norm = NormKind::kRms;
    config.norm_eps = json.get_or<double>("rms_norm_eps", 1e-6);
    config.gated_mlp = true;
    config.activation = read_activation(json, "hidden_act", Activation::kSilu);
    config.tied_embeddings = json.get_or<bool>("tie_word_embeddings", false);
    read_rope(json, config);
    config.layer_steps = {
        LayerStep::kAttentionNorm, LayerStep::kQkv,     LayerStep::kRope, LayerStep::kAttention,
        LayerStep::kOutput,        LayerStep::kMlpNorm, LayerStep::kUp,   LayerStep::kDown};
}

void read_llama(const JsonFields& json, ModelConfig& config) {
    read_llama_family(json, config);
    config.qkv_bias = config.output_bias = json.get_or<bool>("attention_bias", false);
    config.mlp_bias = json.get_or<bool>("mlp_bias", false);
}

void read_mistral(const JsonFields& json, ModelConfig& config) {
    read_llama_family(json, config);
    // The defaults of the first Mistral hold where its config.json is silent; null means otherwise.
    if (!json.has("num_key_value_heads")) config.num_kv_heads = 8;
    std::optional<int64_t> window;
    if (json.find("sliding_window")) {
        window = read_size(json, "sliding_window", kMaxPosition);
    } else if (!json.has("sliding_window")) {
        window = 4096;
    }
    config.sliding_window.assign(static_cast<size_t>(config.num_layers), window);
}

/// Qwen slides only when told to, in the layers from "max_window_layers" on or as "layer_types"
/// lists them.
void read_qwen_window(const JsonFields& json, ModelConfig& config) {
    std::optional<int64_t> window;
    if (json.get_or<bool>("use_sliding_window", false)) {
        window = read_size_or(json, "sliding_window", kMaxPosition, 4096);
        if (json.has("sliding_window") && !json.find("sliding_window")) window.reset();
    }
    const Json* types = json.find("layer_types");
    if (!types) {
        const int64_t first = json.get_or<int64_t>("max_window_layers", 28);
        for (int64_t layer = 0; layer < config.num_layers; ++layer) {
            if (layer >= first) config.sliding_window[static_cast<size_t>(layer)] = window;
        }
        return;
    }
    require(types->is_array() && types->size() == config.sliding_window.size(),
            "{}: field 'layer_types' must list the type of each of the {} layers", json.where(),
            config.num_layers);
    for (size_t layer = 0; layer < types->size(); ++layer) {
        const Json& entry = (*types)[layer];
        const auto type = entry.is_string() ? entry.get<std::string>() : entry.dump();
        require(type == "full_attention" || type == "sliding_attention",
                "{}: layer type '{}' is not supported; supported are full_attention and "
                "sliding_attention",
                json.where(), type.substr(0, 40));
        if (type == "full_attention") continue;
        require(window.has_value(),
                "{}: field 'layer_types' has sliding_attention, but 'use_sliding_window' and "
                "'sliding_window' give no window",
                json.where());
        config.sliding_window[layer] = window;
    }
}

void read_qwen2(const JsonFields& json, ModelConfig& config) {
    read_llama_family(json, config);
    read_qwen_window(json, config);
    config.qkv_bias = true;
}

void read_qwen3(const JsonFields& json, ModelConfig& config) {
    read_llama_family(json, config);
    read_qwen_window(json, config);
    if (!json.find("head_dim")) config.head_dim = 128;
    config.qkv_bias = config.output_bias = json.get_or<bool>("attention_bias", false);
    config.layer_steps.insert(std::ranges::find(config.layer_steps, LayerStep::kRope),
                              LayerStep::kQkNorm);
}

void read_opt(const JsonFields& json, ModelConfig& config) {
    config.embedding_size =
        read_size_or(json, "word_embed_proj_dim", kMaxWidth, config.hidden_size);
    config.intermediate_size = read_size(json, "ffn_dim", kMaxVocab);
    config.num_kv_heads = config.num_heads;
    require(config.hidden_size % config.num_heads == 0,
            "{}: field 'hidden_size' ({}) is no multiple of 'num_attention_heads' ({})",
            json.where(), config.hidden_size, config.num_heads);
    config.head_dim = config.hidden_size / config.num_heads;
    config.position_offset = 2;  // rows 0 and 1 stood for padding in the model's first framework

    const bool pre_norm = json.get_or<bool>("do_layer_norm_before", true);
    const bool affine = json.get_or<bool>("layer_norm_elementwise_affine", true);
    const bool bias = json.get_or<bool>("enable_bias", true);
    config.norm = NormKind::kLayer;
    config.norm_eps = 1e-5;  // OPT's config.json does not name it
    config.norm_scale = config.norm_bias = affine;
    config.final_norm = pre_norm && !json.get_or<bool>("_remove_final_layer_norm", false);
    config.qkv_bias = config.output_bias = config.mlp_bias = bias;
    config.gated_mlp = false;
    config.activation = read_activation(json, "activation_function", Activation::kRelu);
    config.tied_embeddings = json.get_or<bool>("tie_word_embeddings", true);
    if (pre_norm) {
        config.layer_steps = {LayerStep::kAttentionNorm, LayerStep::kQkv,     LayerStep::kAttention,
                              LayerStep::kOutput,        LayerStep::kMlpNorm, LayerStep::kUp,
                              LayerStep::kDown};
    } else {
        config.layer_steps = {LayerStep::kQkv,        LayerStep::kAttention,
                              LayerStep::kOutput,     LayerStep::kPostAttentionNorm,
                              LayerStep::kUp,         LayerStep::kDown,
                              LayerStep::kPostMlpNorm};
    }
}

constexpr std::array<Architecture, 5> kArchitectures = {{
    {"LlamaForCausalLM", kLlamaTensors, 1, 2, read_llama},
    {"MistralForCausalLM", kLlamaTensors, 1, 2, read_mistral},
    {"OPTForCausalLM", kOptTensors, 2, 2, read_opt},
    {"Qwen2ForCausalLM", kLlamaTensors, {}, {}, read_qwen2},
    {"Qwen3ForCausalLM", kLlamaTensors, {}, {}, read_qwen3},
}};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture& find_architecture(std::string_view name, std::string_view where) {
    const auto* const found = std::ranges::find(kArchitectures, name, &Architecture::name);
    if (found == kArchitectures.end()) {
        std::array<std::string_view, kArchitectures.size()> names;
        std::ranges::transform(kArchitectures, names.begin(), &Architecture::name);
        fail("{}: architecture '{}' is not supported; supported are {}", where, name,
             fmt::join(names, ", "));
    }
    return *found;
}

}  // namespace dak
