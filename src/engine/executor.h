#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/kv_cache.h"
#include "model/config.h"
#include "model/weights.h"
#include "ops/sampling/sampling.h"

namespace dak {

/// New tokens of one sequence in a step.
struct SequenceChunk {
    std::span<const int32_t> tokens;
    int64_t past = 0;                ///< tokens already in the cache
    std::span<const int32_t> pages;  ///< enough for past + tokens
    /// Tokens that dynamic rope scaling reckons with: the whole prompt while it is being read, then
    /// the sequence so far.
    int64_t rope_length = 0;
    bool wants_token = true;  ///< the token that follows its last one
};

/// How the token after a chunk is drawn.
struct Draw {
    const ops::Sampling* sampling = nullptr;
    std::span<const int32_t> prompt;
    std::span<const int32_t> output;  ///< generated so far; their number is that of the draw
};

struct SampledToken {
    int32_t token = 0;
    std::string error{};  ///< not empty: the logits were no numbers
};

/// A device that runs a model: the forward pass over the new tokens of a batch, and the draw of the
/// tokens that follow.
class Executor {
  public:
    virtual ~Executor() = default;

    /// One token for each chunk that wants one, in their order; `draws` has as many. Throws Error
    /// when the device fails.
    virtual std::vector<SampledToken> step(std::span<const SequenceChunk> chunks,
                                           std::span<const Draw> draws) = 0;
};

/// Makes the executor of an engine; the arguments outlive it.
using ExecutorFactory = std::function<std::unique_ptr<Executor>(
    const ModelConfig& config, const ModelWeights& weights, KvCache& cache)>;

/// The arguments must outlive the executor.
/// `num_threads` 0: one per available core.
std::unique_ptr<Executor> make_cpu_executor(const ModelConfig& config, const ModelWeights& weights,
                                            KvCache& cache, int num_threads);

}  // namespace dak
