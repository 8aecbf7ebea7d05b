#include <gtest/gtest.h>

#include "base/error.h"
#include "base/units.h"

namespace dak {
namespace {

TEST(Units, FormatsBytes) {
    EXPECT_EQ(format_bytes(0), "0 B");
    EXPECT_EQ(format_bytes(1536), "1.5 KiB");
    EXPECT_EQ(format_bytes(90 * kGiB), "90.0 GiB");
}

TEST(Units, ParsesBytes) {
    EXPECT_EQ(parse_bytes("90GiB", "x"), 90 * kGiB);
    EXPECT_EQ(parse_bytes("96 GB", "x"), 96'000'000'000);
    EXPECT_EQ(parse_bytes("1.5g", "x"), kGiB + kGiB / 2);
    EXPECT_EQ(parse_bytes("4096", "x"), 4096);
    for (const char* bad : {"", "GiB", "-1", "12 parsecs", "nan", "1e30"}) {
        EXPECT_THROW(parse_bytes(bad, "--gpu-memory"), Error) << bad;
    }
}

}  // namespace
}  // namespace dak
