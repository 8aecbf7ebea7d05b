#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "engine/golden.h"

namespace dak {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// A byte-level tokenizer whose ids 0..99 are printable characters, as many as the model knows.
Tokenizer letters(int64_t vocab_size) {
    Json vocab = Json::object();
    for (int64_t id = 0; id < vocab_size; ++id) {
        vocab[id < 94 ? fmt::format("{:c}", static_cast<char>('!' + id)) : fmt::format("!{}", id)] =
            id;
    }
    const Json tokenizer = {
        {"version", "1.0"},
        {"added_tokens", Json::array()},
        {"normalizer", nullptr},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
        {"post_processor", nullptr},
        {"decoder", {{"type", "ByteLevel"}}},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
    return Tokenizer::from_json(tokenizer.dump(), "test");
}

class EngineTest : public ::testing::Test {
  protected:
    Engine make(const EngineOptions& options = {}, const Tokenizer* tokenizer = nullptr) {
        return Engine(config_, testing::load(model_, config_, 0.25), tokenizer, options);
    }

    static std::map<RequestId, Completion> run(Engine& engine) {
        std::map<RequestId, Completion> completions;
        for (int steps = 0; !engine.idle(); ++steps) {
            EXPECT_LT(steps, 10'000);
            for (Completion& completion : engine.step()) {
                EXPECT_TRUE(completions.emplace(completion.id, completion).second);
            }
        }
        return completions;
    }

    Completion run_one(Request request, const EngineOptions& options = {}) {
        Engine engine = make(options, &tokenizer_);
        const RequestId id = engine.add(std::move(request));
        return run(engine).at(id);
    }

    std::filesystem::path model_ = DAK_TEST_DATA "/golden/qwen3";
    ModelConfig config_ = load_config(model_);
    std::vector<testing::GoldenPrompt> golden_ = testing::read_golden(model_ / "expected.json");
    Tokenizer tokenizer_ = letters(config_.vocab_size);
};

TEST_F(EngineTest, RequestsComeAndGoWhileOthersRun) {
    Engine engine = make({.max_batch = 3,
                          .kv_pages = 8,
                          .kv_remote_pages = 4,
                          .kv_dtype = DType::kF32,
                          .prefill_chunk = 20});
    std::map<RequestId, size_t> expected;
    std::map<RequestId, Completion> completions;
    size_t added = 0;
    for (int step = 0; step < 1000 && completions.size() < 15; ++step) {
        if (step % 7 == 0 && added < 15) {
            const auto& golden = golden_[added % golden_.size()];
            const RequestId id = engine.add({.prompt = golden.prompt,
                                             .max_new_tokens = 5 + static_cast<int64_t>(added),
                                             .ignore_eos = true});
            expected[id] = added++;
        }
        for (Completion& completion : engine.step()) {
            completions.emplace(completion.id, completion);
        }
    }
    ASSERT_EQ(completions.size(), 15u);
    for (const auto& [id, index] : expected) {
        const auto& golden = golden_[index % golden_.size()].greedy;
        const std::vector<int32_t> first(golden.begin(), golden.begin() + 5 + long(index));
        EXPECT_EQ(completions.at(id).tokens, first);
        EXPECT_EQ(completions.at(id).finish, FinishReason::kLength);
    }
    EXPECT_TRUE(engine.idle());
    EXPECT_EQ(engine.kv_cache().free_pages(), 8);
}

TEST_F(EngineTest, EndsAtAnyEosToken) {
    const auto& greedy = golden_[1].greedy;
    config_.eos_tokens = {config_.vocab_size > 98 ? 98 : 0, greedy[6]};
    const auto first = std::find_first_of(greedy.begin(), greedy.end(), config_.eos_tokens.begin(),
                                          config_.eos_tokens.end());
    const Completion completion = run_one({.prompt = golden_[1].prompt});
    EXPECT_EQ(completion.finish, FinishReason::kEos);
    EXPECT_EQ(completion.tokens, std::vector(greedy.begin(), first + 1));
    EXPECT_EQ(completion.text,
              tokenizer_.decode(std::vector(greedy.begin(), first)));  // without the EOS token

    const Completion ignoring =
        run_one({.prompt = golden_[1].prompt, .max_new_tokens = 20, .ignore_eos = true});
    EXPECT_EQ(ignoring.tokens.size(), 20u);
}

TEST_F(EngineTest, StreamsWhatTheCompletionHolds) {
    std::string streamed;
    std::vector<int32_t> tokens;
    FinishReason last = FinishReason::kNone;
    const Completion completion = run_one({.prompt = golden_[0].prompt,
                                           .max_new_tokens = 30,
                                           .ignore_eos = true,
                                           .on_update = [&](const Update& update) {
                                               streamed += update.text;
                                               tokens.push_back(update.token);
                                               EXPECT_EQ(last, FinishReason::kNone);
                                               last = update.finish;
                                           }});
    EXPECT_EQ(streamed, completion.text);
    EXPECT_EQ(tokens, completion.tokens);
    EXPECT_EQ(last, FinishReason::kLength);
    EXPECT_EQ(completion.text, tokenizer_.decode(completion.tokens));
    EXPECT_GT(completion.ttft_seconds, 0);
    EXPECT_GT(completion.tpot_seconds, 0);
}

TEST_F(EngineTest, StopStringsEndTheText) {
    const Completion whole =
        run_one({.prompt = golden_[0].prompt, .max_new_tokens = 30, .ignore_eos = true});
    const std::string stop = whole.text.substr(10, 3);
    const Completion cut = run_one({.prompt = golden_[0].prompt,
                                    .max_new_tokens = 30,
                                    .stop = {"never to be seen", stop},
                                    .ignore_eos = true});
    EXPECT_EQ(cut.finish, FinishReason::kStop);
    EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
    EXPECT_LT(cut.tokens.size(), whole.tokens.size());
}

TEST_F(EngineTest, CancelsRunningAndWaitingRequests) {
    Engine engine = make({.max_batch = 1, .kv_pages = 4});
    const RequestId running = engine.add({.prompt = {1, 2, 3}, .max_new_tokens = 100});
    const RequestId waiting = engine.add({.prompt = {4, 5}, .max_new_tokens = 100});
    EXPECT_TRUE(engine.step().empty());
    engine.cancel(running);
    engine.cancel(waiting);
    engine.cancel(12345);
    const auto completions = run(engine);
    EXPECT_EQ(completions.at(running).finish, FinishReason::kCancelled);
    EXPECT_EQ(completions.at(running).tokens.size(), 1u);
    EXPECT_EQ(completions.at(waiting).finish, FinishReason::kCancelled);
    EXPECT_EQ(engine.kv_cache().free_pages(), 4);
}

TEST_F(EngineTest, ACallbackMayCancel) {
    Engine engine = make({.max_batch = 2, .kv_pages = 8});
    RequestId other = 0;
    int updates = 0;
    const RequestId first = engine.add({.prompt = {1, 2},
                                        .max_new_tokens = 50,
                                        .ignore_eos = true,
                                        .on_update = [&](const Update& update) {
                                            if (++updates != 3) return;
                                            engine.cancel(update.id);
                                            engine.cancel(other);
                                        }});
    other = engine.add({.prompt = {3, 4}, .max_new_tokens = 50, .ignore_eos = true});
    const auto completions = run(engine);
    EXPECT_EQ(completions.at(first).finish, FinishReason::kCancelled);
    EXPECT_EQ(completions.at(first).tokens.size(), 3u);
    EXPECT_EQ(completions.at(other).finish, FinishReason::kCancelled);
    EXPECT_EQ(completions.at(other).tokens.size(), 2u);
}

TEST_F(EngineTest, SampledTokensRepeatWithTheSeedWhateverTheBatch) {
    const auto request = [&](uint64_t seed) {
        return Request{.prompt = golden_[2].prompt,
                       .sampling = {.temperature = 1.5f, .top_k = 50, .seed = seed},
                       .max_new_tokens = 30,
                       .ignore_eos = true};
    };
    const auto alone = run_one(request(3)).tokens;
    EXPECT_EQ(run_one(request(3)).tokens, alone);
    EXPECT_NE(run_one(request(4)).tokens, alone);
    Engine engine = make({.max_batch = 4, .kv_pages = 20});
    engine.add(request(4));
    const RequestId id = engine.add(request(3));
    EXPECT_EQ(run(engine).at(id).tokens, alone);
}

TEST_F(EngineTest, ContextLimitEndsARequest) {
    config_.max_position = 40;
    const Completion completion = run_one({.prompt = std::vector<int32_t>(33, 1),
                                           .max_new_tokens = std::numeric_limits<int64_t>::max(),
                                           .ignore_eos = true});
    EXPECT_EQ(completion.finish, FinishReason::kLength);
    EXPECT_EQ(completion.tokens.size(), 7u);
}

TEST_F(EngineTest, RefusesWhatCanNeverRun) {
    config_.max_position = 1000;
    Engine engine = make({.max_batch = 2, .kv_pages = 2});
    const auto adding = [&](Request request) {
        return [&engine, request] { engine.add(request); };
    };
    EXPECT_THAT(adding({.prompt = {}}), ThrowsMessage<Error>(HasSubstr("prompt is empty")));
    EXPECT_THAT(adding({.prompt = {1, 100'000}}),
                ThrowsMessage<Error>(HasSubstr("outside the model's vocabulary")));
    EXPECT_THAT(
        adding({.prompt = std::vector<int32_t>(1000, 1)}),
        ThrowsMessage<Error>(HasSubstr("has 1000 tokens, but the model's context holds 1000")));
    EXPECT_THAT(adding({.prompt = {1}, .max_new_tokens = 200}),
                ThrowsMessage<Error>(HasSubstr("need 4 KV pages, but the cache has 2")));
    EXPECT_THAT(adding({.prompt = {1}, .max_new_tokens = 0}),
                ThrowsMessage<Error>(HasSubstr("new tokens must be positive")));
    EXPECT_THAT(adding({.prompt = {1}, .sampling = {.temperature = -1}}),
                ThrowsMessage<Error>(HasSubstr("temperature")));
    EXPECT_THAT(adding({.prompt = {1}, .stop = {"x"}}),
                ThrowsMessage<Error>(HasSubstr("need a tokenizer")));
    EXPECT_TRUE(engine.idle());
}

TEST_F(EngineTest, BrokenWeightsEndTheRequestWithAnError) {
    ModelWeights weights = testing::load(model_, config_, 0);
    weights.final_norm.weight[0] = std::numeric_limits<float>::quiet_NaN();
    Engine engine(config_, std::move(weights), nullptr, {});
    const RequestId id = engine.add({.prompt = {1, 2, 3}});
    const Completion completion = run(engine).at(id);
    EXPECT_EQ(completion.finish, FinishReason::kError);
    EXPECT_THAT(completion.error, HasSubstr("NaN"));
    EXPECT_TRUE(completion.tokens.empty());
}

TEST_F(EngineTest, CountsWhatItDid) {
    Engine engine = make({.max_batch = 2, .kv_pages = 8, .prefill_chunk = 4});
    engine.add({.prompt = std::vector<int32_t>(10, 1), .max_new_tokens = 5, .ignore_eos = true});
    run(engine);
    const EngineStatistics& statistics = engine.statistics();
    EXPECT_EQ(statistics.prefill_tokens, 10);
    EXPECT_EQ(statistics.decode_steps, 4);
    EXPECT_EQ(statistics.decode_tokens, 4);
    EXPECT_GT(statistics.effective_bytes_per_second(), 0);
    // 4 steps over the layers' and the head's weights, and contexts of 11 to 14 tokens.
    int64_t weight_bytes = 0;
    for (const WeightSpec& spec : weight_specs(config_)) {
        if (spec.role != WeightRole::kEmbedding || config_.tied_embeddings) {
            weight_bytes += spec.shape.bytes();
        }
    }
    EXPECT_EQ(statistics.decode_weight_bytes + statistics.decode_kv_bytes,
              4 * weight_bytes + (11 + 12 + 13 + 14) * engine.kv_cache().token_bytes());
}

}  // namespace
}  // namespace dak
