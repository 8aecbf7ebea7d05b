#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <span>
#include <vector>

namespace dak::cuda {

/// Enqueues the work to be timed into a stream that is being captured.
using Enqueue = std::function<void(cudaStream_t stream)>;

/// Seconds of each work on the GPU: all are captured as graphs, then replayed in turn for about a
/// second, beginning with another one in each round so that clocks and temperature favour none; the
/// median of the rounds after the first quarter, in which clocks settle.
std::vector<double> time_graphs(std::span<const Enqueue> works, cudaStream_t stream);

/// Seconds that the host sees pass from launching the captured work to its end, less those on the
/// GPU; the median.
double launch_overhead(const Enqueue& work, cudaStream_t stream, int rounds);

}  // namespace dak::cuda
