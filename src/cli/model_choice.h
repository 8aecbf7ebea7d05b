#pragma once

#include <optional>
#include <string>

#include "model/config.h"

namespace dak {

/// The type called "fp32", "fp16" or "bf16"; nothing for any other word ("auto").
std::optional<DType> parse_dtype(const std::string& name);

/// The model that a user names: a folder or a built-in one, with weights of `dtype` where given.
/// Throws Error when it is neither.
ModelConfig choose_model(const std::string& name, std::optional<DType> dtype);

}  // namespace dak
