#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace dak {

/// Memory limit of a control group and what is used of it, in bytes.
struct CgroupMemory {
    int64_t limit_bytes = 0;
    int64_t used_bytes = 0;  // without file cache that the kernel would drop first

    int64_t left_bytes() const { return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0; }
};

/// What the control groups of this process (containers, systemd units, batch systems) allow it.
struct CgroupLimits {
    int version = 0;                     // of the memory controller: 1, 2, or 0 for none
    std::optional<CgroupMemory> memory;  // of the group that leaves least; nothing: no limit
    std::optional<double> cpus;          // CPU time per second of wall time; nothing: no quota
};

/// Reads <root>/proc/self/{cgroup,mountinfo} and the files of the groups they name, versions 1
/// and 2. Limits hold for a group and all its descendants, so every ancestor is looked at.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root);

}  // namespace dak
