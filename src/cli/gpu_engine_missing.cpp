#include "base/error.h"
#include "cli/gpu_engine.h"

// What gpu_engine.cpp does, in a build without CUDA.

namespace dak {

namespace {

constexpr const char* kObstacle = "this program was built without CUDA";

}  // namespace

std::string gpu_obstacle(const SystemInfo&) { return kObstacle; }

WeightSource random_weight_source(const ModelConfig&, uint64_t) { fail(kObstacle); }

PlannedEngine start_gpu_engine(const ModelConfig&, const Workload&, const GpuOptions&,
                               EngineOptions, const WeightSource&, const Tokenizer*,
                               const SystemInfo&) {
    fail(kObstacle);
}

}  // namespace dak
