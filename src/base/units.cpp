#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace dak {

std::string format_bytes(int64_t bytes) {
    static constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    size_t unit = 0;
    while (std::abs(value) >= 1024.0 && unit + 1 < kUnits.size()) {
        value /= 1024.0;
        ++unit;
    }
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

int64_t parse_bytes(std::string_view text, std::string_view what) {
    static constexpr std::array<std::pair<std::string_view, double>, 15> kSuffixes = {{
        {"", 1.0},
        {"b", 1.0},
        {"k", 0x1p10},
        {"m", 0x1p20},
        {"g", 0x1p30},
        {"t", 0x1p40},
        {"kib", 0x1p10},
        {"mib", 0x1p20},
        {"gib", 0x1p30},
        {"tib", 0x1p40},
        {"kb", 1e3},
        {"mb", 1e6},
        {"gb", 1e9},
        {"tb", 1e12},
        {"bytes", 1.0},
    }};
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    std::string suffix;
    for (const char* c = end; c != text.data() + text.size(); ++c) {
        if (*c != ' ') suffix += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    }
    if (error == std::errc{} && std::isfinite(value) && value >= 0) {
        for (const auto& [name, factor] : kSuffixes) {
            if (suffix == name && value * factor < 0x1p62) {
                return static_cast<int64_t>(value * factor);
            }
        }
    }
    fail("{}: '{}' is no amount of memory; write it like 90GiB, 96GB or 512MiB", what, text);
}

}  // namespace dak
