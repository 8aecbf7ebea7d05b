#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "hardware/pseudo_file.h"
#include "hardware/system.h"

namespace dak {

namespace {

/// DAK's CUDA parts are built with CUDA 13, which needs a driver of branch 580.
constexpr int kMinCudaVersion = 13000;
constexpr int kMinDriverBranch = 580;

/// A cgroup that has less than this part of the host's memory is worth a word: the host's size then
/// says little about what fits.
constexpr double kFarBelow = 0.5;

using Warnings = std::vector<std::string>;

/// Findings about GPUs. Machines have many equal ones, so what holds for several is said once.
class GpuFindings {
  public:
    template <typename... Args>
    void add(const GpuInfo& gpu, fmt::format_string<Args...> format, Args&&... args) {
        std::string text = fmt::format(format, std::forward<Args>(args)...);
        const auto same =
            std::find_if(findings_.begin(), findings_.end(),
                         [&](const Finding& finding) { return finding.text == text; });
        Finding& finding = same != findings_.end() ? *same : findings_.emplace_back();
        finding.text = std::move(text);
        finding.gpus.push_back(gpu.index);
    }

    void append_to(Warnings& out) const {
        for (const Finding& finding : findings_) {
            out.push_back(fmt::format("GPU{} {}: {}", finding.gpus.size() > 1 ? "s" : "",
                                      format_cpu_list(finding.gpus), finding.text));
        }
    }

  private:
    struct Finding {
        std::string text;
        std::vector<int> gpus;
    };
    std::vector<Finding> findings_;
};

void check_driver(const SystemInfo& info, Warnings& out) {
    const DriverInfo& driver = info.driver;
    for (const std::string& error : driver.errors) {
        out.push_back(fmt::format(
            "NVIDIA driver: {}. After a driver update or a GPU fault, restart the machine; in a "
            "container, check that it was started with access to its GPUs.",
            error));
    }
    if (info.gpus.empty() && driver.errors.empty()) {
        const bool on_bus = !info.nvidia_pci_devices.empty();
        if (driver.kernel_module && (on_bus || !driver.library)) {
            out.push_back(
                "The NVIDIA kernel driver runs, but this process sees no GPU. In a container, give "
                "it the GPUs (docker run --gpus all, with the NVIDIA Container Toolkit on the "
                "host).");
        } else if (on_bus) {
            out.push_back(fmt::format(
                "There is an NVIDIA GPU on the PCI bus ({}) but no working driver. Install driver "
                "{} or newer; until then DAK uses the CPU only.",
                fmt::join(info.nvidia_pci_devices, ", "), kMinDriverBranch));
        }
    }
    if (!info.gpus.empty() && driver.cuda_version > 0 && driver.cuda_version < kMinCudaVersion) {
        out.push_back(fmt::format(
            "NVIDIA driver {} supports CUDA up to {}.{}; DAK's CUDA parts need CUDA {}. Update the "
            "driver to {} or newer.",
            driver.version, driver.cuda_version / 1000, driver.cuda_version % 1000 / 10,
            kMinCudaVersion / 1000, kMinDriverBranch));
    }
}

void check_link(const GpuInfo& gpu, GpuFindings& out) {
    if (gpu.c2c || !gpu.link || !gpu.max_link) return;
    if (gpu.link->lanes < gpu.max_link->lanes) {
        out.add(
            gpu,
            "the PCIe link has {} of {} lanes, so the host tier is {:.1f}x slower than it could "
            "be. Check that the card sits firmly in a full-width slot, the riser, and the BIOS "
            "setting for lane bifurcation.",
            gpu.link->lanes, gpu.max_link->lanes,
            static_cast<double>(gpu.max_link->lanes) / gpu.link->lanes);
    }
    if (gpu.link->generation < gpu.max_link->generation) {
        out.add(gpu,
                "the PCIe link runs at generation {} of {}. An idle GPU lowers its link to save "
                "power, so look again while it works; if it stays low under load, check the slot, "
                "the riser and the BIOS setting for the link speed.",
                gpu.link->generation, gpu.max_link->generation);
    }
}

void check_numa(const SystemInfo& info, const GpuInfo& gpu, GpuFindings& out) {
    for (const NumaNode& node : info.numa_nodes) {
        if (node.id != gpu.numa_node || node.cpus.empty()) continue;
        const bool near = std::any_of(node.cpus.begin(), node.cpus.end(), [&](int cpu) {
            const auto& allowed = info.cpu.allowed_cpus;
            return std::binary_search(allowed.begin(), allowed.end(), cpu);
        });
        if (near) continue;
        out.add(
            gpu,
            "attached to NUMA node {}, but this process may run only on CPUs {} of other nodes, "
            "so host memory is read across sockets. Start it with: numactl --cpunodebind={} "
            "--membind={} dak ...",
            node.id, format_cpu_list(info.cpu.allowed_cpus), node.id, node.id);
    }
}

/// Pinning host memory matters only where there is a GPU to read it.
void check_pinning(const SystemInfo& info, Warnings& out) {
    if (info.gpus.empty()) return;
    const auto& limit = info.memlock.limit_bytes;
    if (limit && !info.memlock.exempt && *limit < usable_host_bytes(info)) {
        out.push_back(fmt::format(
            "The memlock limit is {}, less than the {} of host memory usable here: pinning a "
            "larger host tier may be refused. Raise it with `ulimit -l unlimited`, for good with "
            "`* - memlock unlimited` in /etc/security/limits.conf, in a container with docker run "
            "--ulimit memlock=-1.",
            format_bytes(*limit), format_bytes(usable_host_bytes(info))));
    }
    if (info.wsl) {
        out.push_back(
            "Under WSL the Windows driver lets only a part of the memory be pinned, so a large "
            "host tier may be refused. Give WSL more memory (memory= under [wsl2] in .wslconfig), "
            "keep the host tier small, or use Linux itself.");
    }
}

void check_host(const SystemInfo& info, Warnings& out) {
    const auto& limit = info.cgroup.memory;
    const auto total = static_cast<double>(info.memory.total_bytes);
    if (limit && static_cast<double>(limit->limit_bytes) < kFarBelow * total) {
        out.push_back(fmt::format(
            "The cgroup allows {} of the host's {} of memory, and {} of that is in use; a process "
            "that goes over is killed. Raise it with docker run --memory, the pod's memory limit, "
            "or the batch job's memory request.",
            format_bytes(limit->limit_bytes), format_bytes(info.memory.total_bytes),
            format_bytes(limit->used_bytes)));
    }
    if (info.cgroup.cpus && *info.cgroup.cpus < info.cpu.allowed_cores) {
        out.push_back(fmt::format(
            "The cgroup's CPU quota is worth {:.1f} of the {} cores visible here, and more threads "
            "than that are throttled. Raise it with docker run --cpus or the pod's CPU limit.",
            *info.cgroup.cpus, info.cpu.allowed_cores));
    }
    if (info.huge_pages.transparent == "never") {
        out.push_back(
            "Transparent huge pages are off, which slows down large host buffers. Allow them with: "
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
    }
}

}  // namespace

std::vector<std::string> warnings(const SystemInfo& info) {
    Warnings out;
    check_driver(info, out);
    GpuFindings findings;
    for (const GpuInfo& gpu : info.gpus) {
        check_link(gpu, findings);
        check_numa(info, gpu, findings);
    }
    findings.append_to(out);
    check_pinning(info, out);
    check_host(info, out);
    return out;
}

}  // namespace dak
