#include "model/config.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/file.h"
#include "model/architecture.h"
#include "model/checkpoint.h"
#include "model/config_fields.h"

namespace dak {

namespace {

/// The dtype that config.json names, if it does. "torch_dtype" is the field's old name.
std::optional<DType> declared_dtype(const JsonFields& json) {
    static constexpr std::array<std::pair<std::string_view, DType>, 3> kNames = {{
        {"float32", DType::kF32},
        {"float16", DType::kF16},
        {"bfloat16", DType::kBF16},
    }};
    const std::string_view field = json.find("dtype") ? "dtype" : "torch_dtype";
    const auto value = json.maybe<std::string>(field);
    if (!value || *value == "auto") return {};
    for (const auto& [name, dtype] : kNames) {
        if (*value == name || *value == fmt::format("torch.{}", name)) return dtype;
    }
    fail("{}: {} '{}' is not supported; supported are bfloat16, float16, float32", json.where(),
         field, *value);
}

int32_t token_id(const Json& value, std::string_view name, const std::string& where) {
    // Numbers past int64_t turn negative here.
    const int64_t id = value.is_number_integer() ? value.get<int64_t>() : -1;
    require(id >= 0 && id <= std::numeric_limits<int32_t>::max(),
            "{}: field '{}' must hold token ids, found {}", where, name,
            value.dump().substr(0, 40));
    return static_cast<int32_t>(id);
}

/// One token id or a list of them.
std::vector<int32_t> read_token_ids(const JsonFields& json, std::string_view name) {
    const Json* value = json.find(name);
    if (!value) return {};
    if (!value->is_array()) return {token_id(*value, name, json.where())};
    std::vector<int32_t> ids;
    for (const Json& element : *value) ids.push_back(token_id(element, name, json.where()));
    return ids;
}

void read_special_tokens(const JsonFields& json, const Architecture& architecture,
                         ModelConfig& config) {
    if (!json.has("bos_token_id")) {
        config.bos_token = architecture.default_bos;
    } else if (json.find("bos_token_id")) {
        config.bos_token = token_id(*json.find("bos_token_id"), "bos_token_id", json.where());
    }
    config.eos_tokens = read_token_ids(json, "eos_token_id");
    if (!json.has("eos_token_id") && architecture.default_eos) {
        config.eos_tokens = {*architecture.default_eos};
    }
}

/// generation_config.json has the last word on the tokens that it names.
void override_special_tokens(const JsonFields& generation, ModelConfig& config) {
    if (const Json* bos = generation.find("bos_token_id")) {
        config.bos_token = token_id(*bos, "bos_token_id", generation.where());
    }
    if (generation.find("eos_token_id")) {
        config.eos_tokens = read_token_ids(generation, "eos_token_id");
    }
}

std::string read_architecture_name(const JsonFields& json) {
    const Json* names = json.find("architectures");
    const bool valid = names && names->is_array() && !names->empty() && names->front().is_string();
    require(valid, "{}: field 'architectures' must name the model's architecture, found {}",
            json.where(), names ? names->dump().substr(0, 60) : "nothing");
    return names->front().get<std::string>();
}

void refuse_quantization(const JsonFields& json) {
    const Json* quantization = json.find("quantization_config");
    if (!quantization) return;
    const JsonFields fields(*quantization, json.where() + ": quantization_config");
    fail("{}: quantised weights ({}) are not supported; use the bf16, fp16 or fp32 checkpoint",
         json.where(), fields.get_or<std::string>("quant_method", "unknown method"));
}

void validate(const ModelConfig& config, std::string_view where) {
    require(config.num_heads % config.num_kv_heads == 0,
            "{}: field 'num_key_value_heads' ({}) must divide 'num_attention_heads' ({})", where,
            config.num_kv_heads, config.num_heads);
    require(config.q_size() <= kMaxWidth, "{}: {} heads of {} are more than {} in all", where,
            config.num_heads, config.head_dim, kMaxWidth);
    require(!config.rope || config.head_dim % 2 == 0,
            "{}: rotary positions need an even head_dim, found {}", where, config.head_dim);
    require(config.norm_eps > 0, "{}: field 'rms_norm_eps' is {}, expected a positive number",
            where, config.norm_eps);
}

}  // namespace

bool ModelConfig::has_step(LayerStep step) const {
    return std::ranges::find(layer_steps, step) != layer_steps.end();
}

double ModelConfig::attended_tokens(double context) const {
    if (sliding_window.empty()) return static_cast<double>(num_layers) * context;
    double tokens = 0;
    for (const auto& window : sliding_window) {
        tokens += window ? std::min(context, static_cast<double>(*window)) : context;
    }
    return tokens;
}

ModelConfig parse_config(const Json& config_json, const Json& generation, std::string_view where) {
    const JsonFields json(config_json, fmt::format("{}/config.json", where));
    const std::string name = read_architecture_name(json);
    const Architecture& architecture = find_architecture(name, json.where());
    refuse_quantization(json);

    ModelConfig config;
    config.architecture = name;
    config.dtype = declared_dtype(json).value_or(DType::kBF16);
    config.vocab_size = read_size(json, "vocab_size", kMaxVocab);
    config.hidden_size = read_size(json, "hidden_size", kMaxWidth);
    config.num_layers = read_size(json, "num_hidden_layers", kMaxLayers);
    config.num_heads = read_size(json, "num_attention_heads", kMaxWidth);
    config.max_position = read_size(json, "max_position_embeddings", kMaxPosition);
    config.sliding_window.resize(static_cast<size_t>(config.num_layers));
    architecture.read_config(json, config);
    validate(config, json.where());

    read_special_tokens(json, architecture, config);
    if (!generation.is_null()) {
        override_special_tokens({generation, fmt::format("{}/generation_config.json", where)},
                                config);
    }
    return config;
}

ModelConfig load_config(const std::filesystem::path& model_dir, std::optional<DType> dtype) {
    require(path_exists(model_dir),
            "{}: no such folder; a model is a Hugging Face folder with config.json and "
            "safetensors files",
            model_dir.string());
    const auto config_path = model_dir / "config.json";
    require(path_exists(config_path),
            "{}: no config.json there; a model is a Hugging Face folder with config.json and "
            "safetensors files",
            model_dir.string());
    const auto generation_path = model_dir / "generation_config.json";
    const Json json = read_json_file(config_path);
    const Json generation = path_exists(generation_path) ? read_json_file(generation_path) : Json();

    ModelConfig config = parse_config(json, generation, model_dir.string());
    if (dtype) {
        config.dtype = *dtype;
    } else if (!declared_dtype({json, config_path.string()})) {
        config.dtype = Checkpoint(model_dir).main_dtype();
    }
    return config;
}

}  // namespace dak
