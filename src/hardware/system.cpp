#include "hardware/system.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/units.h"
#include "hardware/nvml.h"
#include "hardware/pseudo_file.h"

namespace dak {

namespace {

namespace fs = std::filesystem;

/// Instruction sets that change how fast DAK computes on the CPU, as /proc/cpuinfo spells them.
constexpr std::array<std::string_view, 10> kIsa = {
    "avx2", "f16c",  "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16",  // x86
    "bf16", "asimd", "sve",     "sve2",                                    // ARM
};

/// Capability number of CAP_IPC_LOCK.
constexpr int kCapIpcLock = 14;

/// Entries of a directory whose name is `prefix` and a number, with that number, ascending.
std::vector<std::pair<int64_t, fs::path>> numbered_entries(const fs::path& directory,
                                                           std::string_view prefix,
                                                           std::string_view suffix = "") {
    std::vector<std::pair<int64_t, fs::path>> entries;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
        const auto number = parse_integer(std::string_view(name).substr(
            prefix.size(), name.size() - prefix.size() - suffix.size()));
        if (number) entries.emplace_back(*number, entry.path());
    }
    std::sort(entries.begin(), entries.end());
    return entries;
}

/// PRETTY_NAME="..." of os-release.
std::string read_os_name(const fs::path& root) {
    const auto text = read_pseudo_file(root / "etc/os-release");
    if (!text) return "Linux";
    constexpr std::string_view kKey = "PRETTY_NAME=";
    for (std::string_view line : split(*text, '\n')) {
        if (!line.starts_with(kKey)) continue;
        line = trim(line.substr(kKey.size()));
        if (line.size() >= 2 && line.front() == '"') line = line.substr(1, line.size() - 2);
        return std::string(line);
    }
    return "Linux";
}

/// ARM's cpuinfo has codes for the maker and the design instead of a name.
std::string arm_model(std::string_view cpuinfo) {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kDesigns = {{
        {"0xd0c", "Arm Neoverse N1"},
        {"0xd40", "Arm Neoverse V1"},
        {"0xd49", "Arm Neoverse N2"},
        {"0xd4f", "Arm Neoverse V2"},
    }};
    const auto maker = find_field(cpuinfo, "CPU implementer");
    const auto design = find_field(cpuinfo, "CPU part");
    if (!maker || !design) return "unknown";
    for (const auto& [code, name] : kDesigns) {
        if (*maker == "0x41" && *design == code) return std::string(name);
    }
    return fmt::format("ARM (maker {}, part {})", *maker, *design);
}

/// Names the physical core of a logical CPU; siblings of one core have the same name.
std::string core_of(const fs::path& cpu_directory, int cpu) {
    const auto siblings = read_pseudo_file(cpu_directory / fmt::format("cpu{}", cpu) /
                                           "topology/thread_siblings_list");
    return siblings ? *siblings : fmt::format("{}", cpu);
}

CpuInfo read_cpu(const fs::path& root) {
    CpuInfo cpu;
    const std::string cpuinfo = read_pseudo_file(root / "proc/cpuinfo").value_or("");
    const auto model = find_field(cpuinfo, "model name");
    cpu.model = model ? std::string(*model) : arm_model(cpuinfo);
    auto flags = find_field(cpuinfo, "flags");
    if (!flags) flags = find_field(cpuinfo, "Features");
    const auto features = split(flags.value_or(""), ' ');
    for (const std::string_view name : kIsa) {
        if (std::find(features.begin(), features.end(), name) != features.end()) {
            cpu.isa.emplace_back(name);
        }
    }

    const fs::path directory = root / "sys/devices/system/cpu";
    const auto online = parse_cpu_list(read_pseudo_file(directory / "online").value_or("0"));
    std::set<std::string> cores;
    std::set<int64_t> sockets;
    for (const int id : online) {
        cores.insert(core_of(directory, id));
        const fs::path topology = directory / fmt::format("cpu{}", id) / "topology";
        sockets.insert(read_pseudo_integer(topology / "physical_package_id").value_or(0));
    }
    cpu.threads = static_cast<int>(online.size());
    cpu.cores = static_cast<int>(cores.size());
    cpu.sockets = std::max(1, static_cast<int>(sockets.size()));

    const std::string status = read_pseudo_file(root / "proc/self/status").value_or("");
    const auto affinity = find_field(status, "Cpus_allowed_list");
    const auto affine = affinity ? parse_cpu_list(*affinity) : online;
    std::set_intersection(online.begin(), online.end(), affine.begin(), affine.end(),
                          std::back_inserter(cpu.allowed_cpus));
    std::set<std::string> allowed_cores;
    for (const int id : cpu.allowed_cpus) allowed_cores.insert(core_of(directory, id));
    cpu.allowed_cores = static_cast<int>(allowed_cores.size());
    return cpu;
}

HostMemory read_memory(const fs::path& root) {
    const std::string text = read_pseudo_file(root / "proc/meminfo").value_or("");
    return {find_kib_field(text, "MemTotal").value_or(0),
            find_kib_field(text, "MemAvailable").value_or(0)};
}

/// Whether the process has CAP_IPC_LOCK where the kernel asks for it: in the first user namespace,
/// the one that maps every user to itself. Root in a rootless container does not.
bool may_lock_any_amount(const fs::path& root, std::string_view status) {
    const auto capabilities = find_field(status, "CapEff");
    if (!capabilities) return false;
    const uint64_t bits = std::strtoull(std::string(*capabilities).c_str(), nullptr, 16);
    if (((bits >> kCapIpcLock) & 1) == 0) return false;
    const std::string map = read_pseudo_file(root / "proc/self/uid_map").value_or("");
    return map.empty() || split(map, ' ') == std::vector<std::string_view>{"0", "0", "4294967295"};
}

Memlock read_memlock(const fs::path& root) {
    Memlock memlock;
    const std::string limits = read_pseudo_file(root / "proc/self/limits").value_or("");
    constexpr std::string_view kName = "Max locked memory";
    for (const std::string_view line : split(limits, '\n')) {
        if (!line.starts_with(kName)) continue;
        const auto columns = split(line.substr(kName.size()), ' ');             // soft, hard, unit
        if (!columns.empty()) memlock.limit_bytes = parse_integer(columns[0]);  // or "unlimited"
    }
    const std::string status = read_pseudo_file(root / "proc/self/status").value_or("");
    memlock.exempt = may_lock_any_amount(root, status);
    return memlock;
}

HugePages read_huge_pages(const fs::path& root) {
    HugePages pages;
    // "always [madvise] never": the setting in force stands in brackets.
    const std::string modes =
        read_pseudo_file(root / "sys/kernel/mm/transparent_hugepage/enabled").value_or("");
    const size_t open = modes.find('[');
    const size_t close = modes.find(']', open);
    if (close != std::string::npos) pages.transparent = modes.substr(open + 1, close - open - 1);
    for (const auto& [kib, directory] :
         numbered_entries(root / "sys/kernel/mm/hugepages", "hugepages-", "kB")) {
        pages.pools.push_back({kib * kKiB,
                               read_pseudo_integer(directory / "nr_hugepages").value_or(0),
                               read_pseudo_integer(directory / "free_hugepages").value_or(0)});
    }
    return pages;
}

std::vector<NumaNode> read_numa_nodes(const fs::path& root) {
    std::vector<NumaNode> nodes;
    for (const auto& [id, directory] : numbered_entries(root / "sys/devices/system/node", "node")) {
        const std::string memory = read_pseudo_file(directory / "meminfo").value_or("");
        nodes.push_back({static_cast<int>(id),
                         find_kib_field(memory, fmt::format("Node {} MemTotal", id)).value_or(0),
                         find_kib_field(memory, fmt::format("Node {} MemFree", id)).value_or(0),
                         parse_cpu_list(read_pseudo_file(directory / "cpulist").value_or(""))});
    }
    return nodes;
}

/// Bus ids of NVIDIA's display controllers: vendor 0x10de, class 0x03....
std::vector<std::string> read_nvidia_pci_devices(const fs::path& root) {
    std::vector<std::string> devices;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(root / "sys/bus/pci/devices", error)) {
        const auto vendor = read_pseudo_file(entry.path() / "vendor");
        const auto device_class = read_pseudo_file(entry.path() / "class");
        if (vendor == "0x10de" && device_class && device_class->starts_with("0x03")) {
            devices.push_back(entry.path().filename().string());
        }
    }
    std::sort(devices.begin(), devices.end());
    return devices;
}

