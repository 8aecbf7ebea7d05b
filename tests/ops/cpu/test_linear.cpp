#include <gtest/gtest.h>

#include <cmath>

#include "ops/cpu/matmul.h"
#include "ops/ops.h"
#include "ops/testing.h"

namespace dak::ops {
namespace {

using dak::testing::PackedMatrix;
using dak::testing::random_floats;

double activate(Activation activation, double x) {
    switch (activation) {
        case Activation::kNone:
            return x;
        case Activation::kRelu:
            return std::max(x, 0.0);
        case Activation::kGelu:
            return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
        case Activation::kGeluTanh:
            return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
        case Activation::kSilu:
            return x / (1 + std::exp(-x));
    }
    return NAN;
}

struct Case {
    PackedShape shape;
    int64_t tokens;
    int64_t remote_atoms;
    Activation activation = Activation::kNone;
    bool bias = false;
    bool residual = false;
    int64_t half = 0;  ///< gated: width of each half
};

void check(const Case& c) {
    SCOPED_TRACE(fmt::format("{}x{} {} tokens {} remote {} activation {} half {}", c.shape.rows,
                             c.shape.cols, name_of(c.shape.dtype), c.tokens, c.remote_atoms,
                             static_cast<int>(c.activation), c.half));
    const int64_t out_features = c.half ? c.half : c.shape.rows;
    const PackedMatrix weight(c.shape, c.remote_atoms,
                              random_floats(c.shape.rows * c.shape.cols, 1, 0.05f));
    const auto x = random_floats(c.tokens * c.shape.cols, 2);
    const auto bias = random_floats(c.bias ? c.shape.rows : 0, 3);
    const auto residual = random_floats(c.tokens * out_features, 4);
    std::vector<float> out(static_cast<size_t>(c.tokens * out_features), NAN);

    const Epilogue epilogue{bias, c.activation, c.half != 0,
                            c.residual ? residual.data() : nullptr};
    linear(weight.tensor, epilogue, c.tokens, x.data(), out_features, out.data());

    // fp32 accumulation over K terms; bf16 instructions also round x to 8 bits.
    const bool bf16_math = has_fast_bf16() && c.shape.dtype == DType::kBF16;
    const double tolerance = (bf16_math ? 2e-2 : 2e-5) * std::sqrt(double(c.shape.cols)) * 0.05 +
                             (bf16_math ? 1e-2 : 1e-5);
    const auto row_product = [&](int64_t t, int64_t row) {
        double total = c.bias ? bias[size_t(row)] : 0.0;
        for (int64_t k = 0; k < c.shape.cols; ++k) {
            total += double(x[size_t(t * c.shape.cols + k)]) *
                     weight.values[size_t(row * c.shape.cols + k)];
        }
        return total;
    };
    for (int64_t t = 0; t < c.tokens; ++t) {
        for (int64_t m = 0; m < out_features; ++m) {
            const int64_t row = c.half ? m / kAtomRows * 2 * kAtomRows + m % kAtomRows : m;
            double expected = activate(c.activation, row_product(t, row));
            if (c.half) expected *= row_product(t, row + kAtomRows);
            if (c.residual) expected += residual[size_t(t * out_features + m)];
            const float actual = out[size_t(t * out_features + m)];
            ASSERT_NEAR(actual, expected, tolerance * (1 + std::abs(expected)))
                << "token " << t << " output " << m;
        }
    }
}

TEST(Linear, ShapesTypesAndSplits) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
        for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1},
                                         {63, 65},
                                         {64, 64},
                                         {65, 128},
                                         {200, 130},
                                         {257, 96}}) {
            const PackedShape shape{rows, cols, dtype};
            for (const int64_t tokens : {1, 2, 3, 8, 12, 13, 33}) {
                for (const int64_t remote :
                     {int64_t{0}, int64_t{1}, shape.atoms() / 2, shape.atoms()}) {
                    check({shape, tokens, remote});
                }
            }
        }
    }
}

TEST(Linear, Epilogues) {
    for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kGelu,
                                        Activation::kGeluTanh, Activation::kSilu}) {
        for (const int64_t tokens : {1, 5, 40}) {
            for (const bool bias : {false, true}) {
                for (const bool residual : {false, true}) {
                    check({{130, 70, DType::kBF16}, tokens, 3, activation, bias, residual});
                }
            }
        }
    }
}

TEST(Linear, GatedHalvesArePaddedToWholeTiles) {
    for (const int64_t half : {1, 63, 64, 65, 200}) {
        const PackedShape shape{2 * round_up(half, kAtomRows), 70, DType::kBF16};
        for (const int64_t tokens : {1, 9, 40}) {
            for (const bool bias : {false, true}) {
                check({shape, tokens, shape.atoms() / 3, Activation::kSilu, bias, true, half});
            }
        }
    }
}

TEST(Linear, ResidualMayBeTheOutput) {
    const PackedMatrix weight({64, 64, DType::kBF16}, 0, random_floats(64 * 64, 1));
    const auto x = random_floats(64, 2);
    std::vector<float> plain(64), accumulated(64, 1.0f);
    linear(weight.tensor, {}, 1, x.data(), 64, plain.data());
    linear(weight.tensor, {.bias = {}, .residual = accumulated.data()}, 1, x.data(), 64,
           accumulated.data());
    for (size_t i = 0; i < 64; ++i) EXPECT_FLOAT_EQ(accumulated[i], plain[i] + 1.0f);
}

TEST(Linear, SameBitsWhereverTheAtomsLive) {
    const PackedShape shape{300, 200, DType::kBF16};
    const auto values = random_floats(shape.rows * shape.cols, 1);
    for (const int64_t tokens : {1, 4, 30}) {
        const auto x = random_floats(tokens * shape.cols, 2);
        std::vector<std::vector<float>> outs;
        for (const int64_t remote : {int64_t{0}, int64_t{7}, shape.atoms()}) {
            const PackedMatrix weight(shape, remote, values);
            outs.emplace_back(static_cast<size_t>(tokens * shape.rows));
            linear(weight.tensor, {}, tokens, x.data(), shape.rows, outs.back().data());
        }
        EXPECT_EQ(outs[0], outs[1]);
        EXPECT_EQ(outs[0], outs[2]);
    }
}

}  // namespace
}  // namespace dak::ops
