#pragma once

#include <optional>
#include <string>

#include "engine/engine.h"
#include "planner/planner.h"

namespace dak {

/// The table of what lies in which tier, a few lines, of an engine on the CPU.
std::string format_placement(const std::string& model_name, const Engine& engine);

/// The same of an engine on the GPU, with what the plan promises.
std::string format_placement(const std::string& model_name, const Engine& engine,
                             const std::string& gpu_name, const Plan& plan);

/// One line: rates, TPOT (beside the planned one, where there is a plan), effective bandwidth, peak
/// memory of the process.
std::string format_statistics(const EngineStatistics& statistics,
                              const std::optional<double>& planned_tpot_seconds);

}  // namespace dak
