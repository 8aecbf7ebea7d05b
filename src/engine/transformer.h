#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/kv_cache.h"
#include "model/config.h"
#include "model/weights.h"
#include "ops/ops.h"

namespace dak {

/// Runs the layers of a model on the CPU, as its description lists them, over the new tokens of a
/// batch.
class Transformer {
  public:
    /// The arguments must outlive the object.
    Transformer(const ModelConfig& config, const ModelWeights& weights, KvCache& cache);

    /// Logits of the last token of every chunk that wants a token, [chunks that want, vocab_size];
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
