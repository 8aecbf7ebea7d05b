#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/engine.h"
#include "engine/golden.h"
#include "model/chat/chat_template.h"
#include "ops/cpu/matmul.h"

namespace dak {
namespace {

/// A real model, where `make demo` or `make test` has fetched it: from the user's words to the
/// generated ids, everything must be what Hugging Face transformers makes of them.
class SmolLm2 : public ::testing::Test {
  protected:
    void SetUp() override {
        const char* folder = std::getenv("DAK_MODEL_DIR");
        if (!folder) GTEST_SKIP() << "DAK_MODEL_DIR names no model folder";
        model_ = folder;
        config_ = load_config(model_);
        expected_ = read_json_file(DAK_TEST_DATA "/golden/smollm2-135m-instruct.json");
    }

    std::filesystem::path model_;
    ModelConfig config_;
    Json expected_;
};

TEST_F(SmolLm2, PromptsEqualHuggingFace) {
    const Tokenizer tokenizer = Tokenizer::load(model_);
    const auto chat = ChatTemplate::load(model_);
    ASSERT_TRUE(chat);
    for (const Json& prompt : expected_.at("prompts")) {
        const ChatMessage message{"user", prompt.at("text")};
        const std::string text = chat->render({&message, 1});
        EXPECT_EQ(text, prompt.at("prompt").get<std::string>());
        const std::vector<int32_t> ids = prompt.at("prompt_ids");
        EXPECT_EQ(tokenizer.encode(text, false), ids);
        EXPECT_EQ(tokenizer.decode(ids, false), text);
    }
}

TEST_F(SmolLm2, GreedyTokensEqualHuggingFace) {
    const bool bf16_math = ops::has_fast_bf16();
    const auto golden = testing::read_golden(DAK_TEST_DATA "/golden/smollm2-135m-instruct.json");
    for (const double ratio : {0.0, 0.37}) {
        Engine engine(config_, testing::load(model_, config_, ratio), nullptr,
                      {.max_batch = 8,
                       .kv_pages = 20,
                       .kv_remote_pages = std::llround(20 * ratio),
                       .kv_dtype = DType::kF32});
        for (const auto& prompt : golden) {
            engine.add({.prompt = prompt.prompt,
                        .max_new_tokens = static_cast<int64_t>(prompt.greedy.size())});
        }
        size_t finished = 0;
        while (!engine.idle()) {
            for (const Completion& completion : engine.step()) {
                const auto& prompt = golden.at(static_cast<size_t>(completion.id - 1));
                ++finished;
                for (size_t i = 0; i < completion.tokens.size(); ++i) {
                    if (bf16_math && prompt.margins[i] < 0.5f) break;
                    ASSERT_EQ(completion.tokens[i], prompt.greedy[i])
                        << "ratio " << ratio << " prompt " << completion.id << " step " << i;
                }
                EXPECT_EQ(completion.tokens.size(), prompt.greedy.size());
            }
        }
        EXPECT_EQ(finished, golden.size());
    }
}

}  // namespace
}  // namespace dak
