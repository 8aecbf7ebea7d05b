#include "model/presets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace dak {

namespace {

struct Preset {
    std::string_view name;
    std::string_view config_json;
};

/// As published by the models' authors.
constexpr std::array<Preset, 18> kPresets = {{
    {"opt-125m",
     R"({"architectures": ["OPTForCausalLM"], "dtype": "float16", "vocab_size": 50272,
         "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12,
         "num_attention_heads": 12, "max_position_embeddings": 2048})"},
    {"opt-350m",
     R"({"architectures": ["OPTForCausalLM"], "dtype": "float16", "vocab_size": 50272,
         "hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 24,
         "num_attention_heads": 16, "max_position_embeddings": 2048,
         "word_embed_proj_dim": 512, "do_layer_norm_before": false})"},
    {"opt-1.3b",
     R"({"architectures": ["OPTForCausalLM"], "dtype": "float16", "vocab_size": 50272,
         "hidden_size": 2048, "ffn_dim": 8192, "num_hidden_layers": 24,
         "num_attention_heads": 32, "max_position_embeddings": 2048})"},
    {"opt-2.7b",
     R"({"architectures": ["OPTForCausalLM"], "dtype": "float16", "vocab_size": 50272,
         "hidden_size": 2560, "ffn_dim": 10240, "num_hidden_layers": 32,
         "num_attention_heads": 32, "max_position_embeddings": 2048})"},
    {"opt-6.7b",
     R"({"architectures": ["OPTForCausalLM"], "dtype": "float16", "vocab_size": 50272,
         "hidden_size": 4096, "ffn_dim": 16384, "num_hidden_layers": 32,
         "num_attention_heads": 32, "max_position_embeddings": 2048})"},
    {"opt-13b",
     R"({"architectures": ["OPTForCausalLM"], "dtype": "float16", "vocab_size": 50272,
         "hidden_size": 5120, "ffn_dim": 20480, "num_hidden_layers": 40,
         "num_attention_heads": 40, "max_position_embeddings": 2048})"},
    {"opt-30b",
     R"({"architectures": ["OPTForCausalLM"], "dtype": "float16", "vocab_size": 50272,
         "hidden_size": 7168, "ffn_dim": 28672, "num_hidden_layers": 48,
         "num_attention_heads": 56, "max_position_embeddings": 2048})"},
    {"opt-66b",
     R"({"architectures": ["OPTForCausalLM"], "dtype": "float16", "vocab_size": 50272,
         "hidden_size": 9216, "ffn_dim": 36864, "num_hidden_layers": 64,
         "num_attention_heads": 72, "max_position_embeddings": 2048})"},
    {"llama-2-7b",
     R"({"architectures": ["LlamaForCausalLM"], "dtype": "float16", "vocab_size": 32000,
         "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 32,
         "max_position_embeddings": 4096, "rms_norm_eps": 1e-05})"},
    {"llama-2-13b",
     R"({"architectures": ["LlamaForCausalLM"], "dtype": "float16", "vocab_size": 32000,
         "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40,
         "num_attention_heads": 40, "num_key_value_heads": 40,
         "max_position_embeddings": 4096, "rms_norm_eps": 1e-05})"},
    {"llama-2-70b",
     R"({"architectures": ["LlamaForCausalLM"], "dtype": "float16", "vocab_size": 32000,
         "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
         "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 4096,
         "rms_norm_eps": 1e-05})"},
    {"llama-3-8b",
     R"({"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16", "vocab_size": 128256,
         "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192,
         "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "bos_token_id": 128000,
         "eos_token_id": 128001})"},
    {"llama-3-70b",
     R"({"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16", "vocab_size": 128256,
         "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
         "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 8192,
         "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "bos_token_id": 128000,
         "eos_token_id": 128001})"},
    {"smollm2-135m",
     R"({"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16", "vocab_size": 49152,
         "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
         "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192,
         "rms_norm_eps": 1e-05, "rope_theta": 100000.0, "tie_word_embeddings": true,
         "bos_token_id": 1, "eos_token_id": 2})"},
    {"mistral-7b",
     R"({"architectures": ["MistralForCausalLM"], "dtype": "bfloat16", "vocab_size": 32000,
         "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8,
         "max_position_embeddings": 32768, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
         "sliding_window": 4096})"},
    {"qwen2-7b",
     R"({"architectures": ["Qwen2ForCausalLM"], "dtype": "bfloat16", "vocab_size": 152064,
         "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
         "num_attention_heads": 28, "num_key_value_heads": 4,
         "max_position_embeddings": 131072, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
         "bos_token_id": 151643, "eos_token_id": 151643})"},
    {"qwen3-8b",
     R"({"architectures": ["Qwen3ForCausalLM"], "dtype": "bfloat16", "vocab_size": 151936,
         "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
         "num_attention_heads": 32, "num_key_value_heads": 8,
         "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "head_dim": 128,
         "rope_theta": 1000000.0, "bos_token_id": 151643, "eos_token_id": 151645})"},
    {"qwen3-32b",
     R"({"architectures": ["Qwen3ForCausalLM"], "dtype": "bfloat16", "vocab_size": 151936,
         "hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64,
         "num_attention_heads": 64, "num_key_value_heads": 8,
         "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "head_dim": 128,
         "rope_theta": 1000000.0, "bos_token_id": 151643, "eos_token_id": 151645})"},
}};

}  // namespace

std::vector<std::string_view> preset_names() {
    std::vector<std::string_view> names(kPresets.size());
    std::ranges::transform(kPresets, names.begin(), &Preset::name);
    return names;
}

ModelConfig preset_config(std::string_view name) {
    const auto* const preset = std::ranges::find(kPresets, name, &Preset::name);
    require(preset != kPresets.end(), "no built-in model is called '{}'; there are {}", name,
            fmt::join(preset_names(), ", "));
    return parse_config(parse_json(preset->config_json, name), Json(), name);
}

}  // namespace dak
