#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tiny_tokenizer.h"

namespace dak {
namespace {

using testing::ElementsAre;

// Ids of the letters and the space; added tokens come after them.
const std::vector<std::string> kLetters = {"a", "b", " ", "é", "B"};
constexpr int32_t kA = 0, kB = 1, kSpace = 2, kAdded = 5;

TEST(AddedTokens, LeftmostThenLongest) {
    TinyTokenizer tiny(kLetters);
    tiny.add_token("ab").add_token("abb").add_token("bba");
    EXPECT_THAT(tiny.build().encode("abba"), ElementsAre(kAdded + 1, kA));
    EXPECT_THAT(tiny.build().encode("aba"), ElementsAre(kAdded, kA));
    EXPECT_THAT(tiny.build().encode("bbab"), ElementsAre(kAdded + 2, kB));
}

TEST(AddedTokens, StripTakesSpaceBesideThem) {
    TinyTokenizer tiny(kLetters);
    tiny.add_token("[L]", R"({"lstrip": true})").add_token("[R]", R"({"rstrip": true})");
    EXPECT_THAT(tiny.build().encode("a  [L] a"), ElementsAre(kA, kAdded, kSpace, kA));
    EXPECT_THAT(tiny.build().encode("a [R] \n b"), ElementsAre(kA, kSpace, kAdded + 1, kB));
    EXPECT_THAT(tiny.build().encode("[R]  [L]"), ElementsAre(kAdded + 1, kAdded));
}

TEST(AddedTokens, SingleWord) {
    TinyTokenizer tiny(kLetters);
    tiny.add_token("aa", R"({"single_word": true})");
    EXPECT_THAT(tiny.build().encode("aa"), ElementsAre(kAdded));
    EXPECT_THAT(tiny.build().encode("b aa b"), ElementsAre(kB, kSpace, kAdded, kSpace, kB));
    EXPECT_THAT(tiny.build().encode("aab"), ElementsAre(kA, kA, kB));
    EXPECT_THAT(tiny.build().encode("éaa"), ElementsAre(3, kA, kA));
}

TEST(AddedTokens, NormalizedOnesAreFoundInNormalizedText) {
    TinyTokenizer tiny(kLetters);
    tiny.set("normalizer", R"({"type": "Lowercase"})");
    tiny.add_token("BB", R"({"normalized": true})").add_token("AA", R"({"normalized": false})");
    EXPECT_THAT(tiny.build().encode("bbBbaaAA"), ElementsAre(kAdded, kAdded, kA, kA, kAdded + 1));
    EXPECT_EQ(tiny.build().decode(std::vector{kAdded, kAdded + 1}), "bb AA");
    EXPECT_EQ(tiny.build().id_to_token(kAdded), "BB");
}

TEST(AddedTokens, IdsAreTheModelsOrTheNextFree) {
    TinyTokenizer tiny(kLetters);
    tiny.add_token("x").add_token("B").add_token("").add_token("y").add_token("x");
    const Tokenizer tokenizer = tiny.build();
    EXPECT_EQ(tokenizer.token_to_id("x"), kAdded);
    EXPECT_EQ(tokenizer.token_to_id("B"), 4);
    EXPECT_EQ(tokenizer.token_to_id("y"), kAdded + 1);
    EXPECT_EQ(tokenizer.vocab_size(), kAdded + 2);
    EXPECT_FALSE(tokenizer.token_to_id("").has_value());
}

TEST(AddedTokens, SpecialOnesAreSkippedWhenDecoding) {
    TinyTokenizer tiny(kLetters);
    tiny.set("decoder", R"({"type": "Fuse"})");
    // The normalizer changes the token: it is special all the same.
    tiny.set("normalizer", R"({"type": "Prepend", "prepend": "_"})");
    tiny.add_token("</s>", R"({"special": true, "normalized": true})").add_token("<x>");
    const Tokenizer tokenizer = tiny.build();
    EXPECT_TRUE(tokenizer.is_special(kAdded));
    EXPECT_FALSE(tokenizer.is_special(kAdded + 1));
    EXPECT_FALSE(tokenizer.is_special(kA));
    EXPECT_FALSE(tokenizer.is_special(-1));
    EXPECT_FALSE(tokenizer.is_special(1000));
    EXPECT_EQ(tokenizer.decode(std::vector{kA, kAdded, kB}), "ab");
    EXPECT_EQ(tokenizer.decode(std::vector{kA, kAdded, kB}, false), "a_</s>b");
}

}  // namespace
}  // namespace dak
