#include "hardware/find_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/file.h"

namespace dak {

std::string link_of(const GpuInfo& gpu, std::string_view remote) {
    if (remote != "host") {
        const bool nvlink = std::ranges::any_of(gpu.peers, [&](const GpuPeer& peer) {
            return peer.nvlink && fmt::format("peer:{}", peer.gpu) == remote;
        });
        if (nvlink) return fmt::format("NVLink x{}", gpu.nvlinks);
    } else if (gpu.c2c) {
        return "NVLink-C2C";
    }
    if (!gpu.max_link) return "unknown link";
    return fmt::format("PCIe gen {} x{}", gpu.max_link->generation, gpu.max_link->lanes);
}

std::filesystem::path profile_path(const SystemInfo& system, const GpuInfo& gpu,
                                   std::string_view remote) {
    return profile_cache_path(gpu.uuid, system.driver.version, link_of(gpu, remote), remote);
}

std::optional<HardwareProfile> preset_of(std::string_view gpu_name, std::string_view remote) {
    // More telling names first.
    constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kNames = {{
        {"H200", "h200-pcie"},
        {"GH200", "gh200"},
        {"H100 PCIe", "h100-pcie"},
        {"H100", "h100-sxm"},
        {"B200", "b200"},
        {"RTX 4090", "rtx-4090"},
        {"RTX 5090", "rtx-5090"},
        {"RTX PRO 6000", "rtx-pro-6000"},
        {"RTX 6000 Pro", "rtx-pro-6000"},
    }};
    // "GH200" and "GB200" hold the names of other chips.
    const bool grace = gpu_name.find("GH200") != std::string_view::npos;
    if (gpu_name.find("GB200") != std::string_view::npos) return {};
    for (const auto& [part, preset] : kNames) {
        if (gpu_name.find(part) == std::string_view::npos) continue;
        if (grace && preset != "gh200") continue;
        if (remote == "host") return hardware_preset(preset);
        if (preset != "h200-pcie") return {};
        HardwareProfile peer = hardware_preset("h200-peer");
        peer.remote = remote;
        return peer;
    }
    return {};
}

std::optional<HardwareProfile> find_profile(const SystemInfo& system, std::string_view remote) {
    if (system.gpus.empty()) return {};
    const GpuInfo& gpu = system.gpus.front();
    // Without a home there is no measured profile either.
    if (has_profile_cache()) {
        const std::filesystem::path path = profile_path(system, gpu, remote);
        if (path_exists(path)) return read_hardware_profile(path);
    }
    return preset_of(gpu.name, remote);
}

}  // namespace dak
