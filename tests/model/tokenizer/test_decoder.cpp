#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/tokenizer/decoder.h"

namespace dak {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// What comes out at each token, and at the end.
std::vector<std::string> decoded(std::string_view decoder, const std::vector<std::string>& tokens) {
    const Json json = Json::parse(decoder);
    const Decoder parsed = Decoder::parse(json.is_null() ? nullptr : &json, "tokenizer.json");
    DecoderRun run = parsed.start();
    std::vector<std::string> result;
    for (const auto& token : tokens) result.push_back(run.push(token));
    result.push_back(run.finish());
    return result;
}

TEST(Decoder, NoneJoinsWithSpaces) {
    EXPECT_THAT(decoded("null", {"a", "b", "c"}), ElementsAre("a", " b", " c", ""));
}

TEST(Decoder, ByteLevelHoldsBackIncompleteCharacters) {
    const auto byte_level = R"({"type": "ByteLevel"})";
    // 漢 is E6 BC A2, spelled æ ¼ ¢.
    EXPECT_THAT(decoded(byte_level, {"aĠ", "æ", "¼", "¢b", "æ¼"}),
                ElementsAre("a ", "", "", "漢b", "", "\uFFFD"));
    EXPECT_THAT(decoded(byte_level, {"æ", "x", "ÿ"}), ElementsAre("", "\uFFFDx", "\uFFFD", ""));
    // A token with a character outside the alphabet stands for itself.
    EXPECT_THAT(decoded(byte_level, {"<a b>", "é漢"}), ElementsAre("<a b>", "é漢", ""));
}

TEST(Decoder, ByteFallbackJudgesWholeRuns) {
    const auto byte_fallback = R"({"type": "ByteFallback"})";
    EXPECT_THAT(decoded(byte_fallback, {"<0xC3>", "<0xA9>", "a", "<0x41>"}),
                ElementsAre("", "", "éa", "", "A"));
    EXPECT_THAT(decoded(byte_fallback, {"<0x41>", "<0xc3>", "a"}),
                ElementsAre("", "", "\uFFFD\uFFFDa", ""));
    EXPECT_THAT(decoded(byte_fallback, {"<0xGG>", "<0x1>"}), ElementsAre("<0xGG>", "<0x1>", ""));
}

TEST(Decoder, LlamaStripsOneLeadingSpace) {
    const auto llama = R"({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
    EXPECT_THAT(decoded(llama, {"▁a", "▁b"}), ElementsAre("a", " b", ""));
    EXPECT_THAT(decoded(llama, {"▁", "▁b"}), ElementsAre("", " b", ""));
    EXPECT_THAT(decoded(llama, {"▁▁▁a"}), ElementsAre("  a", ""));
    EXPECT_THAT(decoded(llama, {}), ElementsAre(""));
}

TEST(Decoder, StripOfEachToken) {
    const auto strip = R"({"type": "Strip", "content": "_", "start": 1, "stop": 2})";
    EXPECT_THAT(decoded(strip, {"__a__", "b___", "___", "c"}),
                ElementsAre("_a", "b_", "", "c", ""));
}

TEST(Decoder, StripOfTheEndHoldsBack) {
    const auto strip = R"({"type": "Sequence", "decoders": [
        {"type": "Fuse"}, {"type": "Strip", "content": "_", "start": 0, "stop": 2}]})";
    EXPECT_THAT(decoded(strip, {"a_", "_", "_", "b", "__", "_c_"}),
                ElementsAre("a", "", "_", "__b", "", "___c", ""));
}

TEST(Decoder, MetaspaceDropsAllInTheFirstToken) {
    EXPECT_THAT(decoded(R"({"type": "Metaspace", "replacement": "▁"})", {"▁a▁b", "▁c"}),
                ElementsAre("ab", " c", ""));
    EXPECT_THAT(
        decoded(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})", {"▁a"}),
        ElementsAre(" a", ""));
}

TEST(Decoder, ReplaceAfterFuseWaitsForTheWhole) {
    const auto fused = R"({"type": "Sequence", "decoders": [
        {"type": "Fuse"}, {"type": "Replace", "pattern": {"Regex": "a+b"}, "content": "X"}]})";
    EXPECT_THAT(decoded(fused, {"a", "a", "b", "a"}), ElementsAre("", "", "", "", "Xa"));
}

TEST(Decoder, RefusesByName) {
    const std::pair<std::string_view, std::string_view> cases[] = {
        {R"({"type": "WordPiece"})",
         "tokenizer.json: decoder: type 'WordPiece' is not supported; supported are Sequence"},
        {R"({"type": "Sequence"})", "field 'decoders' must be an array"},
        {R"({"type": "Strip", "content": "ab", "start": 1, "stop": 0})",
         "content 'ab' must be one character"},
        {R"({"type": "Strip", "content": "a", "stop": 0})", "field 'start' is missing"},
        {R"({"type": "Replace", "content": "a"})", "field 'pattern' is missing"},
    };
    for (const auto& [input, message] : cases) {
        const std::string_view text = input;
        EXPECT_THAT([&] { decoded(text, {}); }, ThrowsMessage<Error>(HasSubstr(message)));
    }
}

}  // namespace
}  // namespace dak
