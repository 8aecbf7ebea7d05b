#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/cgroup.h"
#include "memory/tier.h"

namespace dak {

namespace nvml {
struct Api;
}

struct CpuInfo {
    std::string model;
    int sockets = 1;
    int cores = 0;                  // physical, of the whole machine
    int threads = 0;                // logical CPUs online, of the whole machine
    std::vector<int> allowed_cpus;  // logical CPUs that this process may run on, ascending
    int allowed_cores = 0;          // physical cores they belong to
    std::vector<std::string> isa;   // those of the instruction sets that matter to DAK it has
};

struct HostMemory {
    int64_t total_bytes = 0;
    int64_t available_bytes = 0;  // without swapping, as the kernel estimates it
};

/// RLIMIT_MEMLOCK: how much memory this process may lock, and with it pin for a device.
struct Memlock {
    std::optional<int64_t> limit_bytes;  // nothing: unlimited
    bool exempt = false;                 // CAP_IPC_LOCK: the limit does not bind this process
};

struct HugePagePool {
    int64_t page_bytes = 0;
    int64_t total_pages = 0;
    int64_t free_pages = 0;
};

struct HugePages {
    std::string transparent;  // "always", "madvise", "never"; empty where the kernel has none
    std::vector<HugePagePool> pools;
};

struct NumaNode {
    int id = 0;
    int64_t total_bytes = 0;
    int64_t free_bytes = 0;
    std::vector<int> cpus;
};

struct PcieLink {
    int generation = 0;
    int lanes = 0;
};

/// Another GPU whose memory a GPU can read in place.
struct GpuPeer {
    int gpu = 0;
    bool nvlink = false;  // otherwise over PCIe
};

struct GpuInfo {
    int index = 0;
    std::string name;
    std::string uuid;
    std::string compute_capability;  // "9.0"
    std::string pci_bus_id;          // "0000:0f:00.0"
    int64_t memory_bytes = 0;
    int64_t free_bytes = 0;
    std::optional<PcieLink> link;      // as it runs now
    std::optional<PcieLink> max_link;  // of this GPU in this slot
    bool c2c = false;                  // joined to the CPU by NVLink-C2C rather than PCIe
    int nvlinks = 0;                   // active NVLink links
    std::optional<int> numa_node;
    std::vector<GpuPeer> peers;
};

struct DriverInfo {
    bool kernel_module = false;  // NVIDIA's kernel module is loaded
    bool library = false;        // NVIDIA's management library is installed
    std::string version;         // "580.65.06"
    int cuda_version = 0;        // newest CUDA it runs: 13000 is 13.0
    std::vector<std::string> errors;
};

/// The running machine as this process sees it. Empty or zero means that the system does not tell.
struct SystemInfo {
    std::string os;
    std::string kernel;
    bool wsl = false;
    CpuInfo cpu;
    HostMemory memory;
    CgroupLimits cgroup;
    Memlock memlock;
    HugePages huge_pages;
    std::vector<NumaNode> numa_nodes;  // empty where the kernel has no NUMA support
    DriverInfo driver;
    std::vector<std::string> nvidia_pci_devices;  // GPUs on the PCI bus, driver or not
    std::vector<GpuInfo> gpus;
};

/// Gathers everything from the running machine; takes milliseconds, with a GPU up to a second. GPUs
/// are those that CUDA shows this process, by the numbers it gives them.
SystemInfo gather_system();

/// The GPUs that an environment variable CUDA_VISIBLE_DEVICES of this value leaves, in its order
/// and numbered anew: indices or beginnings of UUIDs, separated by commas, up to the first that is
/// neither.
std::vector<GpuInfo> visible_gpus(const std::vector<GpuInfo>& gpus, std::string_view visible);

/// The same from the procfs and sysfs below `root` and the given NVML (null: none installed).
SystemInfo gather_system(const std::filesystem::path& root, const nvml::Api* nvml);

/// Worker threads that can run at once: one per allowed core, no more than the cgroup's CPU quota.
int usable_threads(const SystemInfo& info);

/// Host bytes that can be allocated now: available and within the cgroup's limit.
int64_t usable_host_bytes(const SystemInfo& info);

/// One place that DAK can put weights and KV pages in.
struct TierInfo {
    Tier tier = Tier::kLocal;
    std::string name;    // "local", "host", "peer:1"
    std::string memory;  // what it is on this machine
    int64_t usable_bytes = 0;
};

/// The tiers of this machine: with `gpu_execution` those of the first GPU, if there is one,
/// otherwise the CPU's, where both are host memory and share its bytes.
std::vector<TierInfo> tiers(const SystemInfo& info, bool gpu_execution);

/// What a user should know and act on, one or two sentences each: what is wrong, what it costs,
/// what to do.
std::vector<std::string> warnings(const SystemInfo& info);

}  // namespace dak
