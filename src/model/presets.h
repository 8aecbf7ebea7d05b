#pragma once

#include <string_view>
#include <vector>

#include "model/config.h"

namespace dak {

/// The names of the models whose published hyper-parameters are built in: "opt-30b", ...
std::vector<std::string_view> preset_names();

/// The configuration of a built-in model. Throws Error listing the names when there is none such.
ModelConfig preset_config(std::string_view name);

}  // namespace dak
