#pragma once

#include <string>

#include "engine/engine.h"

namespace dak {

/// The table of what lies in which tier, a few lines.
std::string format_placement(const std::string& model_name, const Engine& engine);

/// One line: rates, TPOT, effective bandwidth, peak memory of the process.
std::string format_statistics(const EngineStatistics& statistics);

}  // namespace dak
