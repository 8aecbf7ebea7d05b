#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/tokenizer/regex.h"

namespace dak {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

std::vector<std::string> matches(const Pattern& pattern, std::string_view text) {
    Pattern::Searcher searcher(pattern);
    std::vector<std::string> found;
    for (const Match& match : searcher.find_all(text)) {
        found.emplace_back(text.substr(match.begin, match.end - match.begin));
    }
    return found;
}

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
    return matches(Pattern::regex(pattern, "test"), text);
}

// What Oniguruma answers, as seen through the tokenizers package.
TEST(Regex, ClassesAreOnigurumas) {
    EXPECT_THAT(matches(R"(\s)", "\u180E\u200B\uFEFF\u0085\u00A0\x1C"),
                ElementsAre("\u0085", "\u00A0"));
    EXPECT_THAT(matches(R"(\w)", "ⅣⒶ²a_‿\u200D-"), ElementsAre("Ⅳ", "Ⓐ", "²", "a", "_", "‿"));
    EXPECT_THAT(matches(R"(\w)", "²৴½"), ElementsAre("²", "½"));
    EXPECT_THAT(matches(R"([\w])", "²৴½a"), ElementsAre("a"));
    EXPECT_THAT(matches(R"(\W)", "²৴a"), ElementsAre("৴"));
    EXPECT_THAT(matches(R"([[:punct:]])", "$+!a¢"), ElementsAre("$", "+", "!", "¢"));
    EXPECT_THAT(matches(R"([[:^punct:]])", "$a"), ElementsAre("a"));
    EXPECT_THAT(matches(R"(\p{Punct})", "$+!a"), ElementsAre("!"));
    EXPECT_THAT(matches(R"(\d)", "1٣²"), ElementsAre("1", "٣"));
    EXPECT_THAT(matches(R"(\h)", "g a\t"), ElementsAre("a"));
    EXPECT_THAT(matches(R"(\v)", "a\x0B\n"), ElementsAre("\x0B"));
    EXPECT_THAT(matches(R"(\p{^L}\P{N})", "a1!2!"), ElementsAre("1!", "2!"));
    EXPECT_THAT(matches(R"(\p{Alnum})", "aⅣ1²"), ElementsAre("a", "Ⅳ", "1"));
    EXPECT_THAT(matches(R"(\p{Han}+)", "a漢字b"), ElementsAre("漢字"));
    EXPECT_THAT(matches(R"([[:alpha:]])", "a1é"), ElementsAre("a", "é"));
    EXPECT_THAT(matches(R"([[:^alpha:]])", "a1"), ElementsAre("1"));
}

TEST(Regex, LinesEndAtNewlineOnly) {
    EXPECT_THAT(matches("a.b", "a\nb a\rb a\u2028b"), ElementsAre("a\rb", "a\u2028b"));
    EXPECT_THAT(matches("(?m:a.b)", "a\nb"), ElementsAre("a\nb"));
    EXPECT_THAT(matches(R"(\s+$)", "a  \nb  "), ElementsAre("  ", "  "));
    EXPECT_THAT(matches("^b", "a\nb\rb"), ElementsAre("b"));
}

TEST(Regex, CaseIsFoldedAsUnicodeSays) {
    EXPECT_THAT(matches("(?i:'s)", "'s 'S 'ſ 't"), ElementsAre("'s", "'S", "'ſ"));
    EXPECT_THAT(matches("(?i:[k])", "kK\u212A"), ElementsAre("k", "K", "\u212A"));
    EXPECT_THAT(matches("(?i)a|b", "aABx"), ElementsAre("a", "A", "B"));
}

TEST(Regex, QuantifiersOfQuantifiersStack) {
    EXPECT_THAT(matches(R"(\p{N}{1,3}+)", "12345 7"), ElementsAre("12345", "7"));
    EXPECT_THAT(matches("(ab){2}+", "abababab"), ElementsAre("abababab"));
    EXPECT_THAT(matches("xa{2}?", "xa"), ElementsAre("x"));
    EXPECT_THAT(matches("a{,2}", "aaaa"), ElementsAre("aa", "aa"));
    EXPECT_THAT(matches("a**", "aa"), ElementsAre("aa"));
    EXPECT_THAT(matches("a++a", "aaa"), IsEmpty());
    EXPECT_THAT(matches("a{1", "a{1"), ElementsAre("a{1"));
}

