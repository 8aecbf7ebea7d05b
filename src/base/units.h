#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dak {

constexpr int64_t kKiB = int64_t{1} << 10;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

constexpr int64_t ceil_div(int64_t value, int64_t divisor) {
    return (value + divisor - 1) / divisor;
}

constexpr int64_t round_up(int64_t value, int64_t multiple) {
    return ceil_div(value, multiple) * multiple;
}

/// "512 B", "1.5 KiB", "270.1 MiB", "55.6 GiB".
std::string format_bytes(int64_t bytes);

/// Parses "90GiB", "96 GB", "1.5g", "4096" (bytes). GiB, MiB, KiB and the bare letters g, m, k are
/// binary; GB, MB, KB are decimal. Throws Error on anything else; `what` names the option.
int64_t parse_bytes(std::string_view text, std::string_view what);

}  // namespace dak
