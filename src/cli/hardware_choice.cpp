#include "cli/hardware_choice.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "hardware/find_profile.h"
#include "memory/tier.h"

namespace dak {

void check_remote(const std::string& remote) {
    require(is_remote_tier(remote), "--remote: '{}' is neither host nor peer:N (N: a GPU's index)",
            remote);
    require(peer_of(remote) != 0, "--remote {}: that is the GPU that computes; name another",
            remote);
}

void check_remote_here(const std::string& remote, const SystemInfo& system) {
    check_remote(remote);
    const std::optional<int> peer = peer_of(remote);
    if (!peer) return;
    const auto gpus = static_cast<int>(system.gpus.size());
    require(*peer < gpus, "--remote {}: there is no GPU {}; this machine has {}", remote, *peer,
            gpus);
}

HardwareProfile choose_hardware(const std::optional<std::string>& hardware,
                                const std::optional<std::string>& remote,
                                const SystemInfo& system) {
    if (remote) check_remote(*remote);
    if (!hardware) {
        const std::string tier = remote.value_or("host");
        if (!system.gpus.empty()) check_remote_here(tier, system);
        if (auto profile = find_profile(system, tier)) return *std::move(profile);
        require(!system.gpus.empty(),
                "there is no GPU here; say for which machine to plan with --hardware: {}, or a "
                "profile that 'dak profile' wrote",
                fmt::join(hardware_preset_names(), ", "));
        fail(
            "this machine's {} has not been measured with remote tier {}; run 'dak profile "
            "--remote "
            "{}', or name a like machine with --hardware",
            system.gpus.front().name, tier, tier);
    }
    const std::vector<std::string> names = hardware_preset_names();
    const bool preset = std::ranges::find(names, *hardware) != names.end();
    require(preset || path_exists(*hardware),
            "--hardware: '{}' is neither a file nor a built-in machine; there are {}", *hardware,
            fmt::join(names, ", "));
    HardwareProfile profile =
        preset ? hardware_preset(*hardware) : read_hardware_profile(*hardware);
    // One peer is like another.
    const bool same_kind = !remote || (*remote == "host") == (profile.remote == "host");
    require(same_kind, "--hardware {} describes remote tier {}, not {}", *hardware, profile.remote,
            remote.value_or(""));
    return profile;
}

}  // namespace dak
