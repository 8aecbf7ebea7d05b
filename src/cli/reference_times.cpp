#include "cli/reference_times.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"

namespace dak {

ReferenceTimes::ReferenceTimes(const std::filesystem::path& file) {
    const Json json = read_json_file(file);
    require(json.is_array(), "{}: not a list of rows", file.string());
    for (size_t i = 0; i < json.size(); ++i) {
        const JsonFields row(json[i], fmt::format("{} row {}", file.string(), i + 1));
        require(row.has("tpot_ms"), "{}: field 'tpot_ms' is missing", row.where());
        const auto tpot_ms = row.maybe<double>("tpot_ms");
        if (!tpot_ms) continue;
        require(*tpot_ms > 0, "{}: 'tpot_ms' must be above zero, not {}", row.where(), *tpot_ms);
        rows_.push_back(
            {row.get<std::string>("model"),
             {row.get<int64_t>("batch"), row.get<int64_t>("prompt"), row.get<int64_t>("output")},
             {row.get<std::string>("variant"), *tpot_ms}});
    }
}

std::optional<ReferenceTimes::Time> ReferenceTimes::best(const std::string& model,
                                                         const Workload& workload) const {
    std::optional<Time> best;
    for (const Row& row : rows_) {
        if (row.model != model || row.workload != workload) continue;
        if (!best || row.time.tpot_ms < best->tpot_ms) best = row.time;
    }
    return best;
}

}  // namespace dak
