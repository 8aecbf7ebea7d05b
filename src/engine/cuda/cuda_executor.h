#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "engine/executor.h"
#include "engine/staging_schedule.h"

namespace dak {

struct CudaExecutorOptions {
    int64_t max_batch = 8;          ///< sequences of a step
    int64_t max_step_tokens = 512;  ///< new tokens of a step, over all sequences
    int64_t max_tokens = 4096;      ///< of one sequence, prompt and output
    /// Remote weights come through a ring of this size in GPU memory; nothing: read in place.
    std::optional<StagingSizes> staging{};
    double local_gbps = 0;     ///< B_g of this machine; 0: an H200's
    double remote_gbps = 0;    ///< B_h, read by SMs; 0: PCIe 5 x16
    int64_t window_bytes = 0;  ///< remote bytes in flight, whole GPU; 0: 512 KiB
    bool graphs = true;        ///< decode steps replay captured graphs; off to compare
};

/// Runs a model on the current GPU. Weights and KV cache must lie in memory that it can read. Takes
/// all its memory, and captures a graph for each batch size it will run, when it is made; throws
/// Error when the GPU has no room. The other arguments must outlive it.
std::unique_ptr<Executor> make_cuda_executor(const ModelConfig& config, const ModelWeights& weights,
                                             KvCache& cache, const CudaExecutorOptions& options);

/// Device bytes of the executor's activations, vectors and inputs: what it takes besides weights,
/// KV cache, staging ring, workspaces and graphs.
int64_t cuda_executor_bytes(const ModelConfig& config, const CudaExecutorOptions& options);

/// Throws Error naming what the GPU's kernels cannot run; to be asked before weights are loaded.
void require_cuda_support(const ModelConfig& config, const CudaExecutorOptions& options);

}  // namespace dak
