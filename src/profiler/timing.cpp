#include "profiler/timing.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>

#include "base/median.h"
#include "ops/cuda/handles.h"

namespace dak::cuda {

namespace {

constexpr double kSeconds = 1.0;  // of measuring: long enough for power limits to show
constexpr int kMinRounds = 9, kMaxRounds = 200;

/// Captured work between two events.
class TimedGraph {
  public:
    TimedGraph(const Enqueue& work, cudaStream_t stream) : graph_(stream, [&] { work(stream); }) {}

    void launch(cudaStream_t stream) const {
        check(cudaEventRecord(begin_, stream), "event");
        graph_.launch(stream);
        check(cudaEventRecord(end_, stream), "event");
    }
    void wait() const { check(cudaEventSynchronize(end_), "profile"); }
    double seconds() const { return milliseconds_between(begin_, end_) / 1e3; }

  private:
    Graph graph_;
    Event begin_{Event::Timing::kOn}, end_{Event::Timing::kOn};
};

}  // namespace

std::vector<double> time_graphs(std::span<const Enqueue> works, cudaStream_t stream) {
    std::vector<std::unique_ptr<TimedGraph>> graphs;
    for (const Enqueue& work : works) graphs.push_back(std::make_unique<TimedGraph>(work, stream));
    const auto run_round = [&](int round) {
        for (size_t i = 0; i < graphs.size(); ++i) {
            graphs[(i + static_cast<size_t>(round)) % graphs.size()]->launch(stream);
        }
        check(cudaStreamSynchronize(stream), "profile");
        std::vector<double> seconds;
        for (const auto& graph : graphs) seconds.push_back(graph->seconds());
        return seconds;
    };
    const std::vector<double> first = run_round(0);
    const double round_seconds = std::accumulate(first.begin(), first.end(), 0.0);
    const int rounds =
        std::clamp(static_cast<int>(kSeconds / round_seconds), kMinRounds, kMaxRounds);
    std::vector<std::vector<double>> samples(works.size());
    for (int round = 1; round <= rounds; ++round) {
        const std::vector<double> seconds = run_round(round);
        for (size_t i = 0; round > rounds / 4 && i < seconds.size(); ++i) {
            samples[i].push_back(seconds[i]);
        }
    }
    std::vector<double> medians;
    for (std::vector<double>& values : samples) medians.push_back(median(std::move(values)));
    return medians;
}

double launch_overhead(const Enqueue& work, cudaStream_t stream, int rounds) {
    using Clock = std::chrono::steady_clock;
    const TimedGraph graph(work, stream);
    std::vector<double> samples;
    for (int round = 0; round <= rounds; ++round) {
        const auto start = Clock::now();
        graph.launch(stream);
        graph.wait();
        const std::chrono::duration<double> passed = Clock::now() - start;
        if (round > 0) samples.push_back(passed.count() - graph.seconds());
    }
    return std::max(0.0, median(std::move(samples)));
}

}  // namespace dak::cuda
