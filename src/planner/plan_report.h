#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "planner/planner.h"

namespace dak {

/// What a change of the machine would do to a plan.
struct Alternative {
    std::string change;  ///< "8.0 GiB more GPU memory"
    double tpot_seconds = 0;
    double total_seconds = 0;
};

/// What more GPU memory, a faster link, room for everything and longer prefill chunks would give
/// over the plan, which was made with `config`, `profile` and `options`. Changes that leave the
/// workload impossible, or its times as they are, are left out.
std::vector<Alternative> alternatives(const ModelConfig& config, const Plan& plan,
                                      const HardwareProfile& profile, const PlanOptions& options);

/// The plan for people: a table of the operations with those of all layers in one row, totals,
/// memory, and why. At most 100 columns.
std::string format_plan(const Plan& plan, const std::vector<Alternative>& alternatives);

/// A table of the sweep with a bar for EB.
std::string format_sweep(const std::vector<SweepPoint>& sweep);

/// The same for programs: sizes in bytes, times in seconds.
Json to_json(const Plan& plan, const std::vector<Alternative>& alternatives);
Json to_json(const std::vector<SweepPoint>& sweep);

/// What of the step's time is spent where: seconds by Bound, with waiting for the link under
/// kRemote, in the order of the enumeration.
std::array<double, 4> seconds_by_bound(const Plan& plan);

}  // namespace dak
