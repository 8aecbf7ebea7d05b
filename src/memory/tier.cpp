#include "memory/tier.h"

#include <charconv>

namespace dak {

namespace {

constexpr std::string_view kPeer = "peer:";
constexpr int kMostGpus = 1000;

}  // namespace

std::optional<int> peer_of(std::string_view remote_tier) {
    if (!remote_tier.starts_with(kPeer)) return {};
    const std::string_view number = remote_tier.substr(kPeer.size());
    int gpu = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), gpu);
    const bool valid = error == std::errc() && end == number.data() + number.size();
    if (!valid || gpu < 0 || gpu >= kMostGpus) return {};
    return gpu;
}

bool is_remote_tier(std::string_view text) { return text == "host" || peer_of(text); }

}  // namespace dak
