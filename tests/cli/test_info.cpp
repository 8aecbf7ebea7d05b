#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace dak
