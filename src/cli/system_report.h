#pragma once

#include <string>

#include "base/json.h"
#include "hardware/system.h"

namespace dak {

/// The report of `dak info` for people: sections of aligned lines, at most 100 columns.
/// `gpu_execution` says whether this program computes on GPUs.
std::string format_system_report(const SystemInfo& info, bool gpu_execution);

/// The same for programs. Sizes are in bytes; null is "no limit" or "not told by the system".
Json system_report_json(const SystemInfo& info, bool gpu_execution);

}  // namespace dak
