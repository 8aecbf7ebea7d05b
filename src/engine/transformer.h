#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv_cache.h"
#include "model/config.h"
#include "model/weights.h"
#include "ops/ops.h"

namespace dak {

/// New tokens of one sequence in a forward pass.
struct SequenceChunk {
    std::span<const int32_t> tokens;
    int64_t past = 0;                ///< tokens already in the cache
    std::span<const int32_t> pages;  ///< enough for past + tokens
    /// Tokens that dynamic rope scaling reckons with: the whole prompt while it is being read, then
    /// the sequence so far.
    int64_t rope_length = 0;
    bool wants_logits = true;  ///< of its last token
};

/// Runs the layers of a model, as its description lists them, over the new tokens of a batch.
class Transformer {
  public:
    /// The arguments must outlive the object.
    Transformer(const ModelConfig& config, const ModelWeights& weights, KvCache& cache);

    /// Logits of the last token of every chunk that wants them, [chunks that want, vocab_size];
    /// valid until the next call.
    std::span<float> forward(std::span<const SequenceChunk> chunks);

  private:
    void embed(std::span<const SequenceChunk> chunks);
    void run_layer(int64_t layer);
    void run_attention(int64_t layer);
    std::span<float> project_logits(std::span<const SequenceChunk> chunks);

    const ModelConfig& config_;
    const ModelWeights& weights_;
    KvCache& cache_;
    std::vector<float> frequencies_;

    int64_t tokens_ = 0;                ///< of the current batch
    std::vector<float> residual_;       ///< x [tokens, hidden_size]
    std::vector<float> hidden_;         ///< normalised x [tokens, hidden_size]
    std::vector<float> qkv_;            ///< [tokens, q_size + 2 kv_size]
    std::vector<float> attention_out_;  ///< [tokens, q_size]
    std::vector<float> mlp_;            ///< [tokens, intermediate_size]
    std::vector<float> logits_;
    std::vector<ops::AttentionSequence> sequences_;
    ops::RopeAngles angles_;
};

}  // namespace dak
