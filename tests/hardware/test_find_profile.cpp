#include <gtest/gtest.h>

#include <cstdlib>

#include "hardware/find_profile.h"

namespace dak {
namespace {

GpuInfo h200() {
    GpuInfo gpu;
    gpu.name = "NVIDIA H200";
    gpu.uuid = "GPU-1";
    gpu.link = PcieLink{1, 16};
    gpu.max_link = PcieLink{5, 16};
    gpu.nvlinks = 18;
    gpu.peers = {{1, true}, {2, false}};
    return gpu;
}

TEST(FindProfile, NamesTheLinkAtItsBest) {
    GpuInfo gpu = h200();
    EXPECT_EQ(link_of(gpu, "host"), "PCIe gen 5 x16");
    EXPECT_EQ(link_of(gpu, "peer:1"), "NVLink x18");
    EXPECT_EQ(link_of(gpu, "peer:2"), "PCIe gen 5 x16");
    gpu.c2c = true;
    EXPECT_EQ(link_of(gpu, "host"), "NVLink-C2C");
    gpu = h200();
    gpu.max_link.reset();
    EXPECT_EQ(link_of(gpu, "host"), "unknown link");
}

TEST(FindProfile, PresetsByTheDriversName) {
    const auto name = [](std::string_view gpu, std::string_view remote) {
        const auto preset = preset_of(gpu, remote);
        return preset ? preset->name : "none";
    };
    EXPECT_EQ(name("NVIDIA H200", "host"), "h200-pcie");
    EXPECT_EQ(name("NVIDIA H200", "peer:3"), "h200-peer");
    EXPECT_EQ(preset_of("NVIDIA H200", "peer:3")->remote, "peer:3");
    EXPECT_EQ(name("NVIDIA GH200 480GB", "host"), "gh200");
    EXPECT_EQ(name("NVIDIA H100 PCIe", "host"), "h100-pcie");
    EXPECT_EQ(name("NVIDIA H100 80GB HBM3", "host"), "h100-sxm");
    EXPECT_EQ(name("NVIDIA B200", "host"), "b200");
    EXPECT_EQ(name("NVIDIA GB200", "host"), "none");
    EXPECT_EQ(name("NVIDIA GeForce RTX 4090", "host"), "rtx-4090");
    EXPECT_EQ(name("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "host"), "rtx-pro-6000");
    EXPECT_EQ(name("NVIDIA H100 80GB HBM3", "peer:1"), "none");
    EXPECT_EQ(name("NVIDIA T4", "host"), "none");
}

TEST(FindProfile, PrefersWhatWasMeasured) {
    const char* const before = std::getenv("XDG_CACHE_HOME");
    const std::string saved = before ? before : "";
    const auto cache = std::filesystem::path(testing::TempDir()) / "dak-find-profile";
    ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    SystemInfo system;
    EXPECT_FALSE(find_profile(system, "host"));
    system.gpus = {h200()};
    system.driver.version = "580.1";
    EXPECT_EQ(find_profile(system, "host")->name, "h200-pcie");
    HardwareProfile measured = hardware_preset("h200-pcie");
    measured.name = "measured";
    write_hardware_profile(profile_path(system, system.gpus[0], "host"), measured);
    EXPECT_EQ(find_profile(system, "host")->name, "measured");
    EXPECT_EQ(find_profile(system, "peer:1")->name, "h200-peer");
    system.driver.version = "581.2";  // another driver may reach other rates
    EXPECT_EQ(find_profile(system, "host")->name, "h200-pcie");
    std::filesystem::remove_all(cache);
    before ? ::setenv("XDG_CACHE_HOME", saved.c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace dak
