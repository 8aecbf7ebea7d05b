#include "cli/model_choice.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "model/presets.h"

namespace dak {

std::optional<DType> parse_dtype(const std::string& name) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        if (name == name_of(dtype)) return dtype;
    }
    return {};
}

ModelConfig choose_model(const std::string& name, std::optional<DType> dtype) {
    if (path_exists(name)) return load_config(name, dtype);
    const std::vector<std::string_view> names = preset_names();
    require(std::ranges::find(names, name) != names.end(),
            "'{}' is neither a model folder nor a built-in model; there are {}", name,
            fmt::join(names, ", "));
    ModelConfig config = preset_config(name);
    config.dtype = dtype.value_or(config.dtype);
    return config;
}

}  // namespace dak
