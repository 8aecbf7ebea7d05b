#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixture_tree.h"
#include "hardware/pseudo_file.h"

namespace dak {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(PseudoFile, ParsesIntegersStrictly) {
    EXPECT_EQ(parse_integer("42"), 42);
    EXPECT_EQ(parse_integer("-1"), -1);
    EXPECT_EQ(parse_integer("max"), std::nullopt);
    EXPECT_EQ(parse_integer(""), std::nullopt);
    EXPECT_EQ(parse_integer("42 kB"), std::nullopt);
    EXPECT_EQ(parse_integer("18446744073709551615"), std::nullopt);
}

TEST(PseudoFile, FindsFieldsOfAnySpacing) {
    const std::string_view text = "processor\t: 0\nmodel name\t: A: B\nMemTotal:    12 kB\nbad\n";
    EXPECT_EQ(find_field(text, "model name"), "A: B");
    EXPECT_EQ(find_field(text, "model"), std::nullopt);
    EXPECT_EQ(find_kib_field(text, "MemTotal"), 12 * 1024);
    EXPECT_EQ(find_kib_field(text, "processor"), std::nullopt);
    EXPECT_EQ(find_kib_field("x: 9223372036854775807 kB", "x"), std::nullopt);
}

TEST(PseudoFile, CpuListsBothWays) {
    EXPECT_THAT(parse_cpu_list("0-2,8\n"), ElementsAre(0, 1, 2, 8));
    EXPECT_THAT(parse_cpu_list(""), IsEmpty());
    EXPECT_THAT(parse_cpu_list("x,3,-1,0-99999999999,7-"), ElementsAre(3));
    EXPECT_EQ(format_cpu_list({0, 1, 2, 8}), "0-2,8");
    EXPECT_EQ(format_cpu_list({5}), "5");
    EXPECT_EQ(format_cpu_list({}), "");
}

TEST(PseudoFile, MissingFilesAreNothing) {
    const FixtureTree tree;
    tree.add("number", "7");
    EXPECT_EQ(read_pseudo_integer(tree.root() / "number"), 7);
    EXPECT_EQ(read_pseudo_file(tree.root() / "absent"), std::nullopt);
    EXPECT_EQ(read_pseudo_file(tree.root()), std::nullopt);
}

}  // namespace
}  // namespace dak
