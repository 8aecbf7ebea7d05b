#include "measure.h"

#include <fmt/chrono.h>

#include <ctime>
#include <fstream>
#include <memory>

#include "base/median.h"
#include "ops/cuda/handles.h"

namespace dak::bench {
namespace {

using cuda::check;

class TimedGraph {
  public:
    TimedGraph(const Contestant& contestant, cudaStream_t stream)
        : graph_(stream, [&] {
              for (int i = 0; i < contestant.operations; ++i) contestant.enqueue(i, stream);
              if (contestant.finish) contestant.finish(stream);
          }) {}

    void launch(cudaStream_t stream) const {
        check(cudaEventRecord(begin_, stream), "event");
        graph_.launch(stream);
        check(cudaEventRecord(end_, stream), "event");
    }
    double milliseconds() const { return cuda::milliseconds_between(begin_, end_); }

  private:
    cuda::Graph graph_;
    cuda::Event begin_{cuda::Event::Timing::kOn}, end_{cuda::Event::Timing::kOn};
};

}  // namespace

std::vector<double> measure(const std::vector<Contestant>& contestants, cudaStream_t stream,
                            int rounds) {
    std::vector<std::unique_ptr<TimedGraph>> graphs;
    for (const Contestant& contestant : contestants) {
        graphs.push_back(std::make_unique<TimedGraph>(contestant, stream));
    }
    std::vector<std::vector<double>> samples(contestants.size());
    for (int round = 0; round <= rounds; ++round) {
        for (size_t i = 0; i < graphs.size(); ++i) {
            graphs[(i + static_cast<size_t>(round)) % graphs.size()]->launch(stream);
        }
        check(cudaStreamSynchronize(stream), "benchmark");
        for (size_t i = 0; round > 0 && i < graphs.size(); ++i) {
            samples[i].push_back(graphs[i]->milliseconds() * 1e3 / contestants[i].operations);
        }
    }
    std::vector<double> medians;
    for (std::vector<double>& values : samples) medians.push_back(median(std::move(values)));
    return medians;
}

Json report_head(const std::string& benchmark, const std::string& commit) {
    cudaDeviceProp properties{};
    int driver = 0;
    check(cudaGetDeviceProperties(&properties, 0), "device properties");
    check(cudaDriverGetVersion(&driver), "driver version");
    return {{"benchmark", benchmark},
            {"gpu", properties.name},
            {"driver", fmt::format("CUDA {}.{}", driver / 1000, driver % 1000 / 10)},
            {"commit", commit},
            {"date", fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)))},
            {"rows", Json::array()}};
}

void write_report(const std::string& path, const Json& report) {
    std::ofstream file(path);
    file << "{\n";
    for (const auto& [name, value] : report.items()) {
        if (name != "rows") file << Json(name).dump() << ": " << value.dump() << ",\n";
    }
    file << "\"rows\": [";
    const char* separator = "\n";
    for (const Json& row : report.at("rows")) {
        file << separator << row.dump();
        separator = ",\n";
    }
    file << "\n]}\n";
    file.flush();
    require(file.good(), "{}: cannot be written", path);
}

}  // namespace dak::bench
