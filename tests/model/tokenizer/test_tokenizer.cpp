#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tiny_tokenizer.h"

namespace dak {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

TEST(Tokenizer, PutsSpecialTokensAround) {
    TinyTokenizer tiny({"a", "<s>", "</s>"});
    tiny.add_token("<s>", R"({"special": true})");
    tiny.set("post_processor", R"({"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false},
        {"type": "TemplateProcessing",
         "single": [{"SpecialToken": {"id": "B", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}},
                    {"SpecialToken": {"id": "E", "type_id": 0}}],
         "pair": [],
         "special_tokens": {"B": {"id": "B", "ids": [1], "tokens": ["<s>"]},
                            "E": {"id": "E", "ids": [2, 2], "tokens": ["</s>", "</s>"]}}}]})");
    EXPECT_THAT(tiny.build().encode("a"), ElementsAre(1, 0, 2, 2));
    EXPECT_THAT(tiny.build().encode(""), ElementsAre(1, 2, 2));
    EXPECT_THAT(tiny.build().encode("a<s>", false), ElementsAre(0, 1));
    tiny.set("post_processor",
             R"({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]})");
    EXPECT_THAT(tiny.build().encode("a"), ElementsAre(1, 0, 2));
}

TEST(Tokenizer, InvalidUtf8ReadsAsReplacementCharacters) {
    TinyTokenizer tiny({"a", "\uFFFD"});
    EXPECT_THAT(tiny.build().encode("a\xFF\xE6\xBC"), ElementsAre(0, 1, 1));
}

TEST(Tokenizer, IdsOutOfRange) {
    const Tokenizer tokenizer = TinyTokenizer({"a", "b"}).build();
    EXPECT_THAT(
        [&] {
            tokenizer.decode(std::vector{0, 2});
        },
        ThrowsMessage<Error>(HasSubstr("token id 2 is outside the vocabulary of 2")));
    EXPECT_THROW(tokenizer.decode(std::vector{-1}), Error);
    EXPECT_THROW(tokenizer.id_to_token(2), Error);
    EXPECT_THROW(StreamDecoder(tokenizer).push(2), Error);
}

TEST(Tokenizer, IdsWithoutToken) {
    TinyTokenizer tiny({"a"});
    tiny.set_model("vocab", R"({"a": 0, "b": 5})");
    const Tokenizer tokenizer = tiny.build();
    EXPECT_EQ(tokenizer.vocab_size(), 6);
    EXPECT_EQ(tokenizer.id_to_token(3), "");
    EXPECT_EQ(tokenizer.decode(std::vector{0, 3, 5}), "a b");
}

TEST(Tokenizer, CanBeMoved) {
    Tokenizer tokenizer = TinyTokenizer({"a", "b"}).build();
    StreamDecoder decoder(tokenizer);
    const Tokenizer moved = std::move(tokenizer);
    StreamDecoder other = std::move(decoder);
    EXPECT_EQ(other.push(1), "b");
    EXPECT_THAT(moved.encode("ab"), ElementsAre(0, 1));
}

TEST(Tokenizer, IgnoresTruncationAndPadding) {
    TinyTokenizer tiny({"a"});
    tiny.set("truncation", R"({"max_length": 1, "strategy": "LongestFirst", "stride": 0})");
    tiny.set("padding", R"({"strategy": {"Fixed": 8}, "pad_id": 0})");
    EXPECT_THAT(tiny.build().encode("aaa"), ElementsAre(0, 0, 0));
}

TEST(StreamDecoder, SkipsAndHoldsBack) {
    TinyTokenizer tiny({"æ", "¼", "¢", "Ġa"});
    tiny.set("decoder", R"({"type": "ByteLevel"})").add_token("</s>", R"({"special": true})");
    const Tokenizer tokenizer = tiny.build();
    StreamDecoder skipping(tokenizer);
    EXPECT_EQ(skipping.push(0), "");
    EXPECT_EQ(skipping.push(1), "");
    EXPECT_EQ(skipping.push(4), "");
    EXPECT_EQ(skipping.push(2), "漢");
    EXPECT_EQ(skipping.push(3), " a");
    EXPECT_EQ(skipping.push(0), "");
    EXPECT_EQ(skipping.finish(), "\uFFFD");
    StreamDecoder showing(tokenizer, false);
    EXPECT_EQ(showing.push(4), "</s>");
}

TEST(Tokenizer, RefusesByName) {
    const std::pair<std::string_view, std::string_view> cases[] = {
        {"", "tokenizer.json: not valid JSON at column"},
        {"[]", "tokenizer.json: expected a JSON object"},
        {"{}", "tokenizer.json: field 'model' is missing"},
        {R"({"model": 3})", "tokenizer.json: model: expected a JSON object"},
        {R"({"version": "2.0", "model": {}})", "version '2.0' is not supported"},
        {R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", -1.5]]}})",
         "model type 'Unigram' is not supported"},
        {R"({"model": {"type": "WordPiece", "vocab": {"a": 0}}})",
         "model type 'WordPiece' is not supported"},
        {R"({"model": {"type": "BPE"}})", "field 'vocab' is missing"},
        {R"({"model": {"vocab": {"a": 0}}})", "field 'merges' is missing"},
        {R"({"model": {"vocab": {"a": 0, "b": 0}, "merges": []}})",
         "tokens 'a' and 'b' have the same id 0"},
        {R"({"model": {"vocab": {"\ud800": 0}, "merges": []}})", "not valid JSON"},
        {R"({"model": {"vocab": {}, "merges": []}, "added_tokens": {}})",
         "field 'added_tokens' must be an array"},
        {R"({"model": {"vocab": {}, "merges": []}, "added_tokens": [{"id": 0}]})",
         "added_tokens: field 'content' is missing"},
    };
    for (const auto& [input, message] : cases) {
        const std::string_view text = input;
        EXPECT_THAT([&] { Tokenizer::from_json(text, "tokenizer.json"); },
                    ThrowsMessage<Error>(HasSubstr(message)))
            << text;
    }
}

