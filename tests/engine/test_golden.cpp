#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "engine/engine.h"
#include "engine/golden.h"
#include "engine/transformer.h"
#include "ops/cpu/matmul.h"

namespace dak {
namespace {

using testing::GoldenPrompt;

/// Logits are a few units large. In fp32 only the order of additions differs from Hugging Face;
/// bf16 instructions round what goes into every product to 8 bits.
double logit_tolerance(const ModelConfig& config) {
    return ops::has_fast_bf16() && config.dtype == DType::kBF16 ? 0.25 : 2e-4;
}

class Golden : public ::testing::TestWithParam<std::filesystem::path> {
  protected:
    ModelConfig config_ = load_config(GetParam());
    std::vector<GoldenPrompt> prompts_ = testing::read_golden(GetParam() / "expected.json");
};

TEST_P(Golden, LogitsEqualHuggingFace) {
    std::ifstream file(GetParam() / "expected_logits.bin", std::ios::binary);
    const ModelWeights weights = testing::load(GetParam(), config_, 0.3);
    for (const GoldenPrompt& prompt : prompts_) {
        std::vector<float> expected(static_cast<size_t>(config_.vocab_size));
        file.read(reinterpret_cast<char*>(expected.data()),
                  static_cast<std::streamsize>(expected.size() * sizeof(float)));
        ASSERT_TRUE(file);
        KvCache cache({config_.num_kv_heads, config_.head_dim, DType::kF32}, config_.num_layers, 4,
                      2);
        Transformer transformer(config_, weights, cache);
        const auto length = static_cast<int64_t>(prompt.prompt.size());
        const auto pages = cache.allocate(KvCache::pages_for(length));
        const SequenceChunk chunk{.tokens = prompt.prompt, .pages = pages, .rope_length = length};
        const std::span<float> logits = transformer.forward({&chunk, 1});
        ASSERT_EQ(logits.size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
            ASSERT_NEAR(logits[i], expected[i], logit_tolerance(config_))
                << "prompt of " << length << " tokens, logit " << i;
        }
    }
}

/// Greedy tokens must be Hugging Face's up to the first step whose margin rounding could bridge.
void expect_greedy(const GoldenPrompt& golden, const std::vector<int32_t>& tokens,
                   double tolerance) {
    ASSERT_EQ(tokens.size(), golden.greedy.size());
    for (size_t i = 0; i < tokens.size() && golden.margins[i] > tolerance; ++i) {
        ASSERT_EQ(tokens[i], golden.greedy[i]) << "step " << i;
    }
}

std::vector<Completion> generate(Engine& engine, const std::vector<GoldenPrompt>& prompts) {
    std::vector<Completion> completions(prompts.size());
    for (const GoldenPrompt& prompt : prompts) {
        engine.add({.prompt = prompt.prompt,
                    .max_new_tokens = static_cast<int64_t>(prompt.greedy.size()),
                    .ignore_eos = true});
    }
    while (!engine.idle()) {
        for (Completion& completion : engine.step()) {
            completions.at(static_cast<size_t>(completion.id - 1)) = std::move(completion);
        }
    }
    return completions;
}

TEST_P(Golden, GreedyTokensEqualHuggingFaceAtEveryRatioChunkAndBatch) {
    struct Setting {
        double ratio;
        int64_t prefill_chunk;
        int64_t max_batch;
    };
    for (const auto& [ratio, prefill_chunk, max_batch] :
         {Setting{0, 512, 8}, Setting{1, 512, 1}, Setting{0.3, 512, 8}, Setting{0.37, 7, 3},
          Setting{0.5, 64, 2}}) {
        SCOPED_TRACE(fmt::format("ratio {} chunk {} batch {}", ratio, prefill_chunk, max_batch));
        Engine engine(config_, testing::load(GetParam(), config_, ratio), nullptr,
                      {.max_batch = max_batch,
                       .kv_pages = 12,
                       .kv_remote_pages = std::llround(12 * ratio),
                       .kv_dtype = DType::kF32,
                       .prefill_chunk = prefill_chunk});
        const auto completions = generate(engine, prompts_);
        for (size_t i = 0; i < prompts_.size(); ++i) {
            SCOPED_TRACE(fmt::format("prompt of {} tokens", prompts_[i].prompt.size()));
            EXPECT_EQ(completions[i].finish, FinishReason::kLength);
            expect_greedy(prompts_[i], completions[i].tokens, 2 * logit_tolerance(config_));
        }
        EXPECT_EQ(engine.kv_cache().free_pages(), 12);
    }
}

/// The cache in the model's own type rounds keys and values to 8 or 11 bits.
TEST_P(Golden, GreedyTokensWithTheCacheInTheModelsType) {
    Engine engine(config_, testing::load(GetParam(), config_, 0.3), nullptr,
                  {.max_batch = 8, .kv_pages = 24, .kv_remote_pages = 7});
    const auto completions = generate(engine, prompts_);
    const double tolerance = config_.dtype == DType::kBF16  ? 0.2
                             : config_.dtype == DType::kF16 ? 0.03
                                                            : 2 * logit_tolerance(config_);
    for (size_t i = 0; i < prompts_.size(); ++i) {
        expect_greedy(prompts_[i], completions[i].tokens, tolerance);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, ::testing::ValuesIn(testing::golden_models()),
                         [](const auto& model) {
                             std::string name = model.param.filename().string();
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace dak
