#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <sstream>

#include "model/presets.h"
#include "planner/plan_report.h"

namespace dak {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Case {
    ModelConfig config;
    Workload workload;
    HardwareProfile profile;
    Budgets budgets;

    Plan plan() const { return make_plan(config, workload, profile, budgets); }
    std::vector<Alternative> others() const { return alternatives(config, plan(), profile, {}); }
};

Case llama_in_24_gib() {
    return {preset_config("llama-3-70b"),
            {16, 1024, 32},
            hardware_preset("h200-pcie"),
            {24 * kGiB, 480 * kGiB}};
}

TEST(PlanReport, OneRowForAllLayersWithinAHundredColumns) {
    const Case it = llama_in_24_gib();
    const std::string text = format_plan(it.plan(), it.others());
    EXPECT_THAT(text, AllOf(HasSubstr("layers.*.qkv       80"), HasSubstr("lm_head             1"),
                            HasSubstr("TPOT"), HasSubstr("limited by    link"),
                            HasSubstr("pieces of"), HasSubstr("must leave the GPU"),
                            HasSubstr("a link twice as fast"), Not(HasSubstr("layers.0"))));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(PlanReport, AlternativesHelp) {
    const Case it = llama_in_24_gib();
    const Plan plan = it.plan();
    const auto others = it.others();
    EXPECT_EQ(others.size(), 4u);
    for (const Alternative& other : others) {
        EXPECT_LT(other.total_seconds, plan.total_seconds()) << other.change;
    }
}

TEST(PlanReport, AlternativesThatChangeNothingAreLeftOut) {
    const HardwareProfile profile = hardware_preset("h200-pcie");
    const Case it = {preset_config("opt-6.7b"), {8, 32, 32}, profile, {kGiB * 140, kGiB * 480}};
    EXPECT_THAT(it.others(), testing::IsEmpty());  // everything fits, in one chunk
    PlanOptions options;
    options.rules = {parse_placement_rule("layers.*.up=remote")};
    const Plan plan = make_plan(it.config, it.workload, profile, it.budgets, options);
    const auto others = alternatives(it.config, plan, profile, options);
    ASSERT_EQ(others.size(), 1u);
    EXPECT_EQ(others.front().change, "a link twice as fast");
}

TEST(PlanReport, OnePeakOfASweep) {
    SweepPoint point;
    point.tpot_seconds = 0.01;
    point.effective_bytes_per_second = 1e12;
    std::vector<SweepPoint> sweep = {point, point, point};
    for (size_t i = 0; i < sweep.size(); ++i) sweep[i].offload_ratio = 0.1 * static_cast<double>(i);
    const std::string text = format_sweep(sweep);
    EXPECT_EQ(text.find("peak"), text.rfind("peak"));
    EXPECT_THAT(text, HasSubstr("peak"));
}

TEST(PlanReport, PeakOfASweepIsOneThatFits) {
    SweepPoint slow, fast;
    slow.offload_ratio = 0.5;
    slow.tpot_seconds = fast.tpot_seconds = 0.01;
    slow.effective_bytes_per_second = 1e12;
    fast.effective_bytes_per_second = 2e12;
    fast.fits = false;
    EXPECT_EQ(peak_of({fast, slow})->offload_ratio, 0.5);
    EXPECT_FALSE(peak_of({fast}).has_value());
    EXPECT_THAT(format_sweep({fast}), Not(HasSubstr("peak")));
}

TEST(PlanReport, SweepOfWhatNeverFitsIsRefused) {
    const Case it = llama_in_24_gib();
    const Budgets nothing = {kGiB, kGiB};
    EXPECT_THROW(sweep_offload_ratio(it.config, it.workload, it.profile, nothing), Error);
}

TEST(PlanReport, BoundsAddUpToTheStep) {
    const Plan plan = llama_in_24_gib().plan();
    const auto seconds = seconds_by_bound(plan);
    EXPECT_NEAR(std::accumulate(seconds.begin(), seconds.end(), 0.0), plan.tpot_seconds,
                1e-9 * plan.tpot_seconds);
    EXPECT_GT(seconds[static_cast<size_t>(Bound::kRemote)], 0.8 * plan.tpot_seconds);
}

TEST(PlanReport, JsonHasWhatTheEngineNeeds) {
    const Case it = llama_in_24_gib();
    const Plan plan = it.plan();
    const Json json = to_json(plan, it.others());
    EXPECT_EQ(json.at("placement_atoms").get<Placement>(), plan.placement);
    EXPECT_EQ(json.at("kv_remote_pages"), plan.kv_remote_pages);
    EXPECT_EQ(json.at("ring").at("pieces"), plan.staging.pieces);
    EXPECT_EQ(json.at("gpu_bytes").at("total"), plan.gpu.total());
    EXPECT_EQ(json.at("operations").size(), plan.operations.size());
    EXPECT_EQ(json.at("transport"), "staged");
}

TEST(PlanReport, SweepMarksPeakAndWhatDoesNotFit) {
    const Case it = llama_in_24_gib();
    const auto sweep = sweep_offload_ratio(it.config, it.workload, it.profile, it.budgets);
    const std::string text = format_sweep(sweep);
    EXPECT_THAT(text, AllOf(HasSubstr("peak"), HasSubstr("(does not fit)"), HasSubstr("100.0%")));
    const Json json = to_json(sweep);
    EXPECT_EQ(json.size(), sweep.size());
    EXPECT_EQ(json.front().at("fits"), false);
    EXPECT_EQ(json.back().at("fits"), true);
}

}  // namespace
}  // namespace dak