TEST(Tokenizer, RefusesPostProcessorsByName) {
    const std::pair<std::string_view, std::string_view> cases[] = {
        {R"({"type": "Magic"})", "post_processor: type 'Magic' is not supported"},
        {R"({"type": "TemplateProcessing"})", "field 'single' must be an array"},
        {R"({"type": "TemplateProcessing", "single": []})",
         "the template must hold the text (Sequence A) once"},
        {R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}]})",
         "a piece must be a SpecialToken or the Sequence A"},
        {R"({"type": "TemplateProcessing", "special_tokens": {},
             "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]})",
         "special_tokens does not give the ids of '<s>'"},
        {R"({"type": "TemplateProcessing", "special_tokens": {"<s>": {"ids": [7]}},
             "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]})",
         "special token 7 is outside the vocabulary of 1"},
        {R"({"type": "TemplateProcessing", "special_tokens": {"<s>": {"ids": [-1]}},
             "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]})",
         "'-1' is no token id"},
        {R"({"type": "BertProcessing", "cls": ["a", 0]})", "field 'sep' must be [token, id]"},
    };
    for (const auto& [input, message] : cases) {
        const std::string_view text = input;
        TinyTokenizer tiny({"a"});
        tiny.set("post_processor", text);
        EXPECT_THAT([&] { tiny.build(); }, ThrowsMessage<Error>(HasSubstr(message)));
    }
}

/// An empty folder, removed at the end.
class TokenizerFolder : public testing::Test {
  protected:
    void SetUp() override { std::filesystem::create_directories(folder_); }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    void write(std::string_view name, std::string_view text) {
        std::ofstream(folder_ / name) << text;
    }

    /// Loading fails with a message that holds all of these.
    void expect_refused(const std::string& message, const std::string& file = "") {
        EXPECT_THAT([&] { Tokenizer::load(folder_); },
                    ThrowsMessage<Error>(AllOf(
                        HasSubstr(file.empty() ? folder_.string() : (folder_ / file).string()),
                        HasSubstr(message))));
    }

    const std::filesystem::path folder_ =
        std::filesystem::path(testing::TempDir()) /
        (testing::UnitTest::GetInstance()->current_test_info()->name() + std::to_string(getpid()));
};

TEST_F(TokenizerFolder, LoadsTokenizerJson) {
    expect_refused("no tokenizer.json, nor vocab.json and merges.txt");
    write("tokenizer.json", TinyTokenizer({"a"}).json.dump());
    EXPECT_THAT(Tokenizer::load(folder_).encode("a"), ElementsAre(0));
    write("tokenizer.json", "{");
    expect_refused("not valid JSON at column", "tokenizer.json");
}

TEST_F(TokenizerFolder, LoadsGpt2Files) {
    write("vocab.json", R"({"a": 0, "b": 1, "Ġ": 2, "ab": 3, "<|endoftext|>": 4, "</s>": 5})");
    expect_refused("nor vocab.json and merges.txt");
    write("merges.txt", "#version: 0.2\na b\r\n\n");
    EXPECT_THAT(Tokenizer::load(folder_).encode("ab a<|endoftext|>"), ElementsAre(3, 2, 0, 4));
    EXPECT_EQ(Tokenizer::load(folder_).decode(std::vector{3, 2, 0, 4}), "ab a");

    write("tokenizer_config.json", R"({"bos_token": {"content": "</s>", "__type": "AddedToken"},
        "pad_token": "<pad>", "add_bos_token": true, "add_prefix_space": true})");
    EXPECT_THAT(Tokenizer::load(folder_).encode("a<pad>"), ElementsAre(5, 2, 0, 6));
    EXPECT_FALSE(Tokenizer::load(folder_).is_special(4));
    EXPECT_TRUE(Tokenizer::load(folder_).is_special(6));
}

TEST_F(TokenizerFolder, RefusesDamagedGpt2Files) {
    write("vocab.json", R"({"a": 0, "b": 0})");
    write("merges.txt", "a b c\n");
    expect_refused("tokens 'a' and 'b' have the same id 0", "vocab.json");
    write("vocab.json", R"({"a": null})");
    expect_refused("the id of token 'a' must be an integer", "vocab.json");
    write("vocab.json", R"({"a": 0, "b": 1})");
    expect_refused("line 1 is no merge of two tokens", "merges.txt");
    write("merges.txt", "a b\n");
    expect_refused("merge 0 ('a' and 'b') needs 'ab'", "vocab.json");
    write("merges.txt", "");
    write("tokenizer_config.json", R"({"add_bos_token": true})");
    expect_refused("bos_token is missing", "tokenizer_config.json");
    write("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "x"})");
    expect_refused("bos_token 'x' is not in the vocabulary", "tokenizer_config.json");
    write("tokenizer_config.json", R"({"eos_token": 3})");
    expect_refused("field 'content' must be a string", "vocab.json");
}

}  // namespace
}  // namespace dak
