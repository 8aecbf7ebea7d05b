#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "ops/testing.h"

namespace dak::ops {
namespace {

using dak::testing::PackedMatrix;
using dak::testing::random_floats;

TEST(GatherRows, ReadsRowsFromEitherTier) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
        const PackedShape shape{150, 70, dtype};
        for (const int64_t remote : {int64_t{0}, int64_t{3}, shape.atoms()}) {
            const PackedMatrix table(shape, remote, random_floats(shape.rows * shape.cols, 1));
            const std::vector<int32_t> rows = {149, 0, 64, 63, 64};
            std::vector<float> out(rows.size() * 70, NAN);
            gather_rows(table.tensor, rows, out.data());
            for (size_t i = 0; i < rows.size(); ++i) {
                for (size_t k = 0; k < 70; ++k) {
                    ASSERT_EQ(out[i * 70 + k], table.values[size_t(rows[i]) * 70 + k]);
                }
            }
        }
    }
}

TEST(GatherRows, RefusesRowsOutsideTheTable) {
    const PackedMatrix table({10, 8, DType::kBF16}, 0, random_floats(80, 1));
    std::vector<float> out(8);
    for (const int32_t row : {-1, 10}) {
        EXPECT_THROW(gather_rows(table.tensor, std::vector{row}, out.data()), Error);
    }
}

TEST(Norm, MatchesTheDefinition) {
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
        for (const int64_t width : {1, 7, 64, 100}) {
            const auto x = random_floats(3 * width, 1, 4.0f);
            const auto weight = random_floats(width, 2);
            const auto bias = random_floats(width, 3);
            std::vector<float> out(x.size(), NAN);
            norm({kind, 1e-5, weight, bias}, 3, width, x.data(), out.data());
            for (int64_t row = 0; row < 3; ++row) {
                double mean = 0, square = 0;
                for (int64_t i = 0; i < width; ++i) mean += x[size_t(row * width + i)];
                mean = kind == NormKind::kLayer ? mean / double(width) : 0;
                for (int64_t i = 0; i < width; ++i) {
                    square += std::pow(x[size_t(row * width + i)] - mean, 2);
                }
                const double factor = 1 / std::sqrt(square / double(width) + 1e-5);
                for (int64_t i = 0; i < width; ++i) {
                    const size_t at = size_t(row * width + i);
                    EXPECT_NEAR(out[at],
                                (x[at] - mean) * factor * weight[size_t(i)] + bias[size_t(i)],
                                2e-5);
                }
            }
        }
    }
}

TEST(Norm, InPlaceAndWithoutParameters) {
    auto x = random_floats(16, 1);
    std::vector<float> out(16);
    norm({NormKind::kLayer, 1e-5, {}, {}}, 1, 16, x.data(), out.data());
    norm({NormKind::kLayer, 1e-5, {}, {}}, 1, 16, x.data(), x.data());
    EXPECT_EQ(x, out);
}

TEST(Rope, RotatesHalvesAgainstEachOther) {
    const std::vector<float> frequencies = {1.0f, 0.1f};
    RopeAngles angles;
    append_rope_angles(frequencies, 5, 2, angles);
    std::vector<float> x = {1, 2, 3, 4, -1, -1, -1, -1, 5, 6, 7, 8, -1, -1, -1, -1};
    rope(angles, 2, 1, 4, 8, x.data());
    EXPECT_NEAR(x[0], 1 * std::cos(5.0) - 3 * std::sin(5.0), 1e-5);
    EXPECT_NEAR(x[2], 3 * std::cos(5.0) + 1 * std::sin(5.0), 1e-5);
    EXPECT_NEAR(x[9], 6 * std::cos(0.6) - 8 * std::sin(0.6), 1e-5);
    EXPECT_EQ(x[4], -1);  // what lies between the heads of two tokens is untouched
}

TEST(Rope, Scalings) {
    const Rope plain{.theta = 10000};
    const auto base = rope_frequencies(plain, 64, 0);
    EXPECT_FLOAT_EQ(base[0], 1.0f);
    EXPECT_FLOAT_EQ(base[16], 0.01f);

    const auto linear =
        rope_frequencies({.theta = 10000, .scaling = RopeScaling::kLinear, .factor = 4}, 64, 0);
    for (size_t i = 0; i < base.size(); ++i) EXPECT_FLOAT_EQ(linear[i], base[i] / 4);

    const Rope dynamic{.theta = 10000,
                       .scaling = RopeScaling::kDynamic,
                       .factor = 2,
                       .original_max_position = 100};
    EXPECT_EQ(rope_frequencies(dynamic, 64, 100), base);
    const auto longer = rope_frequencies(dynamic, 64, 300);
    const double theta = 10000 * std::pow(2.0 * 3 - 1, 64.0 / 62);
    EXPECT_NEAR(longer[31], std::pow(theta, -62.0 / 64), 1e-9);

    const Rope llama3{.theta = 10000,
                      .scaling = RopeScaling::kLlama3,
                      .factor = 8,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4,
                      .original_max_position = 8192};
    const auto scaled = rope_frequencies(llama3, 64, 0);
    EXPECT_FLOAT_EQ(scaled[0], base[0]);        // short wavelength: kept
    EXPECT_FLOAT_EQ(scaled[31], base[31] / 8);  // long wavelength: stretched
}

}  // namespace
}  // namespace dak::ops
