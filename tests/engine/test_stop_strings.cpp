#include <gtest/gtest.h>

#include "engine/stop_strings.h"

namespace dak {
namespace {

/// Everything shown when `text` arrives in pieces of `piece` bytes.
std::string stream(std::vector<std::string> stops, std::string_view text, size_t piece) {
    StopStrings filter(std::move(stops));
    std::string shown;
    for (size_t i = 0; i < text.size(); i += piece) shown += filter.push(text.substr(i, piece));
    return shown + filter.finish();
}

TEST(StopStrings, CutAtTheFirstOfThemHoweverTheTextArrives) {
    for (size_t piece = 1; piece <= 12; ++piece) {
        EXPECT_EQ(stream({"END", "\n\n"}, "one END two\n\n", piece), "one ");
        EXPECT_EQ(stream({"END", "\n\n"}, "one\n\n END", piece), "one");
        EXPECT_EQ(stream({"aab"}, "aaaab", piece), "aa");
        EXPECT_EQ(stream({"END"}, "no such thing, EN", piece), "no such thing, EN");
        EXPECT_EQ(stream({}, "anything", piece), "anything");
    }
}

TEST(StopStrings, HoldBackOnlyWhatMayBecomeOne) {
    StopStrings filter({"END"});
    EXPECT_EQ(filter.push("helloE"), "hello");
    EXPECT_EQ(filter.push("N"), "");
    EXPECT_EQ(filter.push("x"), "ENx");
    EXPECT_FALSE(filter.found());
    EXPECT_EQ(filter.push("END!"), "");
    EXPECT_TRUE(filter.found());
    EXPECT_EQ(filter.push("more") + filter.finish(), "");
}

}  // namespace
}  // namespace dak
