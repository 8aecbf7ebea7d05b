#include "cli/gpu_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "cli/hardware_choice.h"
#include "engine/cuda/cuda_executor.h"
#include "engine/cuda/random_gpu_weights.h"

namespace dak {

namespace {

constexpr std::string_view kNeededCapability = "9.0";  // wgmma

std::optional<StagingSizes> staging_sizes(const Plan& plan) {
    if (plan.transport != Transport::kStaged || plan.staging.pieces == 0) return {};
    return StagingSizes{plan.staging.slots * plan.staging.slot_bytes, plan.staging.slot_bytes};
}

/// Of the remote tier: the host's usable memory, or the peer's free memory.
int64_t remote_bytes(const std::string& remote, const SystemInfo& system) {
    const std::optional<int> peer = peer_of(remote);
    if (!peer) return usable_host_bytes(system);
    const int64_t free_bytes = system.gpus[static_cast<size_t>(*peer)].free_bytes;
    return std::max<int64_t>(free_bytes - MemoryReserves().context_bytes, 0);
}

Budgets budgets_of(const GpuOptions& gpu, const SystemInfo& system, const std::string& remote) {
    Budgets budgets = {system.gpus.front().free_bytes, remote_bytes(remote, system)};
    if (gpu.gpu_memory) {
        const int64_t wanted = parse_bytes(*gpu.gpu_memory, "--gpu-memory");
        require(wanted <= budgets.gpu_bytes,
                "--gpu-memory asks for {}, but {} of the GPU's {} are free", format_bytes(wanted),
                format_bytes(budgets.gpu_bytes), format_bytes(system.gpus.front().memory_bytes));
        budgets.gpu_bytes = wanted;
    }
    if (gpu.host_memory) {
        const int64_t wanted = parse_bytes(*gpu.host_memory, "--host-memory");
        require(wanted <= budgets.host_bytes, "--host-memory asks for {}, but {} can be had",
                format_bytes(wanted), format_bytes(budgets.host_bytes));
        budgets.host_bytes = wanted;
    }
    return budgets;
}

/// Offloading more than memory demands is the user's choice, but not one to make unawares.
std::string needless_offload(const Plan& plan, const ModelConfig& config,
                             const HardwareProfile& profile, PlanOptions options) {
    if (!options.offload_ratio && options.rules.empty()) return "";
    options.offload_ratio.reset();
    options.rules.clear();
    const Plan best = make_plan(config, plan.workload, profile, plan.budgets, options);
    constexpr double kNoticeable = 1.02;
    if (plan.tpot_seconds <= kNoticeable * best.tpot_seconds) return "";
    return fmt::format(
        "The placement asked for makes a token take {:.2f} ms; the plan's own, {:.1f}% remote, "
        "would make it {:.2f} ms.",
        1e3 * plan.tpot_seconds, 100 * best.offload_ratio(), 1e3 * best.tpot_seconds);
}

}  // namespace

std::string gpu_obstacle(const SystemInfo& system) {
    if (system.gpus.empty()) return "this machine has no GPU that the driver shows";
    const GpuInfo& gpu = system.gpus.front();
    if (gpu.compute_capability == kNeededCapability) return "";
    return fmt::format("{} has compute capability {}, and the kernels are for {} (Hopper)",
                       gpu.name, gpu.compute_capability, kNeededCapability);
}

WeightSource random_weight_source(const ModelConfig& config, uint64_t seed) {
    return [config, seed](const Placement& placement, const TierMemory& memory) {
        return random_gpu_weights(config, placement, seed, memory);
    };
}

GpuPlan plan_on_gpu(const ModelConfig& config, const Workload& workload, const GpuOptions& gpu,
                    EngineOptions options, const SystemInfo& system) {
    require(!options.kv_dtype || *options.kv_dtype == config.dtype,
            "on the GPU the KV cache has the type of the weights, {}; leave out --kv-dtype",
            name_of(config.dtype));
    // No step can have more prompt tokens than all sequences together.
    options.prefill_chunk =
        std::min(options.prefill_chunk, workload.batch * (workload.prompt + workload.output));
    options.max_tokens = workload.prompt + workload.output;
    CudaExecutorOptions executor{.max_batch = options.max_batch,
                                 .max_step_tokens = options.prefill_chunk + options.max_batch,
                                 .max_tokens = options.max_tokens};
    require_cuda_support(config, executor);

    GpuPlan result{.plan = {},
                   .profile = choose_hardware(gpu.hardware, gpu.remote, system),
                   .remote = {},
                   .options = options};
    const std::string& remote = result.remote = gpu.remote.value_or(result.profile.remote);
    check_remote_here(remote, system);
    PlanOptions wanted = plan_options(gpu);
    wanted.kv_dtype = options.kv_dtype;
    wanted.prefill_chunk = options.prefill_chunk;
    result.plan =
        make_plan(config, workload, result.profile, budgets_of(gpu, system, remote), wanted);
    result.warning = needless_offload(result.plan, config, result.profile, wanted);

    executor.staging = staging_sizes(result.plan);
    executor.local_gbps = result.profile.local_gbps;
    executor.remote_gbps = result.profile.remote_direct_gbps;
    executor.window_bytes = result.profile.window_bytes;
    result.options.kv_pages = result.plan.kv_local_pages + result.plan.kv_remote_pages;
    result.options.kv_remote_pages = result.plan.kv_remote_pages;
    result.options.memory = TierMemory::gpu_and(remote);
    result.options.make_executor = [executor](const ModelConfig& c, const ModelWeights& w,
                                              KvCache& cache) {
        return make_cuda_executor(c, w, cache, executor);
    };
    return result;
}

std::unique_ptr<Engine> start_gpu_engine(const ModelConfig& config, const GpuPlan& plan,
                                         const WeightSource& weights, const Tokenizer* tokenizer) {
    // Kernels are loaded now rather than in the first step that uses them.
    ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    return std::make_unique<Engine>(config, weights(plan.plan.placement, plan.options.memory),
                                    tokenizer, plan.options);
}

}  // namespace dak
