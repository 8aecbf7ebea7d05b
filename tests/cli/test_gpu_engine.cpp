#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "cli/gpu_engine.h"
#include "cli/model_choice.h"

// A program of its own: it looks at the memory that its process takes of the GPU.

namespace dak {
namespace {

struct Case {
    std::string model;
    Workload workload;
    double ratio;
    std::string transport;
    int64_t prefill_chunk = 512;
};

/// By the driver's count, which needs no context of this process.
int64_t free_gpu_bytes() { return gather_system().gpus.front().free_bytes; }

int64_t free_bytes_to_a_byte() {
    size_t free = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return static_cast<int64_t>(free);
}

void generate(Engine& engine, const Workload& workload) {
    for (int64_t i = 0; i < workload.batch; ++i) {
        std::vector<int32_t> prompt;
        for (int64_t token = 0; token < workload.prompt; ++token) {
            prompt.push_back(static_cast<int32_t>((i * 31 + token * 17) % 1000));
        }
        engine.add(
            {.prompt = std::move(prompt), .max_new_tokens = workload.output, .ignore_eos = true});
    }
    while (!engine.idle()) {
        for (const Completion& completion : engine.step()) EXPECT_EQ(completion.error, "");
    }
}

TEST(GpuEngine, TakesNoMoreGpuMemoryThanPlannedAndNoneWhileItGenerates) {
    const SystemInfo system = gather_system();
    const std::string obstacle = gpu_obstacle(system);
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
    const int64_t free_before = free_gpu_bytes();  // before there is a context
    for (const Case& item : {Case{"opt-125m", {1, 32, 16}, 0.0, "direct"},
                             Case{"opt-350m", {64, 700, 16}, 0.3, "direct", 4096},
                             Case{"opt-1.3b", {8, 32, 16}, 0.3, "staged"},
                             Case{"opt-6.7b", {8, 300, 16}, 0.1, "staged"},
                             Case{"llama-3-8b", {64, 128, 16}, 0.0, "direct", 2048},
                             Case{"llama-3-8b", {8, 2000, 16}, 0.02, "direct", 2048},
                             Case{"qwen3-8b", {512, 32, 16}, 0.05, "direct"}}) {
        SCOPED_TRACE(fmt::format("{}, batch {}, prompt {}, ratio {}, {}", item.model,
                                 item.workload.batch, item.workload.prompt, item.ratio,
                                 item.transport));
        const ModelConfig config = choose_model(item.model, {});
        GpuOptions gpu;
        gpu.hardware = "h200-pcie";
        gpu.offload_ratio = item.ratio;
        gpu.transport = item.transport;
        EngineOptions options;
        options.max_batch = item.workload.batch;
        options.prefill_chunk = item.prefill_chunk;
        const GpuPlan planned = plan_on_gpu(config, item.workload, gpu, options, system);
        const auto engine =
            start_gpu_engine(config, planned, random_weight_source(config, 1), nullptr);

        const int64_t taken = free_before - free_gpu_bytes();
        fmt::print("| memory of {}: {} taken of {} planned\n", item.model, format_bytes(taken),
                   format_bytes(planned.plan.gpu.total()));
        EXPECT_LE(taken, planned.plan.gpu.total());
        const int64_t free_after_start = free_bytes_to_a_byte();
        for (int round = 1; round <= 2; ++round) {
            generate(*engine, item.workload);
            EXPECT_EQ(free_bytes_to_a_byte(), free_after_start) << "round " << round;
        }
        EXPECT_LE(free_before - free_gpu_bytes(), planned.plan.gpu.total());
    }
}

}  // namespace
}  // namespace dak
