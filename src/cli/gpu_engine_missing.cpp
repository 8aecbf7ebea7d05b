#include "base/error.h"
#include "cli/gpu_engine.h"

// What gpu_engine.cpp does, in a build without CUDA.

namespace dak {

namespace {

constexpr const char* kObstacle = "this program was built without CUDA";

}  // namespace

std::string gpu_obstacle(const SystemInfo&) { return kObstacle; }

WeightSource random_weight_source(const ModelConfig&, uint64_t) { fail(kObstacle); }

GpuPlan plan_on_gpu(const ModelConfig&, const Workload&, const GpuOptions&, EngineOptions,
                    const SystemInfo&) {
    fail(kObstacle);
}

std::unique_ptr<Engine> start_gpu_engine(const ModelConfig&, const GpuPlan&, const WeightSource&,
                                         const Tokenizer*) {
    fail(kObstacle);
}

}  // namespace dak
