#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hardware/profile.h"
#include "hardware/system.h"

namespace dak {

/// "PCIe gen 5 x16", "NVLink-C2C", "NVLink x18": what joins the GPU to the remote tier ("host" or
/// "peer:N"), at its best; "unknown link" where the system does not tell.
std::string link_of(const GpuInfo& gpu, std::string_view remote);

/// Where the measured profile of this GPU is kept.
std::filesystem::path profile_path(const SystemInfo& system, const GpuInfo& gpu,
                                   std::string_view remote);

/// The profile of this machine's first GPU: the measured one, else the preset of its kind; nothing
/// without a GPU or for a kind that no preset describes.
std::optional<HardwareProfile> find_profile(const SystemInfo& system, std::string_view remote);

/// The preset of a GPU by the name that the driver gives it; nothing when there is none.
std::optional<HardwareProfile> preset_of(std::string_view gpu_name, std::string_view remote);

}  // namespace dak
