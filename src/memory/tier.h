#pragma once

#include <cstdint>
#include <string_view>

namespace dak {

/// Where a byte lives as the computing device sees it: its own memory, or the overflow it reads in
/// place over a link.
enum class Tier : uint8_t { kLocal, kRemote };

constexpr std::string_view name_of(Tier tier) { return tier == Tier::kLocal ? "local" : "remote"; }

}  // namespace dak
