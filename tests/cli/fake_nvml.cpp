// NVIDIA's management library of an invented machine: two equal GPUs joined by two NVLinks, under a
// driver too old to know NVLink-C2C. Only the symbols that DAK looks for, by their public names.

#include <cstdio>

namespace {
constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;

/// A device handle points at its GPU's number.
const unsigned kIndices[] = {0, 1};
unsigned index_of(const void* device) { return *static_cast<const unsigned*>(device); }
}  // namespace

extern "C" {

struct FakeMemory {
    unsigned long long total, free, used;
};

struct FakePciInfo {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

int nvmlInit_v2() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int) { return "fake error"; }

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
    std::snprintf(text, size, "550.54.15");
    return kSuccess;
}

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
    *version = 12040;
    return kSuccess;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
    *count = 2;
    return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, const void** device) {
    *device = &kIndices[index];
    return kSuccess;
}

int nvmlDeviceGetName(const void*, char* text, unsigned size) {
    std::snprintf(text, size, "Fake GPU");
    return kSuccess;
}

int nvmlDeviceGetUUID(const void* device, char* text, unsigned size) {
    std::snprintf(text, size, "GPU-%u", index_of(device));
    return kSuccess;
}

int nvmlDeviceGetMemoryInfo(const void*, FakeMemory* memory) {
    *memory = {1000, 900, 100};
    return kSuccess;
}

int nvmlDeviceGetCudaComputeCapability(const void*, int* major, int* minor) {
    *major = 9;
    *minor = 0;
    return kSuccess;
}

int nvmlDeviceGetPciInfo_v3(const void* device, FakePciInfo* info) {
    info->domain = 1;
    info->bus = 0x40 + index_of(device);
    info->device = 0;
    return kSuccess;
}

int nvmlDeviceGetCurrPcieLinkGeneration(const void*, unsigned* generation) {
    *generation = 3;
    return kSuccess;
}

int nvmlDeviceGetCurrPcieLinkWidth(const void*, unsigned* lanes) {
    *lanes = 8;
    return kSuccess;
}

int nvmlDeviceGetMaxPcieLinkGeneration(const void*, unsigned* generation) {
    *generation = 4;
    return kSuccess;
}

int nvmlDeviceGetMaxPcieLinkWidth(const void*, unsigned* lanes) {
    *lanes = 16;
    return kSuccess;
}

int nvmlDeviceGetNvLinkState(const void*, unsigned link, unsigned* active) {
    if (link >= 4) return kNotSupported;
    *active = link < 2;
    return kSuccess;
}

int nvmlDeviceGetP2PStatus(const void*, const void*, int, int* status) {
    *status = 0;
    return kSuccess;
}

}  // extern "C"
