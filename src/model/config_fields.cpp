#include "model/config_fields.h"

#include <algorithm>
#include <array>
#include <utility>

namespace dak {

int64_t read_size(const JsonFields& json, std::string_view name, int64_t max) {
    const int64_t value = json.get<int64_t>(name);
    require(value >= 1 && value <= max, "{}: field '{}' is {}, expected 1 to {}", json.where(),
            name, value, max);
    return value;
}

int64_t read_size_or(const JsonFields& json, std::string_view name, int64_t max, int64_t fallback) {
    return json.find(name) ? read_size(json, name, max) : fallback;
}

Activation read_activation(const JsonFields& json, std::string_view name, Activation fallback) {
    static constexpr std::array<std::pair<std::string_view, Activation>, 10> kNames = {{
        {"relu", Activation::kRelu},
        {"silu", Activation::kSilu},
        {"swish", Activation::kSilu},
        {"gelu", Activation::kGelu},
        {"gelu_python", Activation::kGelu},
        {"gelu_new", Activation::kGeluTanh},
        {"gelu_fast", Activation::kGeluTanh},
        {"gelu_accurate", Activation::kGeluTanh},
        {"gelu_pytorch_tanh", Activation::kGeluTanh},
        {"gelu_python_tanh", Activation::kGeluTanh},
    }};
    const auto value = json.maybe<std::string>(name);
    if (!value) return fallback;
    const auto* const known =
        std::ranges::find(kNames, *value, &std::pair<std::string_view, Activation>::first);
    require(known != kNames.end(),
            "{}: {} '{}' is not supported; supported are relu, silu, gelu and its tanh variants",
            json.where(), name, *value);
    return known->second;
}

namespace {

double read_positive(const JsonFields& json, std::string_view name) {
    const double value = json.get<double>(name);
    require(value > 0, "{}: field '{}' is {}, expected a positive number", json.where(), name,
            value);
    return value;
}

double read_factor(const JsonFields& json) {
    const double factor = json.get<double>("factor");
    require(factor >= 1, "{}: field 'factor' is {}, expected at least 1", json.where(), factor);
    return factor;
}

void require_full_rotation(const JsonFields& json) {
    const double share = json.get_or<double>("partial_rotary_factor", 1.0);
    require(share == 1.0,
            "{}: partial_rotary_factor {} is not supported; only whole heads are rotated",
            json.where(), share);
}

/// Where the rope settings stand: old files have "rope_scaling", which wins, new ones
/// "rope_parameters".
std::string_view rope_field(const JsonFields& json) {
    const Json* scaling = json.find("rope_scaling");
    return scaling && !scaling->empty() ? "rope_scaling" : "rope_parameters";
}

void read_llama3(const JsonFields& json, const JsonFields& rope_json, const ModelConfig& config,
                 Rope& rope) {
    static constexpr std::string_view kOriginal = "original_max_position_embeddings";
    rope.scaling = RopeScaling::kLlama3;
    rope.factor = read_factor(rope_json);
    rope.low_freq_factor = read_positive(rope_json, "low_freq_factor");
    rope.high_freq_factor = read_positive(rope_json, "high_freq_factor");
    require(rope.high_freq_factor > rope.low_freq_factor,
            "{}: field 'high_freq_factor' ({}) must exceed 'low_freq_factor' ({})",
            rope_json.where(), rope.high_freq_factor, rope.low_freq_factor);
    rope.original_max_position =
        json.find(kOriginal)
            ? read_size(json, kOriginal, kMaxPosition)
            : read_size_or(rope_json, kOriginal, kMaxPosition, config.max_position);
}

}  // namespace

void read_rope(const JsonFields& json, ModelConfig& config) {
    static const Json kNone = Json::object();
    const std::string_view field = rope_field(json);
    const Json* object = json.find(field);
    const JsonFields rope_json(object ? *object : kNone,
                               fmt::format("{}: {}", json.where(), field));

    Rope rope;
    if (rope_json.find("rope_theta")) {
        rope.theta = read_positive(rope_json, "rope_theta");
    } else if (json.find("rope_theta")) {
        rope.theta = read_positive(json, "rope_theta");
    }
    require_full_rotation(json);
    require_full_rotation(rope_json);

    const auto type = rope_json.get_or<std::string>(
        "rope_type", rope_json.get_or<std::string>("type", "default"));
    if (type == "linear") {
        rope.scaling = RopeScaling::kLinear;
        rope.factor = read_factor(rope_json);
    } else if (type == "dynamic") {
        rope.scaling = RopeScaling::kDynamic;
        rope.factor = read_factor(rope_json);
        rope.original_max_position = config.max_position;
        config.max_position =
            static_cast<int64_t>(std::min(static_cast<double>(kMaxPosition),
                                          rope.factor * static_cast<double>(config.max_position)));
    } else if (type == "llama3") {
        read_llama3(json, rope_json, config, rope);
    } else if (type != "default") {
        fail("{}: rope type '{}' is not supported; supported are default, linear, dynamic, llama3",
             rope_json.where(), type);
    }
    for (const std::string_view layer_type : {"full_attention", "sliding_attention"}) {
        require(!rope_json.has(layer_type), "{}: rope settings per layer type are not supported",
                rope_json.where());
    }
    config.rope = rope;
}

}  // namespace dak
