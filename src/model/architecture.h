#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "model/config.h"

namespace dak {

/// Checkpoint names of a model's tensors. "{}" in a layer's name stands for the layer index. A name
/// without ".weight"/".bias" is a module: those suffixes are added. Empty: the model has none.
struct TensorNames {
    std::string_view prefixes[3];  ///< name prefixes to try in order ("model.", "", ...)
    std::string_view embedding;
    std::string_view positions;
    std::string_view project_in;
    std::string_view project_out;
    std::string_view final_norm;
    std::string_view lm_head;  ///< outside the prefix
    std::string_view attention_norm;
    std::string_view q, k, v, output;
    std::string_view q_norm, k_norm;
    std::string_view mlp_norm;
    std::string_view gate, up, down;
};

/// An architecture: how its config.json is read into a ModelConfig, and what its tensors are
/// called. Adding one of the Llama family is one more entry in the table of architecture.cpp.
struct Architecture {
    std::string_view name;  ///< as in config.json's "architectures"
    TensorNames tensors;
    /// What the architecture means by a config.json without "bos_token_id" or "eos_token_id".
    std::optional<int32_t> default_bos, default_eos;
    /// Fills what is particular to the architecture; the common fields are already read.
    void (*read_config)(const JsonFields& json, ModelConfig& config);
};

std::span<const Architecture> architectures();

/// Throws Error listing the supported names when `name` is not among them.
const Architecture& find_architecture(std::string_view name, std::string_view where);

}  // namespace dak
