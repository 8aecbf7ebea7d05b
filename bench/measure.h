#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace dak::bench {

/// What is timed: `enqueue(i, stream)` for i in [0, operations) becomes one CUDA graph. `finish` is
/// enqueued after the last one (to join side streams).
struct Contestant {
    std::string name;
    int operations = 1;
    std::function<void(int operation, cudaStream_t stream)> enqueue;
    std::function<void(cudaStream_t stream)> finish;
};

/// Microseconds per operation of each contestant: all are captured, then run in turn, in an order
/// that rotates from round to round, so that clocks and temperature favour none; the median of the
/// rounds after the first.
std::vector<double> measure(const std::vector<Contestant>& contestants, cudaStream_t stream,
                            int rounds = 7);

/// The head of a result file: benchmark, gpu, driver, commit, date, and no rows yet.
Json report_head(const std::string& benchmark, const std::string& commit);

/// Writes a report with one row a line, so that two reports can be compared line by line. Throws
/// Error when the file cannot be written.
void write_report(const std::string& path, const Json& report);

}  // namespace dak::bench
