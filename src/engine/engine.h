#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "engine/executor.h"
#include "engine/kv_cache.h"
#include "engine/request.h"
#include "model/config.h"
#include "model/tokenizer/tokenizer.h"
#include "model/weights.h"

namespace dak {

struct EngineOptions {
    int64_t max_batch = 8;            ///< sequences that run at once
    int64_t max_tokens = 0;           ///< of a sequence, prompt and output; 0: the model's context
    int64_t kv_pages = 64;            ///< size of the KV pool in pages of 64 tokens
    int64_t kv_remote_pages = 0;      ///< those of them in the remote tier
    std::optional<DType> kv_dtype{};  ///< default: the model's
    int64_t prefill_chunk = 512;      ///< prompt tokens read in one step, over all sequences
    bool decode_together = false;     ///< no sequence decodes before all running prompts are read
    int num_threads = 0;              ///< on the CPU; 0: one per available core
    TierMemory memory = TierMemory::on_host();  ///< where the KV pool's tiers live
    ExecutorFactory make_executor{};            ///< default: on the CPU
};

/// Counted over the engine's life. A step that reads prompt tokens counts as prefill, one that only
/// adds a token to each sequence as decode.
struct EngineStatistics {
    int64_t prefill_tokens = 0;
    double prefill_seconds = 0;
    int64_t decode_steps = 0;
    int64_t decode_tokens = 0;
    double decode_seconds = 0;
    int64_t decode_kv_bytes = 0;  ///< that the decode steps had to read
    int64_t decode_weight_bytes = 0;

    double prefill_tokens_per_second() const;
    double decode_tokens_per_second() const;
    double tpot_seconds() const;                ///< time of a decode step
    double effective_bytes_per_second() const;  ///< EB of decode
};

/// Generates text for many requests at once: a queue of requests, slots for those that run, chunked
/// prefill and batched decode over paged KV. A request is admitted when the pages for its prompt
/// and all the tokens it may generate are free, so a running request never runs out of memory. Not
/// thread-safe.
class Engine {
  public:
    /// Throws Error when the model can never run the request: an empty prompt, a token outside the
    /// vocabulary, a prompt that fills the context, a bad sampling value.
    static void validate(const Request& request, const ModelConfig& config);

    /// `tokenizer` may be null: then completions have no text and stop strings are refused. It must
    /// outlive the engine.
    Engine(ModelConfig config, ModelWeights weights, const Tokenizer* tokenizer,
           const EngineOptions& options);
    ~Engine();

    /// Queues a request. Throws Error when it is not valid, or needs more than the whole KV pool.
    RequestId add(Request request);

    /// One forward pass over the running requests; returns those that finished. Exceptions of a
    /// callback pass through.
    std::vector<Completion> step();

    /// Ends a request wherever it is; its completion comes from the next step(). Unknown and
    /// finished ids are ignored.
    void cancel(RequestId id);

    bool idle() const;

    const ModelConfig& config() const { return config_; }
    const ModelWeights& weights() const { return weights_; }
    const KvCache& kv_cache() const { return cache_; }
    const EngineStatistics& statistics() const { return statistics_; }

  private:
    struct Sequence;
    using SequencePtr = std::unique_ptr<Sequence>;

    void admit();
    std::vector<Sequence*> choose_work();
    void account(const std::vector<Sequence*>& work, double seconds);
    void accept(Sequence& sequence, const SampledToken& sampled);
    void accept_token(Sequence& sequence, int32_t token);
    std::vector<Completion> collect_finished();

    ModelConfig config_;
    ModelWeights weights_;
    const Tokenizer* tokenizer_;
    EngineOptions options_;
    KvCache cache_;
    std::unique_ptr<Executor> executor_;
    int64_t weight_bytes_per_step_;

    std::deque<SequencePtr> waiting_;
    std::vector<SequencePtr> running_;
    RequestId next_id_ = 1;
    EngineStatistics statistics_;
};

}  // namespace dak
