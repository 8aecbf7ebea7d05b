#include <fmt/format.h>

#include "hardware/system.h"

namespace dak {

std::vector<TierInfo> tiers(const SystemInfo& info, bool gpu_execution) {
    const int64_t host_bytes = usable_host_bytes(info);
    if (!gpu_execution || info.gpus.empty()) {
        return {{Tier::kLocal, "local", "host memory, computed on by the CPU", host_bytes},
                {Tier::kRemote, "host", "host memory too, sharing the same bytes", host_bytes}};
    }
    const GpuInfo& gpu = info.gpus.front();
    std::vector<TierInfo> all = {{Tier::kLocal, "local",
                                  fmt::format("memory of GPU {} ({})", gpu.index, gpu.name),
                                  gpu.free_bytes}};
    std::string link = "PCIe";
    if (gpu.c2c) {
        link = "NVLink-C2C";
    } else if (gpu.max_link) {
        link = fmt::format("PCIe {} x{}", gpu.max_link->generation, gpu.max_link->lanes);
    }
    all.push_back(
        {Tier::kRemote, "host", fmt::format("pinned host memory over {}", link), host_bytes});
    for (const GpuPeer& peer : gpu.peers) {
        for (const GpuInfo& other : info.gpus) {
            if (other.index != peer.gpu) continue;
            all.push_back({Tier::kRemote, fmt::format("peer:{}", other.index),
                           fmt::format("memory of GPU {} ({}) over {}", other.index, other.name,
                                       peer.nvlink ? "NVLink" : "PCIe"),
                           other.free_bytes});
        }
    }
    return all;
}

}  // namespace dak
