#pragma once

#include <string>

#include "hardware/profile.h"

namespace dak::bench {

/// What is known of this machine with the remote tier "host" or "peer:N" before anything is
/// measured: its profile as the engine would use it, else an H200's preset. To be asked before the
/// first use of CUDA, since it fixes the order in which CUDA numbers GPUs. Throws Error when
/// `remote` names no tier.
HardwareProfile remote_profile(const std::string& remote);

}  // namespace dak::bench
