#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "fixture_tree.h"
#include "hardware/system.h"

namespace dak {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

SystemInfo gather(const FixtureTree& tree) { return gather_system(tree.root(), nullptr); }

TEST(System, EmptyTreeGivesNeutralValues) {
    const FixtureTree tree;
    const SystemInfo info = gather(tree);
    EXPECT_EQ(info.os, "Linux");
    EXPECT_FALSE(info.wsl);
    EXPECT_EQ(info.cpu.sockets, 1);
    EXPECT_EQ(usable_threads(info), 1);
    EXPECT_THAT(info.numa_nodes, IsEmpty());
    EXPECT_THAT(info.huge_pages.pools, IsEmpty());
    EXPECT_EQ(usable_host_bytes(info), 0);
    EXPECT_THAT(warnings(info), IsEmpty());
}

TEST(System, X86Cpu) {
    const FixtureTree tree;
    tree.add_cpus(8);
    tree.add("proc/cpuinfo",
             "processor\t: 0\nmodel name\t: Test CPU @ 3 GHz\n"
             "flags\t\t: fpu avx avx2 avx512f avx512_bf16x amx_bf16\n\nprocessor\t: 1\n");
    tree.add("proc/self/status", "Name:\tdak\nCpus_allowed_list:\t1,5-6,64");
    const CpuInfo cpu = gather(tree).cpu;
    EXPECT_EQ(cpu.model, "Test CPU @ 3 GHz");
    EXPECT_THAT(cpu.isa, ElementsAre("avx2", "avx512f", "amx_bf16"));
    EXPECT_EQ(cpu.sockets, 1);
    EXPECT_EQ(cpu.cores, 4);
    EXPECT_EQ(cpu.threads, 8);
    EXPECT_THAT(cpu.allowed_cpus, ElementsAre(1, 5, 6));  // 1 and 5 are one core; 64 is offline
    EXPECT_EQ(cpu.allowed_cores, 2);
}

TEST(System, ArmCpu) {
    const FixtureTree tree;
    tree.add("proc/cpuinfo",
             "processor\t: 0\nFeatures\t: fp asimd sve sve2 bf16\n"
             "CPU implementer\t: 0x41\nCPU part\t: 0xd4f");
    const CpuInfo cpu = gather(tree).cpu;
    EXPECT_EQ(cpu.model, "Arm Neoverse V2");
    EXPECT_THAT(cpu.isa, ElementsAre("bf16", "asimd", "sve", "sve2"));

    tree.add("proc/cpuinfo", "processor: 0\nCPU implementer: 0x61\nCPU part: 0x022");
    EXPECT_EQ(gather(tree).cpu.model, "ARM (maker 0x61, part 0x022)");
}

TEST(System, QuotaBoundsThreads) {
    SystemInfo info;
    info.cpu.allowed_cores = 16;
    EXPECT_EQ(usable_threads(info), 16);
    info.cgroup.cpus = 2.5;
    EXPECT_EQ(usable_threads(info), 3);
    info.cgroup.cpus = 0.1;
    EXPECT_EQ(usable_threads(info), 1);
    info.cgroup.cpus = 64.0;
    EXPECT_EQ(usable_threads(info), 16);
}

TEST(System, CgroupBoundsHostBytes) {
    SystemInfo info;
    info.memory = {100, 80};
    EXPECT_EQ(usable_host_bytes(info), 80);
    info.cgroup.memory = CgroupMemory{50, 20};
    EXPECT_EQ(usable_host_bytes(info), 30);
    info.cgroup.memory = CgroupMemory{500, 20};
    EXPECT_EQ(usable_host_bytes(info), 80);
}

TEST(System, MemoryAndHugePages) {
    const FixtureTree tree;
    tree.add("proc/meminfo", "MemTotal:  2048 kB\nMemFree: 1 kB\nMemAvailable:    1024 kB");
    tree.add("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
    tree.add("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0");
    tree.add("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64");
    tree.add("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "60");
    const SystemInfo info = gather(tree);
    EXPECT_EQ(info.memory.total_bytes, 2 * kMiB);
    EXPECT_EQ(info.memory.available_bytes, kMiB);
    EXPECT_EQ(info.huge_pages.transparent, "madvise");
    ASSERT_EQ(info.huge_pages.pools.size(), 2u);
    EXPECT_EQ(info.huge_pages.pools[0].page_bytes, 2 * kMiB);
    EXPECT_EQ(info.huge_pages.pools[0].total_pages, 64);
    EXPECT_EQ(info.huge_pages.pools[0].free_pages, 60);
    EXPECT_EQ(info.huge_pages.pools[1].page_bytes, kGiB);
}

TEST(System, Memlock) {
    const FixtureTree tree;
    tree.add("proc/self/limits",
             "Limit                     Soft Limit           Hard Limit           Units\n"
             "Max locked memory         8388608              unlimited            bytes\n"
             "Max file locks            unlimited            unlimited            locks");
    tree.add("proc/self/status", "CapEff:\t0000000000000000");
    EXPECT_EQ(gather(tree).memlock.limit_bytes, 8 * kMiB);
    EXPECT_FALSE(gather(tree).memlock.exempt);

    tree.add("proc/self/limits", "Max locked memory         unlimited  unlimited  bytes");
    EXPECT_EQ(gather(tree).memlock.limit_bytes, std::nullopt);
}

TEST(System, CapabilityLiftsMemlockInTheFirstUserNamespaceOnly) {
    const FixtureTree tree;
    tree.add("proc/self/status", "CapEff:\t0000000000004000");  // CAP_IPC_LOCK alone
    tree.add("proc/self/uid_map", "         0          0 4294967295");
    EXPECT_TRUE(gather(tree).memlock.exempt);
    tree.add("proc/self/uid_map", "         0       1000          1");
    EXPECT_FALSE(gather(tree).memlock.exempt);
    tree.add("proc/self/uid_map", "         0          0 4294967295");
    tree.add("proc/self/status", "CapEff:\t000001ffffffbfff");  // all but CAP_IPC_LOCK
    EXPECT_FALSE(gather(tree).memlock.exempt);
}

TEST(System, NumaNodes) {
    const FixtureTree tree;
    const std::string nodes = "sys/devices/system/node/";
    tree.add(nodes + "possible", "0-1");
    tree.add(nodes + "node0/cpulist", "0-3");
    tree.add(nodes + "node0/meminfo", "Node 0 MemTotal:   1024 kB\nNode 0 MemFree:  512 kB");
    tree.add(nodes + "node10/cpulist", "");
    tree.add(nodes + "node10/meminfo", "Node 10 MemTotal:  2048 kB\nNode 10 MemFree: 2048 kB");
    const auto found = gather(tree).numa_nodes;
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].id, 0);
    EXPECT_THAT(found[0].cpus, ElementsAre(0, 1, 2, 3));
    EXPECT_EQ(found[0].free_bytes, kMiB / 2);
    EXPECT_EQ(found[1].id, 10);
    EXPECT_THAT(found[1].cpus, IsEmpty());
    EXPECT_EQ(found[1].total_bytes, 2 * kMiB);
}

TEST(System, WslAndOsName) {
    const FixtureTree tree;
    tree.add("proc/sys/kernel/osrelease", "5.15.153.1-Microsoft-standard-WSL2");
    tree.add("etc/os-release", "NAME=\"X\"\nPRETTY_NAME=\"Test OS 1 (first)\"\nID=x");
    EXPECT_TRUE(gather(tree).wsl);
    EXPECT_EQ(gather(tree).os, "Test OS 1 (first)");
    tree.add("etc/os-release", "PRETTY_NAME=Plain");
    EXPECT_EQ(gather(tree).os, "Plain");
}

TEST(System, NvidiaGpusOnThePciBus) {
    const FixtureTree tree;
    const std::string bus = "sys/bus/pci/devices/";
    tree.add(bus + "0000:41:00.0/vendor", "0x10de");
    tree.add(bus + "0000:41:00.0/class", "0x030200");
    tree.add(bus + "0000:0f:00.0/vendor", "0x10de");
    tree.add(bus + "0000:0f:00.0/class", "0x030000");
    tree.add(bus + "0000:0f:00.1/vendor", "0x10de");  // the card's audio function
    tree.add(bus + "0000:0f:00.1/class", "0x040300");
    tree.add(bus + "0000:00:02.0/vendor", "0x8086");
    tree.add(bus + "0000:00:02.0/class", "0x030000");
    EXPECT_THAT(gather(tree).nvidia_pci_devices, ElementsAre("0000:0f:00.0", "0000:41:00.0"));
}

TEST(System, ThisMachine) {
    const SystemInfo info = gather_system();
    EXPECT_GE(usable_threads(info), 1);
    EXPECT_LE(info.cpu.allowed_cores, info.cpu.cores);
    EXPECT_FALSE(info.cpu.allowed_cpus.empty());
    EXPECT_GT(info.memory.available_bytes, 0);
    EXPECT_LE(info.memory.available_bytes, info.memory.total_bytes);
}

TEST(Tiers, BothAreHostMemoryOnTheCpu) {
    SystemInfo info;
    info.memory = {100, 80};
    info.gpus.emplace_back();  // not used without GPU execution
    const auto found = tiers(info, false);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].tier, Tier::kLocal);
    EXPECT_EQ(found[1].tier, Tier::kRemote);
    EXPECT_EQ(found[0].usable_bytes, 80);
    EXPECT_EQ(found[1].usable_bytes, 80);
    info.gpus.clear();
    EXPECT_EQ(tiers(info, true).size(), 2u);
}

TEST(Tiers, OfTheFirstGpu) {
    SystemInfo info;
    info.memory = {100, 80};
    for (const int index : {0, 2}) {
        GpuInfo& gpu = info.gpus.emplace_back();
        gpu.index = index;
        gpu.name = "H200";
        gpu.free_bytes = 1000 + index;
        gpu.max_link = PcieLink{5, 16};
    }
    info.gpus[0].peers = {{2, true}};
    const auto found = tiers(info, true);
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found[0].memory, "memory of GPU 0 (H200)");
    EXPECT_EQ(found[0].usable_bytes, 1000);
    EXPECT_EQ(found[1].name, "host");
    EXPECT_EQ(found[1].memory, "pinned host memory over PCIe 5 x16");
    EXPECT_EQ(found[1].usable_bytes, 80);
    EXPECT_EQ(found[2].name, "peer:2");
    EXPECT_EQ(found[2].memory, "memory of GPU 2 (H200) over NVLink");
    EXPECT_EQ(found[2].usable_bytes, 1002);
    info.gpus[0].c2c = true;
    EXPECT_EQ(tiers(info, true)[1].memory, "pinned host memory over NVLink-C2C");
}

}  // namespace
}  // namespace dak
