#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dak {

/// Where a byte lives as the computing device sees it: its own memory, or the overflow it reads in
/// place over a link.
enum class Tier : uint8_t { kLocal, kRemote };

constexpr std::string_view name_of(Tier tier) { return tier == Tier::kLocal ? "local" : "remote"; }

/// Whether the text names a remote tier: "host", or "peer:N" for the memory of GPU N.
bool is_remote_tier(std::string_view text);

/// N of "peer:N"; nothing for "host".
std::optional<int> peer_of(std::string_view remote_tier);

}  // namespace dak
