#pragma once

#include <optional>
#include <string>

#include "hardware/profile.h"
#include "hardware/system.h"

namespace dak {

/// The profile that a user asks for: a preset by name, a file, or without `hardware` that of this
/// machine's first GPU, measured or preset. `remote`: "host" or "peer:N"; nothing: the profile's
/// own, or the host. Throws Error when there is none, saying what to do.
HardwareProfile choose_hardware(const std::optional<std::string>& hardware,
                                const std::optional<std::string>& remote, const SystemInfo& system);

/// Throws Error unless `remote` is "host" or "peer:N".
void check_remote(const std::string& remote);

/// Throws Error, too, unless this machine has it: the peer is another of its GPUs.
void check_remote_here(const std::string& remote, const SystemInfo& system);

}  // namespace dak
