#pragma once

#include <cstdint>

// Words that model descriptions and operations share.

namespace dak {

enum class NormKind : uint8_t { kRms, kLayer };

/// What a norm does to a row before weight and bias: (x - mean) * factor. The mean of an RMS norm
/// is 0.
struct NormScale {
    float mean, factor;
};

/// kGelu is the exact (erf) form, kGeluTanh its tanh approximation.
enum class Activation : uint8_t { kNone, kRelu, kGelu, kGeluTanh, kSilu };

enum class RopeScaling : uint8_t { kNone, kLinear, kDynamic, kLlama3 };

/// Rotary position embedding over the whole head, halves rotated against each other
/// (element i with i + head_dim/2).
struct Rope {
    double theta = 10000.0;
    RopeScaling scaling = RopeScaling::kNone;
    double factor = 1.0;
    double low_freq_factor = 1.0;       ///< llama3
    double high_freq_factor = 4.0;      ///< llama3
    int64_t original_max_position = 0;  ///< llama3 and dynamic: tokens the model was trained on
};

}  // namespace dak
