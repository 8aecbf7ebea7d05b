#include "measure.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <memory>

#include "ops/cuda/check.h"

namespace dak::bench {
namespace {

using cuda::check;

class Graph {
  public:
    Graph(const Contestant& contestant, cudaStream_t stream) {
        cudaGraph_t graph = nullptr;
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
        for (int i = 0; i < contestant.operations; ++i) contestant.enqueue(i, stream);
        if (contestant.finish) contestant.finish(stream);
        check(cudaStreamEndCapture(stream, &graph), "capture");
        check(cudaGraphInstantiate(&executable_, graph, 0), "graph");
        check(cudaGraphDestroy(graph), "graph");
        check(cudaEventCreate(&begin_), "event");
        check(cudaEventCreate(&end_), "event");
    }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
    ~Graph() {
        cudaGraphExecDestroy(executable_);
        cudaEventDestroy(begin_);
        cudaEventDestroy(end_);
    }

    void launch(cudaStream_t stream) const {
        check(cudaEventRecord(begin_, stream), "event");
        check(cudaGraphLaunch(executable_, stream), "graph launch");
        check(cudaEventRecord(end_, stream), "event");
    }
    double milliseconds() const {
        float value = 0;
        check(cudaEventElapsedTime(&value, begin_, end_), "elapsed time");
        return value;
    }

  private:
    cudaGraphExec_t executable_ = nullptr;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace

std::vector<double> measure(const std::vector<Contestant>& contestants, cudaStream_t stream,
                            int rounds) {
    std::vector<std::unique_ptr<Graph>> graphs;
    for (const Contestant& contestant : contestants) {
        graphs.push_back(std::make_unique<Graph>(contestant, stream));
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
    for (std::vector<double>& values : samples) {
        std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
        medians.push_back(values[values.size() / 2]);
    }
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
