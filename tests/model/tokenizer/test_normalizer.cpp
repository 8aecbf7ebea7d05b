#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/tokenizer/normalizer.h"

namespace dak {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

NormalizedText normalized(std::string_view normalizer, std::string_view text) {
    const Json json = Json::parse(normalizer);
    NormalizedText result{std::string(text), true};
    Normalizer::parse(&json, "tokenizer.json").apply(result);
    return result;
}

TEST(Normalizer, UnicodeForms) {
    EXPECT_EQ(normalized(R"({"type": "NFC"})", "e\u0301 ﬁ \u1100\u1161").text, "é ﬁ 가");
    EXPECT_EQ(normalized(R"({"type": "NFD"})", "é ﬁ 가").text, "e\u0301 ﬁ \u1100\u1161");
    EXPECT_EQ(normalized(R"({"type": "NFKC"})", "e\u0301 ﬁ ² ｶﾞ").text, "é fi 2 ガ");
    EXPECT_EQ(normalized(R"({"type": "NFKD"})", "é ﬁ").text, "e\u0301 fi");
}

TEST(Normalizer, LowercaseTakesCharactersAlone) {
    EXPECT_EQ(normalized(R"({"type": "Lowercase"})", "ΟΔΟΣ İI ÀǄ").text, "οδοσ i\u0307i àǆ");
}

TEST(Normalizer, Strip) {
    const auto strip = [](bool left, bool right, std::string_view text) {
        const Json json = {{"type", "Strip"}, {"strip_left", left}, {"strip_right", right}};
        return normalized(json.dump(), text);
    };
    EXPECT_EQ(strip(true, true, "\u3000\n a b\u00A0\t").text, "a b");
    EXPECT_EQ(strip(true, false, " a ").text, "a ");
    EXPECT_EQ(strip(false, true, " a ").text, " a");
    EXPECT_EQ(strip(true, true, " \u2003 ").text, "");
    EXPECT_FALSE(strip(true, true, " a").at_start);
    EXPECT_TRUE(strip(true, true, "a ").at_start);
}

TEST(Normalizer, StripAccents) {
    EXPECT_EQ(normalized(R"({"type": "StripAccents"})", "e\u0301\u0327x").text, "ex");
    EXPECT_FALSE(normalized(R"({"type": "StripAccents"})", "\u0301x").at_start);
    EXPECT_TRUE(normalized(R"({"type": "StripAccents"})", "x\u0301").at_start);
}

TEST(Normalizer, PrependLeavesEmptyTextAlone) {
    EXPECT_EQ(normalized(R"({"type": "Prepend", "prepend": "▁"})", "a").text, "▁a");
    EXPECT_EQ(normalized(R"({"type": "Prepend", "prepend": "▁"})", "").text, "");
}

TEST(Normalizer, Replace) {
    EXPECT_EQ(
        normalized(R"({"type": "Replace", "pattern": {"String": "."}, "content": "␣␣"})", "a.b..")
            .text,
        "a␣␣b␣␣␣␣");
    EXPECT_EQ(
        normalized(R"({"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": ""})", "a \t b ")
            .text,
        "ab");
    const auto removed = R"({"type": "Replace", "pattern": {"String": "a"}, "content": ""})";
    EXPECT_FALSE(normalized(removed, "ab").at_start);
    EXPECT_TRUE(normalized(removed, "ba").at_start);
}

TEST(Normalizer, ByteLevelSpellsBytes) {
    EXPECT_EQ(normalized(R"({"type": "ByteLevel"})", "a é\n").text, "aĠÃ©Ċ");
}

TEST(Normalizer, SequenceGoesInOrder) {
    EXPECT_EQ(normalized(R"({"type": "Sequence", "normalizers": [
                                {"type": "Prepend", "prepend": " "},
                                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})",
                         "a b")
                  .text,
              "▁a▁b");
}

TEST(Normalizer, RefusesByName) {
    const std::pair<std::string_view, std::string_view> cases[] = {
        {R"({"type": "Precompiled"})",
         "tokenizer.json: normalizer: type 'Precompiled' is not supported; supported are Sequence"},
        {R"({"type": "Sequence"})", "field 'normalizers' must be an array"},
        {R"({"type": "Replace", "content": ""})", "field 'pattern' is missing"},
        {R"({"type": "Replace", "pattern": {"String": ""}, "content": ""})", "pattern is empty"},
        {R"({"type": "Replace", "pattern": {}, "content": ""})", "a pattern must be"},
        {R"({"type": "Replace", "pattern": {"String": "a"}})", "field 'content' is missing"},
        {R"({"type": "Prepend"})", "field 'prepend' is missing"},
        {R"({"type": 1})", "field 'type' must be a string"},
        {"[]", "expected a JSON object"},
    };
    for (const auto& [input, message] : cases) {
        const std::string_view text = input;
        EXPECT_THAT([&] { normalized(text, ""); }, ThrowsMessage<Error>(HasSubstr(message)));
    }
}

}  // namespace
}  // namespace dak
