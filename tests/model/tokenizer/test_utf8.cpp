#include <gtest/gtest.h>

#include "model/tokenizer/utf8.h"

namespace dak {
namespace {

TEST(Utf8, ReplacesEachIllFormedStretchOnce) {
    EXPECT_EQ(replace_invalid_utf8("a\xFFz"), "a\uFFFDz");
    EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), "\uFFFD\uFFFD");            // overlong
    EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // surrogate
    EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98z"), "\uFFFDz");            // cut short
    EXPECT_EQ(replace_invalid_utf8("\xE6\xBC"), "\uFFFD");                  // cut short at the end
    EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // > U+10FFFF
    EXPECT_EQ(replace_invalid_utf8("\x80\xE6\xBC\xA2"), "\uFFFD漢");
}

TEST(Utf8, TellsTruncatedFromWrong) {
    EXPECT_TRUE(utf8_step("\xF0\x9F\x98", 0).truncated);
    EXPECT_FALSE(utf8_step("\xF0\x9F\x20", 0).truncated);
    EXPECT_FALSE(utf8_step("\xFF", 0).truncated);
    EXPECT_FALSE(utf8_step("\xED\xA0", 0).truncated);
}

TEST(Utf8, CodePointsGoRoundTrip) {
    for (char32_t code_point = 0; code_point < 0x110000; ++code_point) {
        if (code_point == 0xD800) code_point = 0xE000;
        std::string text;
        append_utf8(code_point, text);
        ASSERT_TRUE(is_valid_utf8(text));
        ASSERT_EQ(utf8_length(text[0]), text.size());
        ASSERT_EQ(last_code_point_begin("x" + text), 1);
        size_t pos = 0;
        ASSERT_EQ(next_code_point(text, pos), code_point);
        ASSERT_EQ(pos, text.size());
    }
}

}  // namespace
}  // namespace dak
