#include "hardware/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "hardware/pseudo_file.h"
#include "hardware/system.h"

namespace dak {

namespace nvml {

namespace {

template <typename Function>
void resolve(void* library, const char* symbol, Function*& function) {
    function = reinterpret_cast<Function*>(::dlsym(library, symbol));
}

}  // namespace

std::optional<Api> load() {
    void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    // WSL keeps the Windows driver's libraries outside the loader's path on some distributions.
    if (!library) library = ::dlopen("/usr/lib/wsl/lib/libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return {};
    Api api{};
    resolve(library, "nvmlInit_v2", api.init);
    resolve(library, "nvmlShutdown", api.shutdown);
    resolve(library, "nvmlErrorString", api.error_string);
    resolve(library, "nvmlSystemGetDriverVersion", api.driver_version);
    resolve(library, "nvmlSystemGetCudaDriverVersion_v2", api.cuda_driver_version);
    resolve(library, "nvmlDeviceGetCount_v2", api.device_count);
    resolve(library, "nvmlDeviceGetHandleByIndex_v2", api.device);
    resolve(library, "nvmlDeviceGetName", api.name);
    resolve(library, "nvmlDeviceGetUUID", api.uuid);
    resolve(library, "nvmlDeviceGetMemoryInfo", api.memory);
    resolve(library, "nvmlDeviceGetCudaComputeCapability", api.compute_capability);
    resolve(library, "nvmlDeviceGetPciInfo_v3", api.pci_info);
    resolve(library, "nvmlDeviceGetCurrPcieLinkGeneration", api.current_link_generation);
    resolve(library, "nvmlDeviceGetCurrPcieLinkWidth", api.current_link_width);
    resolve(library, "nvmlDeviceGetMaxPcieLinkGeneration", api.max_link_generation);
    resolve(library, "nvmlDeviceGetMaxPcieLinkWidth", api.max_link_width);
    resolve(library, "nvmlDeviceGetNvLinkState", api.nvlink_state);
    resolve(library, "nvmlDeviceGetP2PStatus", api.p2p_status);
    resolve(library, "nvmlDeviceGetC2cModeInfoV", api.c2c_mode);
    return api;
}

}  // namespace nvml

namespace {

/// NVML_NVLINK_MAX_LINKS of today's library; older ones refuse the numbers they do not know.
constexpr unsigned kMaxNvlinks = 36;

/// NVML_DEVICE_NAME_V2_BUFFER_SIZE, the largest text asked for.
using TextBuffer = std::array<char, 96>;

/// Calls `function`, or answers "function not found" where the library does not have it.
template <typename... Parameters, typename... Args>
int call(int (*function)(Parameters...), Args&&... args) {
    return function ? function(std::forward<Args>(args)...) : nvml::kFunctionNotFound;
}

template <typename... Parameters, typename... Args>
std::string text_of(int (*function)(Parameters...), Args... args) {
    TextBuffer text{};
    if (call(function, args..., text.data(), static_cast<unsigned>(text.size())) != nvml::kSuccess)
        return {};
    return text.data();
}

std::string error_text(const nvml::Api& api, int status) {
    const char* text = api.error_string ? api.error_string(status) : nullptr;
    return text ? text : fmt::format("status {}", status);
}

std::optional<PcieLink> link_of(nvml::Device device, int (*generation)(nvml::Device, unsigned*),
                                int (*width)(nvml::Device, unsigned*)) {
    unsigned gen = 0;
    unsigned lanes = 0;
    if (call(generation, device, &gen) != nvml::kSuccess ||
        call(width, device, &lanes) != nvml::kSuccess || gen == 0 || lanes == 0) {
        return {};
    }
    return PcieLink{static_cast<int>(gen), static_cast<int>(lanes)};
}

int count_nvlinks(const nvml::Api& api, nvml::Device device) {
    int count = 0;
    for (unsigned link = 0; link < kMaxNvlinks; ++link) {
        unsigned active = 0;
        if (call(api.nvlink_state, device, link, &active) == nvml::kSuccess && active) ++count;
    }
    return count;
}

std::vector<GpuPeer> peers_of(const nvml::Api& api, const std::vector<nvml::Device>& devices,
                              size_t self) {
    const auto supported = [&](size_t other, int capability) {
        int status = -1;
        return call(api.p2p_status, devices[self], devices[other], capability, &status) ==
                   nvml::kSuccess &&
               status == nvml::kP2pOk;
    };
    std::vector<GpuPeer> peers;
    for (size_t other = 0; other < devices.size(); ++other) {
        if (other == self || !devices[other]) continue;
        const bool nvlink = supported(other, nvml::kP2pNvlink);
        if (nvlink || supported(other, nvml::kP2pRead)) {
            peers.push_back({static_cast<int>(other), nvlink});
        }
    }
    return peers;
}

GpuInfo describe(const nvml::Api& api, nvml::Device device, const std::filesystem::path& root) {
    GpuInfo gpu;
    gpu.name = text_of(api.name, device);
    gpu.uuid = text_of(api.uuid, device);
    nvml::Memory memory{};
    if (call(api.memory, device, &memory) == nvml::kSuccess) {
        gpu.memory_bytes = static_cast<int64_t>(memory.total);
        gpu.free_bytes = static_cast<int64_t>(memory.free);
    }
    int major = 0;
    int minor = 0;
    if (call(api.compute_capability, device, &major, &minor) == nvml::kSuccess) {
        gpu.compute_capability = fmt::format("{}.{}", major, minor);
    }
    nvml::PciInfo pci{};
    if (call(api.pci_info, device, &pci) == nvml::kSuccess) {
        gpu.pci_bus_id = fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
        const auto node =
            read_pseudo_integer(root / "sys/bus/pci/devices" / gpu.pci_bus_id / "numa_node");
        if (node && *node >= 0) gpu.numa_node = static_cast<int>(*node);  // -1: not told
    }
    gpu.link = link_of(device, api.current_link_generation, api.current_link_width);
    gpu.max_link = link_of(device, api.max_link_generation, api.max_link_width);
    gpu.nvlinks = count_nvlinks(api, device);
    nvml::C2cMode c2c{};
    gpu.c2c = call(api.c2c_mode, device, &c2c) == nvml::kSuccess && c2c.enabled != 0;
    return gpu;
}

}  // namespace

void gather_gpus(const nvml::Api& api, const std::filesystem::path& root, SystemInfo& info) {
    const int started = call(api.init);
    if (started == nvml::kDriverNotLoaded) return;  // the library alone: no driver to speak of
    if (started != nvml::kSuccess) {
        info.driver.errors.push_back(
            fmt::format("the driver does not start: {}", error_text(api, started)));
        return;
    }
    info.driver.version = text_of(api.driver_version);
    int cuda_version = 0;
    if (call(api.cuda_driver_version, &cuda_version) == nvml::kSuccess) {
        info.driver.cuda_version = cuda_version;
    }
    unsigned count = 0;
    if (const int status = call(api.device_count, &count); status != nvml::kSuccess) {
        info.driver.errors.push_back(
            fmt::format("the driver does not count its GPUs: {}", error_text(api, status)));
    }
    std::vector<nvml::Device> devices(count, nullptr);
    for (unsigned index = 0; index < count; ++index) {
        const int status = call(api.device, index, &devices[index]);
        if (status == nvml::kSuccess) continue;
        devices[index] = nullptr;
        info.driver.errors.push_back(
            fmt::format("GPU {} cannot be used: {}", index, error_text(api, status)));
    }
    for (size_t index = 0; index < devices.size(); ++index) {
        if (!devices[index]) continue;
        GpuInfo& gpu = info.gpus.emplace_back(describe(api, devices[index], root));
        gpu.index = static_cast<int>(index);
        gpu.peers = peers_of(api, devices, index);
    }
    call(api.shutdown);
}

}  // namespace dak
