#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/dtype.h"

namespace dak {
namespace {

/// Every 16-bit pattern survives a round trip through float, NaNs as NaNs.
template <typename T>
void expect_round_trip() {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const T value{static_cast<uint16_t>(bits)};
        const float wide = to_float(value);
        const T back = from_float<T>(wide);
        if (std::isnan(wide)) {
            EXPECT_TRUE(std::isnan(to_float(back))) << bits;
        } else {
            EXPECT_EQ(back.bits, bits);
        }
    }
}

TEST(DType, Bf16RoundTrip) { expect_round_trip<BF16>(); }
TEST(DType, F16RoundTrip) { expect_round_trip<F16>(); }

TEST(DType, F16KnownValues) {
    EXPECT_EQ(to_float(F16{0x3c00}), 1.0f);
    EXPECT_EQ(to_float(F16{0xc000}), -2.0f);
    EXPECT_EQ(to_float(F16{0x7bff}), 65504.0f);
    EXPECT_EQ(to_float(F16{0x0001}), 0x1p-24f);
    EXPECT_TRUE(std::isinf(to_float(F16{0x7c00})));
}

TEST(DType, RoundsToNearestEven) {
    EXPECT_EQ(from_float<BF16>(1.0f + 0x1p-8f).bits, 0x3f80);             // tie to even
    EXPECT_EQ(from_float<BF16>(1.0f + 0x1p-8f + 0x1p-20f).bits, 0x3f81);  // above the tie
    EXPECT_EQ(from_float<F16>(1.0f + 0x1p-11f).bits, 0x3c00);
    EXPECT_EQ(from_float<F16>(65519.0f).bits, 0x7bff);
    EXPECT_EQ(from_float<F16>(65520.0f).bits, 0x7c00);
    EXPECT_EQ(from_float<F16>(0x1p-25f).bits, 0x0000);
    EXPECT_EQ(from_float<F16>(0x1.8p-25f).bits, 0x0001);
    EXPECT_TRUE(std::isnan(to_float(from_float<F16>(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace dak
