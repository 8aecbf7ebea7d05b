#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "hardware/profile.h"
#include "hardware/system.h"

namespace dak {

/// Told before each measurement: its name, and the share of them that is done (0..1).
using ProfileProgress = std::function<void(std::string_view next, double done)>;

/// Measures the current machine's first GPU with remote tier "host" or "peer:N": takes seconds, and
/// gigabytes of GPU and of remote memory meanwhile. What only a datasheet knows is left empty.
/// Throws Error when memory cannot be had or the GPU cannot run the kernels.
HardwareProfile measure_hardware(const SystemInfo& system, const std::string& remote,
                                 const ProfileProgress& progress);

}  // namespace dak
