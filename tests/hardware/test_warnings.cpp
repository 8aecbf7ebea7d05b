#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "hardware/system.h"

namespace dak {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// A machine with nothing to warn about: two NUMA nodes, the GPU on the second.
SystemInfo sound_machine() {
    SystemInfo info;
    info.cpu.allowed_cpus = {0, 1, 2, 3};
    info.cpu.allowed_cores = 4;
    info.memory = {64 * kGiB, 60 * kGiB};
    info.cgroup.version = 2;
    info.huge_pages.transparent = "madvise";
    info.numa_nodes = {{0, 32 * kGiB, 30 * kGiB, {0, 1}}, {1, 32 * kGiB, 30 * kGiB, {2, 3}}};
    info.driver = {true, true, "580.65.06", 13000, {}};
    info.nvidia_pci_devices = {"0000:0f:00.0"};
    GpuInfo& gpu = info.gpus.emplace_back();
    gpu.name = "H200";
    gpu.link = gpu.max_link = PcieLink{5, 16};
    gpu.numa_node = 1;
    return info;
}

TEST(Warnings, SoundMachineHasNone) { EXPECT_THAT(warnings(sound_machine()), IsEmpty()); }

TEST(Warnings, SlowLinkGeneration) {
    SystemInfo info = sound_machine();
    info.gpus[0].link = PcieLink{1, 16};
    EXPECT_THAT(warnings(info),
                ElementsAre(AllOf(StartsWith("GPU 0: the PCIe link"),
                                  HasSubstr("generation 1 of 5"), HasSubstr("idle GPU"))));
    info.gpus[0].c2c = true;  // the host tier does not cross PCIe then
    EXPECT_THAT(warnings(info), IsEmpty());
}

TEST(Warnings, WhatHoldsForSeveralGpusIsSaidOnce) {
    SystemInfo info = sound_machine();
    info.gpus[0].link = PcieLink{1, 16};
    for (const int index : {1, 2, 3}) info.gpus.emplace_back(info.gpus[0]).index = index;
    info.gpus[2].link = PcieLink{2, 16};
    EXPECT_THAT(warnings(info), ElementsAre(StartsWith("GPUs 0-1,3: the PCIe link runs at"),
                                            StartsWith("GPU 2: the PCIe link runs at")));
}

TEST(Warnings, NarrowLink) {
    SystemInfo info = sound_machine();
    info.gpus[0].link = PcieLink{5, 4};
    EXPECT_THAT(warnings(info),
                ElementsAre(AllOf(HasSubstr("4 of 16 lanes"), HasSubstr("4.0x slower"))));
    info.gpus[0].link.reset();
    EXPECT_THAT(warnings(info), IsEmpty());
}

TEST(Warnings, GpuOnAnotherNumaNode) {
    SystemInfo info = sound_machine();
    info.cpu.allowed_cpus = {0, 1};
    EXPECT_THAT(warnings(info),
                ElementsAre(AllOf(HasSubstr("CPUs 0-1"),
                                  HasSubstr("numactl --cpunodebind=1 --membind=1"))));
    info.cpu.allowed_cpus = {1, 2};  // one near CPU is enough
    EXPECT_THAT(warnings(info), IsEmpty());
    info.cpu.allowed_cpus = {0};
    info.gpus[0].numa_node.reset();
    EXPECT_THAT(warnings(info), IsEmpty());
}

TEST(Warnings, MemlockTooLow) {
    SystemInfo info = sound_machine();
    info.memlock.limit_bytes = 8 * kMiB;
    EXPECT_THAT(warnings(info),
                ElementsAre(AllOf(HasSubstr("8.0 MiB"), HasSubstr("ulimit -l"),
                                  HasSubstr("limits.conf"), HasSubstr("--ulimit memlock=-1"))));
    info.memlock.exempt = true;
    EXPECT_THAT(warnings(info), IsEmpty());
    info.memlock = {60 * kGiB, false};
    EXPECT_THAT(warnings(info), IsEmpty());
    info.memlock.limit_bytes = 8 * kMiB;
    info.gpus.clear();  // nothing pins then
    info.nvidia_pci_devices.clear();
    info.driver = {};
    EXPECT_THAT(warnings(info), IsEmpty());
}

TEST(Warnings, CgroupMemoryFarBelowTheHost) {
    SystemInfo info = sound_machine();
    info.cgroup.memory = CgroupMemory{16 * kGiB, 2 * kGiB};
    EXPECT_THAT(warnings(info), ElementsAre(AllOf(HasSubstr("16.0 GiB of the host's 64.0 GiB"),
                                                  HasSubstr("2.0 GiB of that is in use"))));
    info.cgroup.memory = CgroupMemory{60 * kGiB, 2 * kGiB};
    EXPECT_THAT(warnings(info), IsEmpty());
}

TEST(Warnings, CpuQuotaBelowCores) {
    SystemInfo info = sound_machine();
    info.cgroup.cpus = 1.5;
    EXPECT_THAT(warnings(info), ElementsAre(HasSubstr("1.5 of the 4 cores")));
    info.cgroup.cpus = 4.0;
    EXPECT_THAT(warnings(info), IsEmpty());
}

TEST(Warnings, TransparentHugePagesOff) {
    SystemInfo info = sound_machine();
    info.huge_pages.transparent = "never";
    EXPECT_THAT(warnings(info), ElementsAre(HasSubstr("echo madvise | sudo tee")));
    info.huge_pages.transparent = "";  // a kernel without them: nothing to switch on
    EXPECT_THAT(warnings(info), IsEmpty());
}

TEST(Warnings, Wsl) {
    SystemInfo info = sound_machine();
    info.wsl = true;
    EXPECT_THAT(warnings(info), ElementsAre(HasSubstr(".wslconfig")));
}

TEST(Warnings, DriverTooOld) {
    SystemInfo info = sound_machine();
    info.driver.version = "550.54.15";
    info.driver.cuda_version = 12040;
    EXPECT_THAT(warnings(info), ElementsAre(AllOf(HasSubstr("550.54.15"), HasSubstr("up to 12.4"),
                                                  HasSubstr("580 or newer"))));
}

TEST(Warnings, GpuWithoutDriver) {
    SystemInfo info = sound_machine();
    info.gpus.clear();
    info.driver = {};
    EXPECT_THAT(warnings(info),
                ElementsAre(AllOf(HasSubstr("(0000:0f:00.0)"), HasSubstr("no working driver"))));
}

TEST(Warnings, GpuHiddenFromTheContainer) {
    SystemInfo info = sound_machine();
    info.gpus.clear();
    info.driver = {true, false, "", 0, {}};
    EXPECT_THAT(warnings(info), ElementsAre(HasSubstr("--gpus all")));
    info.driver.library = true;  // the library sees no GPU, yet one is on the bus
    EXPECT_THAT(warnings(info), ElementsAre(HasSubstr("--gpus all")));
}

}  // namespace
}  // namespace dak
