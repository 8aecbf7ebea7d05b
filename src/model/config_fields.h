#pragma once

#include <string_view>

#include "base/json.h"
#include "model/config.h"

// Readers of config.json fields that architectures share. All throw Error naming the field.

namespace dak {

// Far beyond any published model, and small enough that no product of sizes overflows 64 bits.
inline constexpr int64_t kMaxVocab = int64_t{1} << 24;
inline constexpr int64_t kMaxWidth = int64_t{1} << 20;  ///< also heads * head_dim
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHeadDim = 4096;
inline constexpr int64_t kMaxPosition = int64_t{1} << 30;

/// A size from 1 to `max`.
int64_t read_size(const JsonFields& json, std::string_view name, int64_t max);
int64_t read_size_or(const JsonFields& json, std::string_view name, int64_t max, int64_t fallback);

Activation read_activation(const JsonFields& json, std::string_view name, Activation fallback);

/// Sets config.rope from "rope_parameters", or "rope_scaling" and "rope_theta". Dynamic scaling
/// also stretches config.max_position by its factor.
void read_rope(const JsonFields& json, ModelConfig& config);

}  // namespace dak
