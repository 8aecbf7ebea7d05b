#pragma once

#include <cstdint>
#include <span>

namespace dak::ops {

/// How the next token is drawn from the logits. Filters apply in the order of the fields, as in
/// Hugging Face transformers: penalties, temperature, top-k, top-p, min-p.
struct Sampling {
    /// Divides positive and multiplies negative logits of tokens seen in prompt or output; 1: off.
    float repetition_penalty = 1.0f;
    /// Subtracted once from the logit of every token already generated.
    float presence_penalty = 0.0f;
    /// Subtracted from a generated token's logit for each time it was generated.
    float frequency_penalty = 0.0f;
    float temperature = 0.0f;  ///< 0: greedy
    int32_t top_k = 0;         ///< keep the k likeliest; 0: all
    float top_p = 1.0f;        ///< keep the likeliest whose probabilities first reach p; 1: all
    float min_p = 0.0f;  ///< keep those at least min_p times as likely as the likeliest; 0: all
    uint64_t seed = 0;

    /// Throws Error naming the value that is out of range.
    void validate() const;
};

/// The next token. `logits` [vocab] are consumed (modified in place). `step` numbers the draws of a
/// request: the same seed, step and logits give the same token. Ties go to the lower token id.
/// Throws Error when the logits hold NaN, or nothing but -inf.
int32_t sample(const Sampling& sampling, std::span<float> logits, std::span<const int32_t> prompt,
               std::span<const int32_t> output, uint64_t step);

}  // namespace dak::ops
