#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "hardware/system.h"
#include "planner/planner.h"

// Running a model on the GPU by a plan, for the commands that do.

namespace dak {

/// What the command line says about the GPU and the placement. Values are checked when they are
/// used.
struct GpuOptions {
    std::string model_name;  ///< what messages call the model
    std::optional<std::string> gpu_memory;
    std::optional<std::string> host_memory;
    std::optional<std::string> remote;    ///< "host", "peer:N"; default: host
    std::optional<std::string> hardware;  ///< preset or file; default: this machine's profile
    std::optional<double> offload_ratio;
    std::vector<std::string> places;
    std::string transport = "auto";
    std::string policy = "greedy";

    /// The first of the given options that has a meaning on a GPU only; empty: none was given.
    std::string gpu_only_option() const;
};
/// What they ask of the planner. Throws Error on a rule that is none.
PlanOptions plan_options(const GpuOptions& options);

/// Budgets, tiers and rules.
void add_gpu_options(CLI::App& command, const std::string& group, GpuOptions& options);
/// Rules alone.
void add_place_option(CLI::App& command, const std::string& group, GpuOptions& options);
/// Ratio, policy and transport; a benchmark has lists of these instead.
void add_placement_choices(CLI::App& command, const std::string& group, GpuOptions& options);

/// Why this program cannot run models on this machine's first GPU; empty: it can.
std::string gpu_obstacle(const SystemInfo& system);

/// Makes the weights in the places that a plan gives them.
using WeightSource = std::function<ModelWeights(const Placement&, const TierMemory&)>;

/// Random weights, made by the GPU where they lie.
WeightSource random_weight_source(const ModelConfig& config, uint64_t seed);

struct GpuPlan {
    Plan plan;
    HardwareProfile profile;
    std::string remote;     ///< "host", "peer:N"
    EngineOptions options;  ///< of the engine that runs the plan
    std::string warning{};  ///< what the user's placement costs needlessly; empty: nothing
};

/// Plans the workload for this machine's GPU and budgets; `options` are the caller's part of the
/// engine's. Throws Error when the budgets do not allow it or the kernels cannot run the model.
GpuPlan plan_on_gpu(const ModelConfig& config, const Workload& workload, const GpuOptions& gpu,
                    EngineOptions options, const SystemInfo& system);

/// Loads the weights and makes an engine by the plan.
std::unique_ptr<Engine> start_gpu_engine(const ModelConfig& config, const GpuPlan& plan,
                                         const WeightSource& weights, const Tokenizer* tokenizer);

}  // namespace dak