bool is_wsl(std::string kernel) {
    std::transform(kernel.begin(), kernel.end(), kernel.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return kernel.find("microsoft") != std::string::npos;
}

}  // namespace

SystemInfo gather_system(const fs::path& root, const nvml::Api* nvml) {
    SystemInfo info;
    info.os = read_os_name(root);
    info.kernel = read_pseudo_file(root / "proc/sys/kernel/osrelease").value_or("");
    info.wsl = is_wsl(info.kernel);
    info.cpu = read_cpu(root);
    info.memory = read_memory(root);
    info.cgroup = read_cgroup_limits(root);
    info.memlock = read_memlock(root);
    info.huge_pages = read_huge_pages(root);
    info.numa_nodes = read_numa_nodes(root);
    info.nvidia_pci_devices = read_nvidia_pci_devices(root);
    info.driver.kernel_module = read_pseudo_file(root / "proc/driver/nvidia/version").has_value();
    info.driver.library = nvml != nullptr;
    if (nvml) gather_gpus(*nvml, root, info);
    return info;
}

SystemInfo gather_system() {
    // Otherwise CUDA numbers GPUs by speed, and the management library by their place on the bus.
    ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    const auto nvml = nvml::load();
    SystemInfo info = gather_system("/", nvml ? &*nvml : nullptr);
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (visible != nullptr) info.gpus = visible_gpus(info.gpus, visible);
    return info;
}

std::vector<GpuInfo> visible_gpus(const std::vector<GpuInfo>& gpus, std::string_view visible) {
    std::vector<GpuInfo> result;
    std::map<int, int> new_index;
    for (const std::string_view name : split(visible, ',')) {
        const auto index = parse_integer(trim(name));
        const auto named = std::ranges::find_if(gpus, [&](const GpuInfo& gpu) {
            return index ? gpu.index == *index : gpu.uuid.starts_with(trim(name));
        });
        if (named == gpus.end() || new_index.contains(named->index)) break;
        new_index[named->index] = static_cast<int>(result.size());
        result.push_back(*named);
    }
    for (GpuInfo& gpu : result) {
        gpu.index = new_index.at(gpu.index);
        std::erase_if(gpu.peers,
                      [&](const GpuPeer& peer) { return !new_index.contains(peer.gpu); });
        for (GpuPeer& peer : gpu.peers) peer.gpu = new_index.at(peer.gpu);
    }
    return result;
}

int usable_threads(const SystemInfo& info) {
    int threads = std::max(1, info.cpu.allowed_cores);
    if (info.cgroup.cpus) {
        threads = std::min(threads, std::max(1, static_cast<int>(std::ceil(*info.cgroup.cpus))));
    }
    return threads;
}

int64_t usable_host_bytes(const SystemInfo& info) {
    const int64_t available = info.memory.available_bytes;
    return info.cgroup.memory ? std::min(available, info.cgroup.memory->left_bytes()) : available;
}

}  // namespace dak
