#pragma once

#include <filesystem>
#include <optional>

namespace dak {

struct SystemInfo;

/// NVIDIA's management library, loaded at run time so that DAK builds and runs without it. Only
/// what `gather_gpus` calls is declared, with the library's own layouts and values.
namespace nvml {

using Device = struct DeviceHandle*;

struct Memory {
    unsigned long long total, free, used;
};

struct PciInfo {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct C2cMode {
    unsigned enabled;
};

constexpr int kSuccess = 0;
constexpr int kDriverNotLoaded = 9;
constexpr int kFunctionNotFound = 13;
constexpr int kP2pRead = 0;    // capability index: reads of the other GPU's memory
constexpr int kP2pNvlink = 2;  // capability index: over NVLink
constexpr int kP2pOk = 0;

/// The functions, each returning a status; a pointer is null where the installed library is too old
/// to have it. Tests fill this table with their own.
struct Api {
    int (*init)();
    int (*shutdown)();
    const char* (*error_string)(int status);
    int (*driver_version)(char* text, unsigned size);
    int (*cuda_driver_version)(int* version);  // 13000 is CUDA 13.0
    int (*device_count)(unsigned* count);
    int (*device)(unsigned index, Device* device);
    int (*name)(Device, char* text, unsigned size);
    int (*uuid)(Device, char* text, unsigned size);
    int (*memory)(Device, Memory* memory);
    int (*compute_capability)(Device, int* major, int* minor);
    int (*pci_info)(Device, PciInfo* info);
    int (*current_link_generation)(Device, unsigned* generation);
    int (*current_link_width)(Device, unsigned* lanes);
    int (*max_link_generation)(Device, unsigned* generation);
    int (*max_link_width)(Device, unsigned* lanes);
    int (*nvlink_state)(Device, unsigned link, unsigned* active);
    int (*p2p_status)(Device, Device other, int capability, int* status);
    int (*c2c_mode)(Device, C2cMode* mode);
};

/// Loads the library; nothing where it is not installed. It stays loaded.
std::optional<Api> load();

}  // namespace nvml

/// Fills `info.driver` and `info.gpus`. What a GPU or driver does not tell stays empty; a GPU that
/// cannot be opened is reported in `info.driver.errors`.
void gather_gpus(const nvml::Api& api, const std::filesystem::path& root, SystemInfo& info);

}  // namespace dak
