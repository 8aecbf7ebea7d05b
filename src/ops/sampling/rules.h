#pragma once

#include <cstdint>

#include "ops/sampling/sampling.h"

// The arithmetic of sampling that CPU and GPU must share to draw the same tokens.

namespace dak::ops {

constexpr bool has_penalties(const Sampling& sampling) {
    return sampling.repetition_penalty != 1.0f || sampling.presence_penalty != 0.0f ||
           sampling.frequency_penalty != 0.0f;
}

/// The logit of a token that is in prompt or output, `generated` times in the output. In double, so
/// that rounding does not depend on whether a compiler fuses multiplication and subtraction.
constexpr float penalised(const Sampling& sampling, float logit, int64_t generated) {
    if (sampling.repetition_penalty != 1.0f) {
        logit =
            logit > 0 ? logit / sampling.repetition_penalty : logit * sampling.repetition_penalty;
    }
    if (generated == 0) return logit;
    const double frequency = double{sampling.frequency_penalty} * static_cast<double>(generated);
    return static_cast<float>(double{logit} - frequency - double{sampling.presence_penalty});
}

}  // namespace dak::ops
