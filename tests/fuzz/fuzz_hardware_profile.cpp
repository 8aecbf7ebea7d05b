#include <string_view>

#include "base/error.h"
#include "hardware/profile.h"

// A hardware profile, as `dak profile` writes it and --hardware reads it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    try {
        const dak::HardwareProfile profile = dak::parse_hardware_profile(
            dak::parse_json(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz"),
            "fuzz");
        // What is accepted can be written and read again.
        const dak::Json json = dak::to_json(profile);
        if (dak::to_json(dak::parse_hardware_profile(json, "fuzz")) != json) __builtin_trap();
    } catch (const dak::Error&) {
    }
    return 0;
}
