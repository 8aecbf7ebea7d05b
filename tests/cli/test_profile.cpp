#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/profile_report.h"
#include "hardware/system.h"
#include "run_cli.h"

namespace dak {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

HardwareProfile measured() {
    HardwareProfile profile = hardware_preset("h200-pcie");
    profile.measured = true;
    profile.window_bytes = 512 << 10;
    profile.window_sum_gbps = 4400;
    // 256 KiB in two ways, of which the first is the better.
    profile.window_sweep = {{1, 1, 16 << 10, 700, 7.7},
                            {4, 4, 256 << 10, 4351, 47.6},
                            {8, 2, 256 << 10, 4200, 46},
                            {32, 6, 3 << 20, 3103, 33.9}};
    return profile;
}

TEST(ProfileReport, RatesBesideTheDatasheetAndTheWindow) {
    const std::string text = format_profile(measured(), {"the link is slow"});
    EXPECT_THAT(
        text, AllOf(HasSubstr("NVIDIA H200, remote tier host over PCIe gen 5 x16"),
                    HasSubstr("98.8% of the datasheet's 4800"), HasSubstr("80.3% of the link's 64"),
                    HasSubstr("turning point x*"), HasSubstr("512.0 KiB of remote reads in flight"),
                    HasSubstr("4 x 4"), HasSubstr("chosen"), Not(HasSubstr("8 x 2")),
                    HasSubstr("+0.0% of the best"), HasSubstr("- the link is slow")));
}

TEST(ProfileReport, AProfileWithoutSweepOrDatasheet) {
    HardwareProfile profile = hardware_preset("gh200");
    profile.datasheet = {};
    const std::string text = format_profile(profile, {});
    EXPECT_THAT(text, AllOf(Not(HasSubstr("Window")), Not(HasSubstr("datasheet's")),
                            Not(HasSubstr("Warnings")), HasSubstr("10.11%")));
    EXPECT_THAT(window_panels(profile), IsEmpty());
}

TEST(ProfileReport, PlotHasALineForEachNumberOfSlots) {
    const auto panels = window_panels(measured());
    ASSERT_EQ(panels.size(), 2u);
    EXPECT_EQ(panels[0].series.size(), 4u);
    EXPECT_DOUBLE_EQ(*panels[0].marked_x, 256);
    EXPECT_THAT(svg_plot(panels), HasSubstr("window / 2"));
}

TEST(CliProfile, RefusesInOneLineWhereItCannotMeasure) {
    EXPECT_EQ(run_cli({"profile", "--remote", "disk"}).status, 1);
    {
        const ScopedLibraryPath two_gpus(DAK_FAKE_NVML_DIR);
        EXPECT_THAT(run_cli({"profile", "--remote", "peer:2"}).err,
                    HasSubstr("there is no GPU 2; this machine has 2"));
        EXPECT_THAT(run_cli({"profile", "--remote", "peer:0"}).err,
                    HasSubstr("the GPU that computes"));
    }
    if (!gather_system().gpus.empty()) GTEST_SKIP() << "there is a GPU";
    const CliResult result = run_cli({"profile"});
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr("no GPU to measure"));
}

}  // namespace
}  // namespace dak
