#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "planner/planner.h"

namespace dak {

/// What another program takes for a token, to compare with (bench/hf_generate.py).
class ReferenceTimes {
  public:
    struct Time {
        std::string variant;  ///< of the other program
        double tpot_ms = 0;
    };

    /// None are known.
    ReferenceTimes() = default;

    /// Reads a JSON list of rows {"model", "batch", "prompt", "output", "variant", "tpot_ms"}; a
    /// time of null says that there is none. Throws Error on anything else.
    explicit ReferenceTimes(const std::filesystem::path& file);

    /// The fastest variant's for this very workload.
    std::optional<Time> best(const std::string& model, const Workload& workload) const;

  private:
    struct Row {
        std::string model;
        Workload workload;
        Time time;
    };

    std::vector<Row> rows_;
};

}  // namespace dak