TEST(Regex, Sets) {
    EXPECT_THAT(matches("[a-z&&[^aeiou]]+", "abc"), ElementsAre("bc"));
    EXPECT_THAT(matches("[]a]", "]a"), ElementsAre("]", "a"));
    EXPECT_THAT(matches("[a-]", "a-b"), ElementsAre("a", "-"));
    EXPECT_THAT(matches("[^a[b]]+", "abcd"), ElementsAre("cd"));
    EXPECT_THAT(matches(R"([^\S\n]+)", " \n\t"), ElementsAre(" ", "\t"));
    EXPECT_THAT(matches("[!-/{}$#&]+", "a$&#/{}b"), ElementsAre("$&#/{}"));
}

TEST(Regex, Escapes) {
    EXPECT_THAT(matches(R"(\x41\x{1F600}\u0042\t\-\_)", "A😀B\t-_"), ElementsAre("A😀B\t-_"));
    EXPECT_THAT(matches(R"(\bab\b)", "ab cab ab"), ElementsAre("ab", "ab"));
    EXPECT_THAT(matches("a#b", "a#b"), ElementsAre("a#b"));
}

TEST(Regex, EmptyMatchBehindAMatchDoesNotCount) {
    EXPECT_THAT(matches("a*", "aab"), ElementsAre("aa", ""));
}

TEST(Regex, OffsetsAreBytes) {
    const Pattern pattern = Pattern::regex("b+", "test");
    Pattern::Searcher other(pattern);
    const auto& found = other.find_all("é漢😀bb\U00010000b");
    ASSERT_EQ(found.size(), 2);
    EXPECT_EQ(found[0].begin, 9);
    EXPECT_EQ(found[0].end, 11);
    EXPECT_EQ(found[1].begin, 15);
}

TEST(Regex, RefusesByName) {
    const std::pair<std::string_view, std::string_view> cases[] = {
        {R"((a)\1)", "a back reference in the regular expression '(a)\\1'"},
        {"(?<name>a)", "'(?<'"},
        {R"(a\Kb)", R"('\K')"},
        {R"(\X)", R"('\X')"},
        {R"(\p{Print})", "the property 'Print'"},
        {R"(\p{NoSuch})", R"(the regular expression '\p{NoSuch}' is not supported)"},
        {R"(\pL)", R"('\p')"},
        {R"([a-\d])", R"('\d')"},
        {R"([\d-z])", "a range that begins with a class"},
        {"[z-a]", "an empty range"},
        {"[a", "an unfinished set"},
        {"(a", "the regular expression '(a' is not supported"},
        {"a)", "a ')' without '('"},
        {"*a", "a quantifier of nothing"},
        {"a|+", "a quantifier of nothing"},
        {"a(?i)b", "a flag other than at the beginning"},
        {"(?x: a)", "'(?x'"},
        {R"(\x{110000})", "a malformed character number"},
        {R"(\xg)", "a malformed character number"},
        {"a\\", "a lone \\"},
    };
    for (const auto& [input, message] : cases) {
        const std::string_view text = input;
        EXPECT_THAT(
            [&] { Pattern::regex(text, "tokenizer.json"); },
            ThrowsMessage<Error>(testing::AllOf(HasSubstr("tokenizer.json: "), HasSubstr(message))))
            << text;
    }
    EXPECT_THROW(Pattern::regex(std::string(70'000, 'a'), "test"), Error);
    EXPECT_THROW(Pattern::regex(std::string(100, '['), "test"), Error);
    EXPECT_THROW(Pattern::literal("", "test"), Error);
}

TEST(Regex, StopsRunawaySearch) {
    const Pattern pattern = Pattern::regex("(a|a)*b", "test");
    Pattern::Searcher searcher(pattern);
    EXPECT_THAT([&] { searcher.find_all(std::string(64, 'a')); },
                ThrowsMessage<Error>(HasSubstr("needs too much time or memory")));
    EXPECT_EQ(searcher.find_all("aab").size(), 1);  // and can be used again
}

TEST(Regex, Literal) {
    EXPECT_THAT(matches(Pattern::literal("a.", "test"), "a.ab a.a."),
                ElementsAre("a.", "a.", "a."));
    EXPECT_THAT(matches(Pattern::literal("aa", "test"), "aaaaa"), ElementsAre("aa", "aa"));
}

}  // namespace
}  // namespace dak
