#include <gtest/gtest.h>

#include "engine/cuda/cuda_executor.h"
#include "model/presets.h"
#include "planner/planner.h"

// What the plan sets aside for the engine must hold what the engine takes.

namespace dak {
namespace {

TEST(PlanMemory, ActivationsAndVectorsHoldTheExecutors) {
    const HardwareProfile profile = hardware_preset("h200-pcie");
    for (const std::string_view name : preset_names()) {
        const ModelConfig config = preset_config(name);
        for (const int64_t batch : {1, 8, 512}) {
            for (const int64_t chunk : {1, 512, 4096}) {
                SCOPED_TRACE(fmt::format("{}, batch {}, chunk {}", name, batch, chunk));
                const Workload workload{batch, 300, 41};
                PlanOptions options;
                options.prefill_chunk = chunk;
                const Plan plan = make_plan(config, workload, profile,
                                            {int64_t{1} << 50, int64_t{1} << 50}, options);
                const int64_t needed = cuda_executor_bytes(
                    config, {.max_batch = batch,
                             .max_step_tokens = std::min(chunk, batch * 341) + batch,
                             .max_tokens = 341});
                EXPECT_GE(plan.gpu.activation_bytes + plan.gpu.vector_bytes +
                              options.reserves.workspace_bytes / 8,
                          needed);
                EXPECT_LE(plan.gpu.activation_bytes, needed + needed / 4 + 64 * kMiB);
            }
        }
    }
}

}  // namespace
}  // namespace dak
