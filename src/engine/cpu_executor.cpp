#include "base/error.h"
#include "engine/executor.h"
#include "engine/transformer.h"

namespace dak {

namespace {

SampledToken sample(const Draw& draw, std::span<float> logits) {
    try {
        return {ops::sample(*draw.sampling, logits, draw.prompt, draw.output, draw.output.size())};
    } catch (const Error& error) {
        return {.error = error.what()};
    }
}

class CpuExecutor : public Executor {
  public:
    CpuExecutor(const ModelConfig& config, const ModelWeights& weights, KvCache& cache)
        : vocab_size_(static_cast<size_t>(config.vocab_size)),
          transformer_(config, weights, cache) {}

    std::vector<SampledToken> step(std::span<const SequenceChunk> chunks,
                                   std::span<const Draw> draws) override {
        std::span<float> logits = transformer_.forward(chunks);
        std::vector<SampledToken> tokens;
        for (const Draw& draw : draws) {
            tokens.push_back(sample(draw, logits.first(vocab_size_)));
            logits = logits.subspan(vocab_size_);
        }
        return tokens;
    }

  private:
    size_t vocab_size_;
    Transformer transformer_;
};

}  // namespace

std::unique_ptr<Executor> make_cpu_executor(const ModelConfig& config, const ModelWeights& weights,
                                            KvCache& cache, int num_threads) {
    ops::set_num_threads(num_threads);
    return std::make_unique<CpuExecutor>(config, weights, cache);
}

}  // namespace dak
