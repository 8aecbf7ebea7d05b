#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "model/checkpoint.h"

// A model.safetensors.index.json.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        for (const auto& [tensor, shard] :
             dak::parse_safetensors_index(dak::parse_json(text, "fuzz"), "fuzz")) {
            // Shards stay in the model's folder.
            if (shard.empty() || shard == ".." || shard.find('/') != std::string::npos) {
                __builtin_trap();
            }
        }
    } catch (const dak::Error&) {
    }
    return 0;
}
