#include <gtest/gtest.h>

#include "model/presets.h"
#include "planner/planner.h"

// The memory tables of the DAK paper (figures 10 and 14), on its GPU of 96 GB.

namespace dak {
namespace {

struct Row {
    const char* model;
    Workload workload;
    double weight_gb, kv_gb;  ///< as printed
    double ratio;
};

constexpr Row kRows[] = {
    {"opt-30b", {8, 32, 32}, 55.6, 0.7, 0},
    {"opt-30b", {32, 1024, 32}, 55.6, 46.51, 0.06},
    {"opt-30b", {128, 256, 32}, 55.6, 50.73, 0.10},
    {"opt-30b", {128, 512, 32}, 55.6, 95.83, 0.37},
    {"opt-30b", {128, 1024, 32}, 55.6, 186.03, 0.60},
    {"opt-6.7b", {8, 32, 32}, 13.3, 0.27, 0},
    {"opt-6.7b", {256, 1024, 32}, 13.3, 141.73, 0.37},
    {"opt-6.7b", {512, 512, 32}, 13.3, 146.03, 0.39},
    {"opt-6.7b", {512, 1024, 32}, 13.3, 283.47, 0.67},
};

/// The paper prints OPT-30B's weights in GiB and everything else in GB.
double paper_weight_gb(const Row& row, int64_t bytes) {
    return static_cast<double>(bytes) / (std::string(row.model) == "opt-30b" ? 0x1p30 : 1e9);
}

TEST(PaperTables, WeightsKvAndRatioWithinTwoPercent) {
    for (const Row& row : kRows) {
        const Footprint size = footprint(preset_config(row.model), row.workload);
        const double weights = paper_weight_gb(row, size.weight_bytes);
        const double kv = static_cast<double>(size.kv_bytes) / 1e9;
        EXPECT_NEAR(weights, row.weight_gb, 0.02 * row.weight_gb);
        // 0.7 GB is printed with one digit.
        EXPECT_NEAR(kv, row.kv_gb, std::max(0.02 * row.kv_gb, 0.005));
        const double ratio = std::max(0.0, 1 - 96 / (weights + kv));
        EXPECT_NEAR(ratio, row.ratio, 0.02);
    }
}

TEST(PaperTables, APlanOffloadsThatAndWhatElseTheGpuMustHold) {
    const HardwareProfile gh200 = hardware_preset("gh200");
    for (const Row& row : kRows) {
        const ModelConfig config = preset_config(row.model);
        // 96 of the units that each of the two tables adds up in.
        const double gpu_bytes =
            96e9 + 55.6 * (std::string(row.model) == "opt-30b" ? 0x1p30 - 1e9 : 0);
        const Budgets budgets = {static_cast<int64_t>(gpu_bytes), 480 * kGiB};
        PlanOptions options;
        options.min_gain = 1;  // no more than must be, as in the tables
        const Plan plan = make_plan(config, row.workload, gh200, budgets, options);
        // Whole pages of 64 tokens, activations, workspaces and the driver.
        EXPECT_GE(plan.offload_ratio(), row.ratio - 0.01);
        EXPECT_LE(plan.offload_ratio(), row.ratio + 0.06);
    }
}

}  // namespace
}  // namespace dak
