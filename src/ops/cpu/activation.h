#pragma once

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/transformer.h"

namespace dak::ops {

inline float activate(Activation activation, float x) {
    switch (activation) {
        case Activation::kNone:
            return x;
        case Activation::kRelu:
            return x > 0.0f ? x : 0.0f;
        case Activation::kGelu:
            return 0.5f * x * (1.0f + std::erf(x * static_cast<float>(std::numbers::sqrt2 / 2)));
        case Activation::kGeluTanh: {
            constexpr float kSqrtTwoOverPi = 0.7978845608f;
            return 0.5f * x * (1.0f + std::tanh(kSqrtTwoOverPi * (x + 0.044715f * x * x * x)));
        }
        case Activation::kSilu:
            return x / (1.0f + std::exp(-x));
    }
    fail("internal error: unknown activation {}", static_cast<int>(activation));
}

}  // namespace dak::ops
