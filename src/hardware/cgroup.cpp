#include "hardware/cgroup.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "hardware/pseudo_file.h"

namespace dak {

namespace {

namespace fs = std::filesystem;

/// Version 1 writes "no limit" as the largest multiple of the page size; no machine has 2^60 bytes.
constexpr int64_t kNoLimit = int64_t{1} << 60;

/// Where one controller's tree is mounted: `mount_point` shows the tree from group `group` down.
struct Mount {
    std::string group;
    fs::path mount_point;
};

bool contains(const std::vector<std::string_view>& words, std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

/// The mount of a version 1 controller, or of version 2 where `controller` is empty.
std::optional<Mount> find_mount(std::string_view mountinfo, std::string_view controller) {
    for (const std::string_view line : split(mountinfo, '\n')) {
        // id parent device group mount-point options [optional fields] - type source super-options
        const size_t separator = line.find(" - ");
        if (separator == std::string_view::npos) continue;
        const auto before = split(line.substr(0, separator), ' ');
        const auto after = split(line.substr(separator + 3), ' ');
        if (before.size() < 5 || after.size() < 3) continue;
        const bool found = controller.empty()
                               ? after[0] == "cgroup2"
                               : after[0] == "cgroup" && contains(split(after[2], ','), controller);
        if (found) return Mount{std::string(before[3]), fs::path(before[4])};
    }
    return {};
}

/// The process's group in /proc/self/cgroup ("id:controller,controller:path" lines); version 2 has
/// no controllers there.
std::optional<std::string> find_group(std::string_view cgroup_file, std::string_view controller) {
    for (const std::string_view line : split(cgroup_file, '\n')) {
        const size_t first = line.find(':');
        const size_t second = line.find(':', first + 1);
        if (first == std::string_view::npos || second == std::string_view::npos) continue;
        const std::string_view controllers = line.substr(first + 1, second - first - 1);
        const bool found = controller.empty() ? controllers.empty()
                                              : contains(split(controllers, ','), controller);
        if (found) return std::string(line.substr(second + 1));
    }
    return {};
}

/// Directories of the group and its ancestors as far as they are mounted, innermost first.
std::vector<fs::path> group_directories(const fs::path& root, const Mount& mount,
                                        const std::string& group) {
    const fs::path top = root / mount.mount_point.relative_path();
    // A container sees its own group as the mount's root, under a path that only the host knows.
    std::string below;
    if (mount.group == "/") {
        below = group;
    } else if (group.starts_with(mount.group + "/")) {
        below = group.substr(mount.group.size());
    }
    std::vector<fs::path> directories = {top};
    for (const std::string_view name : split(below, '/')) {
        const fs::path next = directories.back() / name;
        std::error_code unreadable;
        if (name == ".." || !fs::is_directory(next, unreadable)) break;
        directories.push_back(next);
    }
    std::reverse(directories.begin(), directories.end());
    return directories;
}

/// Files of the memory controller, which differ between the versions in name only.
struct MemoryFiles {
    std::string_view limit, usage, inactive_file;
};
constexpr MemoryFiles kMemoryV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file"};
constexpr MemoryFiles kMemoryV2 = {"memory.max", "memory.current", "inactive_file"};

int64_t memory_stat(const fs::path& directory, std::string_view key) {
    const auto text = read_pseudo_file(directory / "memory.stat");
    if (!text) return 0;
    for (const std::string_view line : split(*text, '\n')) {
        const auto words = split(line, ' ');
        if (words.size() == 2 && words[0] == key) return parse_integer(words[1]).value_or(0);
    }
    return 0;
}

std::optional<CgroupMemory> tightest_memory(const std::vector<fs::path>& directories,
                                            const MemoryFiles& files) {
    std::optional<CgroupMemory> tightest;
    for (const fs::path& directory : directories) {
        const auto limit = read_pseudo_integer(directory / files.limit);  // "max" is no integer
        if (!limit || *limit >= kNoLimit) continue;
        const int64_t usage = read_pseudo_integer(directory / files.usage).value_or(0);
        const int64_t cache = memory_stat(directory, files.inactive_file);
        const CgroupMemory memory = {*limit, std::max<int64_t>(0, usage - cache)};
        if (!tightest || memory.left_bytes() < tightest->left_bytes()) tightest = memory;
    }
    return tightest;
}

std::optional<double> cpu_quota_v1(const fs::path& directory) {
    const auto quota = read_pseudo_integer(directory / "cpu.cfs_quota_us");
    const auto period = read_pseudo_integer(directory / "cpu.cfs_period_us");
    if (!quota || !period || *quota <= 0 || *period <= 0) return {};
    return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> cpu_quota_v2(const fs::path& directory) {
    const auto text = read_pseudo_file(directory / "cpu.max");
    if (!text) return {};
    const auto words = split(*text, ' ');
    if (words.size() != 2) return {};
    const auto quota = parse_integer(words[0]);  // "max" is no integer
    const auto period = parse_integer(words[1]);
    if (!quota || !period || *quota <= 0 || *period <= 0) return {};
    return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> tightest_cpus(const std::vector<fs::path>& directories,
                                    std::optional<double> (*quota_of)(const fs::path&)) {
    std::optional<double> tightest;
    for (const fs::path& directory : directories) {
        const auto quota = quota_of(directory);
        if (quota && (!tightest || *quota < *tightest)) tightest = quota;
    }
    return tightest;
}

}  // namespace

CgroupLimits read_cgroup_limits(const fs::path& root) {
    const auto cgroup_file = read_pseudo_file(root / "proc/self/cgroup");
    const auto mountinfo = read_pseudo_file(root / "proc/self/mountinfo");
    if (!cgroup_file || !mountinfo) return {};
    const auto directories_of = [&](std::string_view controller) -> std::vector<fs::path> {
        const auto group = find_group(*cgroup_file, controller);
        const auto mount = find_mount(*mountinfo, controller);
        return group && mount ? group_directories(root, *mount, *group) : std::vector<fs::path>{};
    };
    // On mixed systems a controller is in version 1 or in version 2, never in both.
    CgroupLimits limits;
    const auto unified = directories_of("");
    const auto memory_v1 = directories_of("memory");
    if (!memory_v1.empty()) {
        limits.version = 1;
        limits.memory = tightest_memory(memory_v1, kMemoryV1);
    } else if (!unified.empty()) {
        limits.version = 2;
        limits.memory = tightest_memory(unified, kMemoryV2);
    }
    const auto cpu_v1 = directories_of("cpu");
    limits.cpus =
        cpu_v1.empty() ? tightest_cpus(unified, cpu_quota_v2) : tightest_cpus(cpu_v1, cpu_quota_v1);
    return limits;
}

}  // namespace dak
