#include <cstring>
#include <string_view>

#include "base/error.h"
#include "model/safetensors.h"

// The header of a safetensors file. The first two bytes say how much data follows the header.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    uint16_t data_bytes = 0;
    if (size < sizeof(data_bytes)) return 0;
    std::memcpy(&data_bytes, data, sizeof(data_bytes));
    const std::string_view header(reinterpret_cast<const char*>(data) + sizeof(data_bytes),
                                  size - sizeof(data_bytes));
    const auto file_size = static_cast<int64_t>(8 + header.size() + data_bytes);
    try {
        for (const auto& [name, tensor] :
             dak::parse_safetensors_header(header, file_size, "fuzz")) {
            // What the loader relies on: tensors lie inside the file.
            if (tensor.offset < 8 || tensor.bytes < 0 || tensor.offset + tensor.bytes > file_size) {
                __builtin_trap();
            }
        }
    } catch (const dak::Error&) {
    }
    return 0;
}
