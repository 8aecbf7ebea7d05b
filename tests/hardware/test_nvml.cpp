#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "base/units.h"
#include "fixture_tree.h"
#include "hardware/nvml.h"
#include "hardware/system.h"

namespace dak {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kNotSupported = 3;
constexpr int kGpuIsLost = 15;
constexpr int kVersionMismatch = 18;

/// Device handles of the faked library: the index plus one, so that none is null.
nvml::Device handle(unsigned index) {
    return reinterpret_cast<nvml::Device>(static_cast<uintptr_t>(index) + 1);
}
unsigned index_of(nvml::Device device) {
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(device) - 1);
}

/// A machine of three GPUs: 0 and 1 joined by NVLink, 0 and 2 by PCIe alone.
nvml::Api three_gpus() {
    nvml::Api api{};
    api.init = [] { return nvml::kSuccess; };
    api.shutdown = [] { return nvml::kSuccess; };
    api.error_string = [](int status) {
        return status == kGpuIsLost ? "GPU is lost" : "some error";
    };
    api.driver_version = [](char* text, unsigned size) {
        std::snprintf(text, size, "580.65.06");
        return nvml::kSuccess;
    };
    api.cuda_driver_version = [](int* version) {
        *version = 13000;
        return nvml::kSuccess;
    };
    api.device_count = [](unsigned* count) {
        *count = 3;
        return nvml::kSuccess;
    };
    api.device = [](unsigned index, nvml::Device* device) {
        *device = handle(index);
        return nvml::kSuccess;
    };
    api.name = [](nvml::Device device, char* text, unsigned size) {
        std::snprintf(text, size, "Test GPU %c", 'A' + static_cast<char>(index_of(device)));
        return nvml::kSuccess;
    };
    api.uuid = [](nvml::Device device, char* text, unsigned size) {
        std::snprintf(text, size, "GPU-%u", index_of(device));
        return nvml::kSuccess;
    };
    api.memory = [](nvml::Device device, nvml::Memory* memory) {
        memory->total = 100 * kGiB;
        memory->free = (100 - index_of(device)) * kGiB;
        return nvml::kSuccess;
    };
    api.compute_capability = [](nvml::Device, int* major, int* minor) {
        *major = 9;
        *minor = 0;
        return nvml::kSuccess;
    };
    api.pci_info = [](nvml::Device device, nvml::PciInfo* info) {
        info->domain = 0;
        info->bus = 0x0f + index_of(device);
        info->device = 0;
        return nvml::kSuccess;
    };
    api.current_link_generation = [](nvml::Device, unsigned* value) {
        *value = 1;
        return nvml::kSuccess;
    };
    api.max_link_generation = [](nvml::Device, unsigned* value) {
        *value = 5;
        return nvml::kSuccess;
    };
    api.current_link_width = api.max_link_width = [](nvml::Device, unsigned* value) {
        *value = 16;
        return nvml::kSuccess;
    };
    api.nvlink_state = [](nvml::Device device, unsigned link, unsigned* active) {
        if (index_of(device) == 2) return kNotSupported;
        *active = link < 4;
        return nvml::kSuccess;
    };
    api.p2p_status = [](nvml::Device a, nvml::Device b, int capability, int* status) {
        const unsigned sum = index_of(a) + index_of(b);
        const bool nvlink = sum == 1;
        const bool read = sum == 1 || sum == 2;
        *status = (capability == nvml::kP2pNvlink ? nvlink : read) ? nvml::kP2pOk : 5;
        return nvml::kSuccess;
    };
    return api;
}

TEST(Nvml, DescribesSeveralGpus) {
    const FixtureTree tree;
    tree.add("sys/bus/pci/devices/0000:0f:00.0/numa_node", "1");
    tree.add("sys/bus/pci/devices/0000:10:00.0/numa_node", "-1");
    const nvml::Api api = three_gpus();
    const SystemInfo info = gather_system(tree.root(), &api);
    EXPECT_TRUE(info.driver.library);
    EXPECT_EQ(info.driver.version, "580.65.06");
    EXPECT_EQ(info.driver.cuda_version, 13000);
    EXPECT_THAT(info.driver.errors, IsEmpty());
    ASSERT_EQ(info.gpus.size(), 3u);

    const GpuInfo& first = info.gpus[0];
    EXPECT_EQ(first.index, 0);
    EXPECT_EQ(first.name, "Test GPU A");
    EXPECT_EQ(first.uuid, "GPU-0");
    EXPECT_EQ(first.compute_capability, "9.0");
    EXPECT_EQ(first.pci_bus_id, "0000:0f:00.0");
    EXPECT_EQ(first.numa_node, 1);
    EXPECT_EQ(first.memory_bytes, 100 * kGiB);
    ASSERT_TRUE(first.link && first.max_link);
    EXPECT_EQ(first.link->generation, 1);
    EXPECT_EQ(first.max_link->generation, 5);
    EXPECT_EQ(first.max_link->lanes, 16);
    EXPECT_EQ(first.nvlinks, 4);
    EXPECT_FALSE(first.c2c);  // the faked library does not have that function
    ASSERT_EQ(first.peers.size(), 2u);
    EXPECT_EQ(first.peers[0].gpu, 1);
    EXPECT_TRUE(first.peers[0].nvlink);
    EXPECT_EQ(first.peers[1].gpu, 2);
    EXPECT_FALSE(first.peers[1].nvlink);

    EXPECT_EQ(info.gpus[1].numa_node, std::nullopt);
    EXPECT_EQ(info.gpus[1].free_bytes, 99 * kGiB);
    EXPECT_EQ(info.gpus[2].nvlinks, 0);
    EXPECT_EQ(info.gpus[2].pci_bus_id, "0000:11:00.0");
}

