#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "profiler/profiler.h"

namespace dak {
namespace {

using Clock = std::chrono::steady_clock;

void expect_agree(const char* what, double first, double second, double tolerance) {
    EXPECT_LE(std::abs(first - second), tolerance * std::max(first, second))
        << what << ": " << first << " and " << second;
}

void expect_curves_agree(const char* what, const Curve& first, const Curve& second) {
    ASSERT_EQ(first.size(), second.size());
    for (size_t i = 0; i < first.size(); ++i) {
        EXPECT_EQ(first[i].at, second[i].at);
        expect_agree(what, first[i].value, second[i].value, 0.03);
    }
}

/// What a profile must be whatever it measured.
void expect_plausible(const HardwareProfile& profile) {
    EXPECT_GT(profile.local_gbps, 10 * profile.remote_direct_gbps * (profile.remote == "host"));
    EXPECT_GT(profile.remote_direct_gbps, 1);
    // The copy engine is the faster with large pieces, and the slower the smaller they are.
    EXPECT_GT(profile.staged_gbps.back().value, 0.95 * profile.remote_direct_gbps);
    EXPECT_LT(profile.staged_gbps.front().value, 0.8 * profile.staged_gbps.back().value);
    for (const double us : {profile.small_kernel_us, profile.attention_us, profile.step_us,
                            profile.kernel_us.front().value, profile.kernel_us.back().value}) {
        EXPECT_GT(us, 0.3);
        EXPECT_LT(us, 50);
    }
    if (profile.datasheet.local_gbps > 0) {
        EXPECT_LE(profile.local_gbps, 1.01 * profile.datasheet.local_gbps);
        EXPECT_GE(profile.local_gbps, 0.9 * profile.datasheet.local_gbps);
    }
    const auto best = std::ranges::max_element(profile.window_sweep, {}, &WindowPoint::sum_gbps);
    EXPECT_GE(profile.window_sum_gbps, 0.98 * best->sum_gbps())
        << "best: " << best->remote_ctas << " CTAs x " << best->slots << " slots";
    // It can be written and read.
    EXPECT_EQ(to_json(parse_hardware_profile(to_json(profile), "measured")), to_json(profile));
}

void measure_twice(const std::string& remote) {
    const SystemInfo system = gather_system();
    const auto start = Clock::now();
    const HardwareProfile first = measure_hardware(system, remote, [](auto, auto) {});
    const std::chrono::duration<double> passed = Clock::now() - start;
    EXPECT_LT(passed.count(), 30);
    const HardwareProfile second = measure_hardware(system, remote, [](auto, auto) {});
    for (const HardwareProfile& profile : {first, second}) expect_plausible(profile);
    expect_agree("HBM", first.local_gbps, second.local_gbps, 0.03);
    expect_agree("remote", first.remote_direct_gbps, second.remote_direct_gbps, 0.03);
    expect_agree("window", first.window_sum_gbps, second.window_sum_gbps, 0.03);
    expect_agree("attention", first.attention_local_gbps, second.attention_local_gbps, 0.03);
    expect_agree("write cost", first.staging_write_cost, second.staging_write_cost, 0.1);
    expect_agree("fixed cost", first.kernel_us[1].value, second.kernel_us[1].value, 0.15);
    expect_curves_agree("copy engine", first.staged_gbps, second.staged_gbps);
    expect_curves_agree("products", first.gemm_tflops, second.gemm_tflops);
}

TEST(Profiler, HostTierWithinThirtySecondsAndReproducible) {
    if (gather_system().gpus.empty()) GTEST_SKIP() << "no GPU";
    measure_twice("host");
}

TEST(Profiler, PeerTier) {
    const SystemInfo system = gather_system();
    if (system.gpus.empty() || system.gpus.front().peers.empty()) GTEST_SKIP() << "no peer";
    measure_twice("peer:" + std::to_string(system.gpus.front().peers.front().gpu));
}

}  // namespace
}  // namespace dak
