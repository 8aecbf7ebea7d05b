#include "cli/system_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "hardware/pseudo_file.h"

namespace dak {

namespace {

constexpr size_t kColumns = 100;
constexpr size_t kLabelWidth = 16;

/// Builds the report line by line; long texts continue below their own beginning.
class Report {
  public:
    void section(std::string_view title) {
        if (!text_.empty()) text_ += '\n';
        text_ += fmt::format("{}\n", title);
    }

    void line(std::string_view label, std::string_view value) {
        add(fmt::format("  {:<{}}", label, kLabelWidth), value);
    }

    void item(std::string_view value) { add("  - ", value); }

    std::string take() { return std::move(text_); }

  private:
    void add(const std::string& head, std::string_view value) {
        std::string row = head;
        bool fresh = true;  // nothing but the margin so far
        for (const std::string_view word : split(value, ' ')) {
            if (!fresh && row.size() + 1 + word.size() > kColumns) {
                text_ += row + '\n';
                row = std::string(head.size(), ' ');
                fresh = true;
            }
            if (!fresh) row += ' ';
            row += word;
            fresh = false;
        }
        text_ += row + '\n';
    }

    std::string text_;
};

std::string count(int64_t number, std::string_view noun) {
    return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string link_text(const PcieLink& link) {
    return fmt::format("gen {} x{}", link.generation, link.lanes);
}

std::string or_unknown(const std::string& text) { return text.empty() ? "unknown" : text; }

std::string cuda_text(int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

void add_machine(const SystemInfo& info, Report& report) {
    const CpuInfo& cpu = info.cpu;
    report.section("Machine");
    report.line("System", fmt::format("{}, kernel {}{}", info.os, or_unknown(info.kernel),
                                      info.wsl ? " (WSL)" : ""));
    report.line("CPU", fmt::format("{}: {}, {}, {}", cpu.model, count(cpu.sockets, "socket"),
                                   count(cpu.cores, "core"), count(cpu.threads, "thread")));
    const std::string quota =
        info.cgroup.cpus ? fmt::format("quota {:.1f} CPUs", *info.cgroup.cpus) : "no quota";
    report.line("Usable here", fmt::format("{} (CPUs {}), {}: {}", count(cpu.allowed_cores, "core"),
                                           format_cpu_list(cpu.allowed_cpus), quota,
                                           count(usable_threads(info), "worker thread")));
    report.line("Instructions", cpu.isa.empty() ? "none of those DAK makes use of"
                                                : fmt::format("{}", fmt::join(cpu.isa, " ")));
    if (info.numa_nodes.empty()) report.line("NUMA", "not supported by this kernel");
    for (const NumaNode& node : info.numa_nodes) {
        report.line(
            fmt::format("NUMA node {}", node.id),
            fmt::format("{}, {} free, {}", format_bytes(node.total_bytes),
                        format_bytes(node.free_bytes),
                        node.cpus.empty() ? "no CPUs" : "CPUs " + format_cpu_list(node.cpus)));
    }
}

std::string cgroup_text(const CgroupLimits& cgroup) {
    if (cgroup.version == 0) return "none";
    const std::string version = fmt::format("version {}, ", cgroup.version);
    if (!cgroup.memory) return version + "no memory limit";
    return version + fmt::format("limit {}, {} in use, {} left",
                                 format_bytes(cgroup.memory->limit_bytes),
                                 format_bytes(cgroup.memory->used_bytes),
                                 format_bytes(cgroup.memory->left_bytes()));
}

std::string memlock_text(const Memlock& memlock) {
    if (!memlock.limit_bytes) return "unlimited";
    return format_bytes(*memlock.limit_bytes) +
           (memlock.exempt ? ", not binding for this process (CAP_IPC_LOCK)" : "");
}

std::string huge_pages_text(const HugePages& pages) {
    std::string text = "transparent: " + (pages.transparent.empty() ? "none" : pages.transparent);
    for (const HugePagePool& pool : pages.pools) {
        text += fmt::format("; {}: {} reserved", format_bytes(pool.page_bytes), pool.total_pages);
        if (pool.total_pages > 0) text += fmt::format(" ({} free)", pool.free_pages);
    }
    return text;
}

void add_memory(const SystemInfo& info, Report& report) {
    report.section("Memory and limits");
    report.line("Host memory",
                fmt::format("{}, {} available", format_bytes(info.memory.total_bytes),
                            format_bytes(info.memory.available_bytes)));
    report.line("Cgroup", cgroup_text(info.cgroup));
    report.line("Memlock", memlock_text(info.memlock));
    report.line("Huge pages", huge_pages_text(info.huge_pages));
}

void add_gpu(const GpuInfo& gpu, Report& report) {
    report.line(fmt::format("GPU {}", gpu.index),
                fmt::format("{}, {}, {} free, compute capability {}", or_unknown(gpu.name),
                            format_bytes(gpu.memory_bytes), format_bytes(gpu.free_bytes),
                            or_unknown(gpu.compute_capability)));
    report.line("", or_unknown(gpu.uuid));
    const std::string node = gpu.numa_node ? fmt::format("{}", *gpu.numa_node) : "unknown";
    report.line("", fmt::format("PCI {}, NUMA node {}", or_unknown(gpu.pci_bus_id), node));
    if (gpu.c2c) report.line("", "joined to the CPU by NVLink-C2C");
    if (gpu.link && gpu.max_link) {
        report.line("", fmt::format("PCIe {} now, {} at most", link_text(*gpu.link),
                                    link_text(*gpu.max_link)));
    }
    if (gpu.nvlinks > 0) report.line("", fmt::format("{} active", count(gpu.nvlinks, "NVLink")));
    for (const GpuPeer& peer : gpu.peers) {
        report.line("",
                    fmt::format("reads GPU {} over {}", peer.gpu, peer.nvlink ? "NVLink" : "PCIe"));
    }
}

void add_gpus(const SystemInfo& info, Report& report) {
    report.section("GPUs");
    if (!info.driver.version.empty()) {
        const std::string cuda = info.driver.cuda_version > 0
                                     ? ", CUDA up to " + cuda_text(info.driver.cuda_version)
                                     : "";
        report.line("NVIDIA driver", info.driver.version + cuda);
    }
    if (info.gpus.empty()) report.line("None", "no NVIDIA GPU that this process can use");
    for (const GpuInfo& gpu : info.gpus) add_gpu(gpu, report);
}

void add_tiers(const SystemInfo& info, bool gpu_execution, Report& report) {
    report.section("Tiers");
    for (const TierInfo& tier : tiers(info, gpu_execution)) {
        const std::string label = tier.tier == Tier::kLocal ? tier.name : "remote " + tier.name;
        report.line(label,
                    fmt::format("{}: {} usable", tier.memory, format_bytes(tier.usable_bytes)));
    }
    if (!gpu_execution && !info.gpus.empty()) {
        report.line("", "This build computes on the CPU and leaves the GPUs unused.");
    }
}

template <typename T>
Json or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json link_json(const std::optional<PcieLink>& link) {
    if (!link) return nullptr;
    return {{"generation", link->generation}, {"lanes", link->lanes}};
}

Json gpu_json(const GpuInfo& gpu) {
    Json peers = Json::array();
    for (const GpuPeer& peer : gpu.peers) {
        peers.push_back({{"gpu", peer.gpu}, {"link", peer.nvlink ? "nvlink" : "pcie"}});
    }
    return {{"index", gpu.index},
            {"name", text_or_null(gpu.name)},
            {"uuid", text_or_null(gpu.uuid)},
            {"compute_capability", text_or_null(gpu.compute_capability)},
            {"pci_bus_id", text_or_null(gpu.pci_bus_id)},
            {"memory_bytes", gpu.memory_bytes},
            {"free_bytes", gpu.free_bytes},
            {"pcie_link", link_json(gpu.link)},
            {"pcie_link_max", link_json(gpu.max_link)},
            {"nvlink_c2c", gpu.c2c},
            {"nvlinks", gpu.nvlinks},
            {"numa_node", or_null(gpu.numa_node)},
            {"peers", std::move(peers)}};
}

Json cpu_json(const SystemInfo& info) {
    const CpuInfo& cpu = info.cpu;
    return {{"model", cpu.model},
            {"sockets", cpu.sockets},
            {"cores", cpu.cores},
            {"threads", cpu.threads},
            {"allowed_cpus", cpu.allowed_cpus},
            {"allowed_cores", cpu.allowed_cores},
            {"cgroup_quota_cpus", or_null(info.cgroup.cpus)},
            {"worker_threads", usable_threads(info)},
            {"isa", cpu.isa}};
}

Json memory_json(const SystemInfo& info) {
    const auto& cgroup = info.cgroup.memory;
    return {{"total_bytes", info.memory.total_bytes},
            {"available_bytes", info.memory.available_bytes},
            {"usable_bytes", usable_host_bytes(info)},
            {"cgroup_version", info.cgroup.version},
            {"cgroup_limit_bytes", cgroup ? Json(cgroup->limit_bytes) : Json(nullptr)},
            {"cgroup_used_bytes", cgroup ? Json(cgroup->used_bytes) : Json(nullptr)},
            {"memlock_limit_bytes", or_null(info.memlock.limit_bytes)},
            {"memlock_exempt", info.memlock.exempt}};
}

Json huge_pages_json(const HugePages& pages) {
    Json pools = Json::array();
    for (const HugePagePool& pool : pages.pools) {
        pools.push_back({{"page_bytes", pool.page_bytes},
                         {"total_pages", pool.total_pages},
                         {"free_pages", pool.free_pages}});
    }
    return {{"transparent", text_or_null(pages.transparent)}, {"pools", std::move(pools)}};
}

Json driver_json(const DriverInfo& driver) {
    return {{"version", text_or_null(driver.version)},
            {"cuda_version",
             driver.cuda_version > 0 ? Json(cuda_text(driver.cuda_version)) : Json(nullptr)},
            {"kernel_module", driver.kernel_module},
            {"library", driver.library},
            {"errors", driver.errors}};
}

}  // namespace

std::string format_system_report(const SystemInfo& info, bool gpu_execution) {
    Report report;
    add_machine(info, report);
    add_memory(info, report);
    add_gpus(info, report);
    add_tiers(info, gpu_execution, report);
    report.section("Warnings");
    const auto found = warnings(info);
    if (found.empty()) report.line("None", "nothing here that costs speed or capacity");
    for (const std::string& warning : found) report.item(warning);
    return report.take();
}

Json system_report_json(const SystemInfo& info, bool gpu_execution) {
    Json nodes = Json::array();
    for (const NumaNode& node : info.numa_nodes) {
        nodes.push_back({{"id", node.id},
                         {"total_bytes", node.total_bytes},
                         {"free_bytes", node.free_bytes},
                         {"cpus", node.cpus}});
    }
    Json gpus = Json::array();
    for (const GpuInfo& gpu : info.gpus) gpus.push_back(gpu_json(gpu));
    Json tier_list = Json::array();
    for (const TierInfo& tier : tiers(info, gpu_execution)) {
        tier_list.push_back({{"tier", name_of(tier.tier)},
                             {"name", tier.name},
                             {"memory", tier.memory},
                             {"usable_bytes", tier.usable_bytes}});
    }
    return {{"dak_version", DAK_VERSION},
            {"computes_on", gpu_execution && !info.gpus.empty() ? "gpu" : "cpu"},
            {"os", info.os},
            {"kernel", text_or_null(info.kernel)},
            {"wsl", info.wsl},
            {"cpu", cpu_json(info)},
            {"memory", memory_json(info)},
            {"huge_pages", huge_pages_json(info.huge_pages)},
            {"numa_nodes", std::move(nodes)},
            {"driver", driver_json(info.driver)},
            {"nvidia_pci_devices", info.nvidia_pci_devices},
            {"gpus", std::move(gpus)},
            {"tiers", std::move(tier_list)},
            {"warnings", warnings(info)}};
}

}  // namespace dak
