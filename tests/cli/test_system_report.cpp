#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "cli/system_report.h"

namespace dak {
namespace {

using testing::HasSubstr;
using testing::Not;

SystemInfo two_gpus() {
    SystemInfo info;
    info.os = "Test OS 1";
    info.kernel = "6.1";
    info.cpu = {"Test CPU", 2, 8, 16, {0, 1, 2, 3}, 4, {"avx2", "avx512f"}};
    info.memory = {64 * kGiB, 60 * kGiB};
    info.cgroup = {2, CgroupMemory{40 * kGiB, 8 * kGiB}, 2.5};
    info.memlock.limit_bytes = 8 * kMiB;
    info.huge_pages = {"madvise", {{2 * kMiB, 16, 4}, {kGiB, 0, 0}}};
    info.numa_nodes = {{0, 64 * kGiB, 50 * kGiB, {0, 1, 2, 3}}, {1, 96 * kGiB, 90 * kGiB, {}}};
    info.driver = {true, true, "580.65.06", 13000, {}};
    for (const int index : {0, 1}) {
        GpuInfo& gpu = info.gpus.emplace_back();
        gpu.index = index;
        gpu.name = "Test GPU";
        gpu.uuid = "GPU-abc";
        gpu.compute_capability = "9.0";
        gpu.pci_bus_id = "0000:0f:00.0";
        gpu.memory_bytes = 80 * kGiB;
        gpu.free_bytes = 79 * kGiB;
        gpu.link = PcieLink{1, 16};
        gpu.max_link = PcieLink{5, 16};
        gpu.nvlinks = 18;
        gpu.numa_node = 0;
        gpu.peers = {{1 - index, true}};
    }
    return info;
}

TEST(SystemReport, ShowsEverySection) {
    const std::string report = format_system_report(two_gpus(), true);
    for (const char* text : {
             "Machine\n  System          Test OS 1, kernel 6.1\n",
             "  CPU             Test CPU: 2 sockets, 8 cores, 16 threads\n",
             "  Usable here     4 cores (CPUs 0-3), quota 2.5 CPUs: 3 worker threads\n",
             "  Instructions    avx2 avx512f\n",
             "  NUMA node 1     96.0 GiB, 90.0 GiB free, no CPUs\n",
             "  Cgroup          version 2, limit 40.0 GiB, 8.0 GiB in use, 32.0 GiB left\n",
             "  Memlock         8.0 MiB\n",
             "transparent: madvise; 2.0 MiB: 16 reserved (4 free); 1.0 GiB: 0 reserved\n",
             "  NVIDIA driver   580.65.06, CUDA up to 13.0\n",
             "  GPU 1           Test GPU, 80.0 GiB, 79.0 GiB free, compute capability 9.0\n",
             "                  PCIe gen 1 x16 now, gen 5 x16 at most\n",
             "                  18 NVLinks active\n",
             "                  reads GPU 1 over NVLink\n",
             "  local           memory of GPU 0 (Test GPU): 79.0 GiB usable\n",
             "  remote host     pinned host memory over PCIe 5 x16: 32.0 GiB usable\n",
             "  remote peer:1   memory of GPU 1 (Test GPU) over NVLink: 79.0 GiB usable\n",
             "Warnings\n  - GPUs 0-1: the PCIe link",
         }) {
        EXPECT_THAT(report, HasSubstr(text));
    }
}

TEST(SystemReport, SaysThatGpusAreUnused) {
    EXPECT_THAT(format_system_report(two_gpus(), false), HasSubstr("leaves the GPUs unused"));
    EXPECT_THAT(format_system_report(two_gpus(), true), Not(HasSubstr("leaves the GPUs unused")));
}

TEST(SystemReport, KeepsToTheColumns) {
    SystemInfo info = two_gpus();
    info.wsl = true;
    const std::string report = format_system_report(info, true);
    size_t longest = 0;
    for (size_t begin = 0; begin < report.size();) {
        const size_t end = report.find('\n', begin);
        longest = std::max(longest, end - begin);
        begin = end + 1;
    }
    EXPECT_LE(longest, 100u);
    EXPECT_GT(longest, 80u);  // long warnings are there, and filled
}

TEST(SystemReport, NothingKnown) {
    const std::string report = format_system_report({}, true);
    EXPECT_THAT(report, HasSubstr("no NVIDIA GPU"));
    EXPECT_THAT(report, HasSubstr("Warnings\n  None"));
}

TEST(SystemReport, Json) {
    const Json report = system_report_json(two_gpus(), true);
    EXPECT_EQ(report["dak_version"], DAK_VERSION);
    EXPECT_EQ(report["computes_on"], "gpu");
    EXPECT_EQ(system_report_json(two_gpus(), false)["computes_on"], "cpu");
    EXPECT_EQ(report["cpu"]["worker_threads"], 3);
    EXPECT_EQ(report["memory"]["cgroup_limit_bytes"], 40 * kGiB);
    EXPECT_EQ(report["memory"]["usable_bytes"], 32 * kGiB);
    EXPECT_EQ(report["driver"]["cuda_version"], "13.0");
    EXPECT_EQ(report["gpus"][1]["pcie_link_max"]["generation"], 5);
    EXPECT_EQ(report["gpus"][0]["peers"][0], (Json{{"gpu", 1}, {"link", "nvlink"}}));
    EXPECT_EQ(report["tiers"][2]["name"], "peer:1");
    EXPECT_EQ(report["warnings"].size(), warnings(two_gpus()).size());

    const Json empty = system_report_json({}, true);
    EXPECT_TRUE(empty["memory"]["cgroup_limit_bytes"].is_null());
    EXPECT_TRUE(empty["memory"]["memlock_limit_bytes"].is_null());
    EXPECT_TRUE(empty["cpu"]["cgroup_quota_cpus"].is_null());
    EXPECT_TRUE(empty["driver"]["version"].is_null());
    EXPECT_TRUE(empty["gpus"].is_array());
}

}  // namespace
}  // namespace dak
