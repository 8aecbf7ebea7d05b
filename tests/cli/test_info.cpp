#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/json.h"
#include "hardware/system.h"
#include "run_cli.h"

namespace dak {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(CliInfo, Help) {
    const CliResult result = run_cli({"info", "--help"});
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_THAT(result.out, AllOf(HasSubstr("--json"), HasSubstr("Examples:")));
}

TEST(CliInfo, ReportsThisMachine) {
    const CliResult result = run_cli({"info"});
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.err, IsEmpty());
    for (const char* section :
         {"Machine\n", "\nMemory and limits\n", "\nGPUs\n", "\nTiers\n", "\nWarnings\n"}) {
        EXPECT_THAT(result.out, HasSubstr(section));
    }
    EXPECT_THAT(result.out, HasSubstr(gather_system().cpu.model));
}

TEST(CliInfo, JsonOfThisMachine) {
    const CliResult result = run_cli({"info", "--json"});
    ASSERT_EQ(result.status, 0);
    const Json report = parse_json(result.out, "dak info --json");
    const SystemInfo info = gather_system();
    EXPECT_EQ(report.at("cpu").at("model"), info.cpu.model);
    EXPECT_EQ(report.at("cpu").at("worker_threads"), usable_threads(info));
    EXPECT_EQ(report.at("memory").at("total_bytes"), info.memory.total_bytes);
    EXPECT_EQ(report.at("gpus").size(), info.gpus.size());
    EXPECT_EQ(report.at("tiers").at(0).at("tier"), "local");
    EXPECT_TRUE(report.at("warnings").is_array());
}

TEST(CliInfo, LoadsTheManagementLibraryByItsSymbols) {
    const ScopedLibraryPath path(DAK_FAKE_NVML_DIR);
    const CliResult result = run_cli({"info", "--json"});
    ASSERT_EQ(result.status, 0) << result.err;
    const Json report = parse_json(result.out, "dak info --json");
    EXPECT_EQ(report.at("driver").at("version"), "550.54.15");
    EXPECT_EQ(report.at("driver").at("cuda_version"), "12.4");
    ASSERT_EQ(report.at("gpus").size(), 2u);
    const Json& gpu = report.at("gpus").at(1);
    EXPECT_EQ(gpu.at("name"), "Fake GPU");
    EXPECT_EQ(gpu.at("uuid"), "GPU-1");
    EXPECT_EQ(gpu.at("compute_capability"), "9.0");
    EXPECT_EQ(gpu.at("pci_bus_id"), "0001:41:00.0");
    EXPECT_EQ(gpu.at("memory_bytes"), 1000);
    EXPECT_EQ(gpu.at("free_bytes"), 900);
    EXPECT_EQ(gpu.at("pcie_link"), (Json{{"generation", 3}, {"lanes", 8}}));
    EXPECT_EQ(gpu.at("pcie_link_max"), (Json{{"generation", 4}, {"lanes", 16}}));
    EXPECT_EQ(gpu.at("nvlinks"), 2);
    EXPECT_EQ(gpu.at("nvlink_c2c"), false);
    EXPECT_EQ(gpu.at("peers"), (Json::array({{{"gpu", 0}, {"link", "nvlink"}}})));
    EXPECT_THAT(report.at("warnings").dump(), HasSubstr("550.54.15 supports CUDA up to 12.4"));
}

}  // namespace
}  // namespace dak