TEST(Nvml, OldLibraryLeavesFieldsEmpty) {
    const FixtureTree tree;
    nvml::Api api = three_gpus();
    api.memory = nullptr;
    api.current_link_width = nullptr;
    api.p2p_status = nullptr;
    api.uuid = [](nvml::Device, char*, unsigned) { return kNotSupported; };
    const SystemInfo info = gather_system(tree.root(), &api);
    ASSERT_EQ(info.gpus.size(), 3u);
    EXPECT_EQ(info.gpus[0].memory_bytes, 0);
    EXPECT_FALSE(info.gpus[0].link);
    EXPECT_TRUE(info.gpus[0].max_link);
    EXPECT_THAT(info.gpus[0].peers, IsEmpty());
    EXPECT_EQ(info.gpus[0].uuid, "");
}

TEST(Nvml, LostGpuIsAnErrorAndNoPeer) {
    const FixtureTree tree;
    nvml::Api api = three_gpus();
    api.device = [](unsigned index, nvml::Device* device) {
        *device = handle(index);
        return index == 1 ? kGpuIsLost : nvml::kSuccess;
    };
    const SystemInfo info = gather_system(tree.root(), &api);
    ASSERT_EQ(info.gpus.size(), 2u);
    EXPECT_EQ(info.gpus[1].index, 2);
    ASSERT_EQ(info.gpus[0].peers.size(), 1u);
    EXPECT_EQ(info.gpus[0].peers[0].gpu, 2);
    EXPECT_THAT(info.driver.errors, ElementsAre("GPU 1 cannot be used: GPU is lost"));
    EXPECT_THAT(warnings(info), testing::Contains(HasSubstr("GPU 1 cannot be used: GPU is lost")));
}

TEST(Nvml, DriverThatDoesNotStart) {
    const FixtureTree tree;
    nvml::Api api = three_gpus();
    api.init = [] { return kVersionMismatch; };
    api.error_string = nullptr;
    const SystemInfo info = gather_system(tree.root(), &api);
    EXPECT_THAT(info.gpus, IsEmpty());
    EXPECT_THAT(info.driver.errors, ElementsAre("the driver does not start: status 18"));
    EXPECT_THAT(warnings(info), ElementsAre(HasSubstr("restart the machine")));
}

TEST(Nvml, LibraryWithoutDriverIsNoFault) {
    const FixtureTree tree;
    nvml::Api api = three_gpus();
    api.init = [] { return nvml::kDriverNotLoaded; };
    const SystemInfo info = gather_system(tree.root(), &api);
    EXPECT_THAT(info.gpus, IsEmpty());
    EXPECT_THAT(info.driver.errors, IsEmpty());
    EXPECT_THAT(warnings(info), IsEmpty());
}

/// Three GPUs with UUIDs GPU-a0, GPU-b1, GPU-b2; 0 has peers 1 and 2.
std::vector<GpuInfo> numbered_gpus() {
    std::vector<GpuInfo> gpus(3);
    for (int i = 0; i < 3; ++i) gpus[static_cast<size_t>(i)].index = i;
    gpus[0].uuid = "GPU-a0";
    gpus[1].uuid = "GPU-b1";
    gpus[2].uuid = "GPU-b2";
    gpus[0].peers = {{1, true}, {2, false}};
    return gpus;
}

std::vector<std::string> uuids(std::string_view visible) {
    std::vector<std::string> names;
    for (const GpuInfo& gpu : visible_gpus(numbered_gpus(), visible)) {
        EXPECT_EQ(gpu.index, static_cast<int>(names.size()));
        names.push_back(gpu.uuid);
    }
    return names;
}

TEST(VisibleGpus, IndicesAndUuidsInTheirOrder) {
    EXPECT_THAT(uuids("0,1,2"), ElementsAre("GPU-a0", "GPU-b1", "GPU-b2"));
    EXPECT_THAT(uuids("2, 0"), ElementsAre("GPU-b2", "GPU-a0"));
    EXPECT_THAT(uuids("GPU-b2,GPU-a"), ElementsAre("GPU-b2", "GPU-a0"));
    EXPECT_THAT(uuids(""), IsEmpty());
    EXPECT_THAT(uuids("-1"), IsEmpty());
    EXPECT_THAT(uuids("1,7,0"), ElementsAre("GPU-b1"));
    EXPECT_THAT(uuids("1,1,0"), ElementsAre("GPU-b1"));
}

TEST(VisibleGpus, PeersAreNumberedAnew) {
    const std::vector<GpuInfo> gpus = visible_gpus(numbered_gpus(), "2,0");
    ASSERT_EQ(gpus[1].peers.size(), 1u);
    EXPECT_EQ(gpus[1].peers[0].gpu, 0);
    EXPECT_FALSE(gpus[1].peers[0].nvlink);
}

}  // namespace
}  // namespace dak
