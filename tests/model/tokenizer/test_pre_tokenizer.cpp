#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/tokenizer/pre_tokenizer.h"

namespace dak {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

std::vector<std::string> pieces(const Json& pre_tokenizer, std::string_view text,
                                bool at_start = true) {
    SplitText split{std::string(text), {{0, text.size(), at_start}}};
    PreTokenizer::parse(&pre_tokenizer, "tokenizer.json").apply(split);
    std::vector<std::string> result;
    for (const auto& piece : split.pieces) result.emplace_back(split.view(piece));
    return result;
}

std::vector<std::string> split(std::string_view behavior, std::string_view text,
                               bool invert = false) {
    return pieces({{"type", "Split"},
                   {"pattern", {{"String", "-"}}},
                   {"behavior", behavior},
                   {"invert", invert}},
                  text);
}

TEST(PreTokenizer, SplitBehaviors) {
    EXPECT_THAT(split("Removed", "-a--b"), ElementsAre("a", "b"));
    EXPECT_THAT(split("Isolated", "-a--b"), ElementsAre("-", "a", "-", "-", "b"));
    EXPECT_THAT(split("MergedWithPrevious", "-a--b"), ElementsAre("-", "a-", "-", "b"));
    EXPECT_THAT(split("MergedWithNext", "-a--b-"), ElementsAre("-a", "-", "-b", "-"));
    EXPECT_THAT(split("Contiguous", "-a--b"), ElementsAre("-", "a", "--", "b"));
    EXPECT_THAT(split("Removed", "-a--b", true), ElementsAre("-", "-", "-"));
    EXPECT_THAT(split("Contiguous", "-a--b", true), ElementsAre("-", "a", "--", "b"));
    EXPECT_THAT(split("Removed", "--"), IsEmpty());
}

TEST(PreTokenizer, ByteLevel) {
    const Json plain = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
    EXPECT_THAT(pieces(plain, "I'm é  12 !\n\n x"),
                ElementsAre("I", "'m", "ĠÃ©", "Ġ", "Ġ12", "Ġ!", "ĊĊ", "Ġx"));
    const Json prefixed = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
    EXPECT_THAT(pieces(prefixed, "a b"), ElementsAre("Ġa", "Ġb"));
    EXPECT_THAT(pieces(prefixed, " a"), ElementsAre("Ġa"));
    const Json whole = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    EXPECT_THAT(pieces(whole, "a b"), ElementsAre("aĠb"));
}

TEST(PreTokenizer, Digits) {
    EXPECT_THAT(pieces({{"type", "Digits"}, {"individual_digits", true}}, "a12²Ⅳb"),
                ElementsAre("a", "1", "2", "²", "Ⅳ", "b"));
    EXPECT_THAT(pieces({{"type", "Digits"}, {"individual_digits", false}}, "a12²b3"),
                ElementsAre("a", "12²", "b", "3"));
}

TEST(PreTokenizer, Metaspace) {
    Json metaspace = {{"type", "Metaspace"}, {"replacement", "▁"}};
    EXPECT_THAT(pieces(metaspace, "a b"), ElementsAre("▁a", "▁b"));
    EXPECT_THAT(pieces(metaspace, " a  b"), ElementsAre("▁a", "▁", "▁b"));
    EXPECT_THAT(pieces(metaspace, "▁a"), ElementsAre("▁a"));
    metaspace["add_prefix_space"] = false;
    EXPECT_THAT(pieces(metaspace, "a b"), ElementsAre("a", "▁b"));
    metaspace.erase("add_prefix_space");
    metaspace["prepend_scheme"] = "first";
    EXPECT_THAT(pieces(metaspace, "a b", true), ElementsAre("▁a", "▁b"));
    EXPECT_THAT(pieces(metaspace, "a b", false), ElementsAre("a", "▁b"));
    metaspace["split"] = false;
    EXPECT_THAT(pieces(metaspace, "a b"), ElementsAre("▁a▁b"));
    metaspace["prepend_scheme"] = "never";
    EXPECT_THAT(pieces(metaspace, "a b"), ElementsAre("a▁b"));
}

TEST(PreTokenizer, MetaspaceKnowsTheFirstPieceAfterASplit) {
    const Json sequence = Json::parse(R"({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"String": "-"}, "behavior": "Removed", "invert": false},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}]})");
    EXPECT_THAT(pieces(sequence, "a-b"), ElementsAre("▁a", "b"));
    EXPECT_THAT(pieces(sequence, "-b"), ElementsAre("b"));
}

TEST(PreTokenizer, WordsAndPunctuation) {
    EXPECT_THAT(pieces({{"type", "Whitespace"}}, " Hé\u0301y, you!? \u00A0x_1"),
                ElementsAre("Hé\u0301y", ",", "you", "!?", "x_1"));
    EXPECT_THAT(pieces({{"type", "WhitespaceSplit"}}, " a,\u00A0\nb "), ElementsAre("a,", "b"));
    EXPECT_THAT(pieces({{"type", "Punctuation"}}, "a+b!?«"),
                ElementsAre("a", "+", "b", "!", "?", "«"));
    EXPECT_THAT(pieces({{"type", "Punctuation"}, {"behavior", "Contiguous"}}, "a!?b"),
                ElementsAre("a", "!?", "b"));
}

TEST(PreTokenizer, RefusesByName) {
    const std::pair<std::string_view, std::string_view> cases[] = {
        {R"({"type": "UnicodeScripts"})",
         "tokenizer.json: pre_tokenizer: type 'UnicodeScripts' is not supported; supported are"},
        {R"({"type": "Sequence", "pretokenizers": {}})", "field 'pretokenizers' must be an array"},
        {R"-({"type": "Split", "pattern": {"Regex": "(?<n>a)"}, "behavior": "Removed"})-",
         "in the regular expression '(?<n>a)' is not supported"},
        {R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Gone"})",
         "behavior 'Gone' is not supported"},
        {R"({"type": "Split", "behavior": "Removed"})", "field 'pattern' is missing"},
        {R"({"type": "Metaspace", "replacement": "ab"})", "replacement 'ab' must be one character"},
        {R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "last"})",
         "prepend_scheme 'last' is not supported"},
        {R"({"type": "Punctuation", "behavior": "x"})", "behavior 'x' is not supported"},
        {R"({"type": "Digits"})", "field 'individual_digits' is missing"},
    };
    for (const auto& [input, message] : cases) {
        const Json json = Json::parse(input);
        EXPECT_THAT([&] { pieces(json, "a"); }, ThrowsMessage<Error>(HasSubstr(message)));
    }
}

}  // namespace
}  // namespace dak
