#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "model/weights.h"

// A config.json, with a generation_config.json after the first zero byte.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const size_t end = text.find('\0');
    try {
        const dak::Json generation = end == std::string_view::npos
                                         ? dak::Json()
                                         : dak::parse_json(text.substr(end + 1), "fuzz");
        const dak::ModelConfig config =
            dak::parse_config(dak::parse_json(text.substr(0, end), "fuzz"), generation, "fuzz");
        // An accepted model can be planned: its sizes are positive and do not overflow.
        int64_t bytes = 0;
        for (const dak::WeightSpec& spec : dak::weight_specs(config)) {
            if (spec.shape.bytes() <= 0 ||
                __builtin_add_overflow(bytes, spec.shape.bytes(), &bytes)) {
                __builtin_trap();
            }
        }
    } catch (const dak::Error&) {
    }
    return 0;
}
