#include "remote_tier.h"

#include "base/error.h"
#include "hardware/find_profile.h"
#include "memory/tier.h"

namespace dak::bench {

HardwareProfile remote_profile(const std::string& remote) {
    require(is_remote_tier(remote), "--remote: '{}' is neither host nor peer:N (N: a GPU's index)",
            remote);
    if (auto profile = find_profile(gather_system(), remote)) return *std::move(profile);
    return hardware_preset(peer_of(remote) ? "h200-peer" : "h200-pcie");
}

}  // namespace dak::bench
