#include "ops/sampling/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "ops/sampling/rules.h"

namespace dak::ops {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct Candidate {
    int32_t token;
    float logit;
};

/// Likelier first; the lower token id first among equals.
bool likelier(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

bool less_likely(const Candidate& a, const Candidate& b) { return likelier(b, a); }

std::vector<int32_t> sorted(std::span<const int32_t> a, std::span<const int32_t> b = {}) {
    std::vector<int32_t> tokens(a.begin(), a.end());
    tokens.insert(tokens.end(), b.begin(), b.end());
    std::sort(tokens.begin(), tokens.end());
    return tokens;
}

void apply_penalties(const Sampling& sampling, std::span<float> logits,
                     std::span<const int32_t> prompt, std::span<const int32_t> output) {
    if (!has_penalties(sampling)) return;
    const std::vector<int32_t> generated = sorted(output);
    std::vector<int32_t> seen = sorted(prompt, output);
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const int32_t token : seen) {
        const auto range = std::equal_range(generated.begin(), generated.end(), token);
        float& logit = logits[static_cast<size_t>(token)];
        logit = penalised(sampling, logit, range.second - range.first);
    }
}

/// Keeps the k likeliest, in no particular order.
void keep_top_k(std::vector<Candidate>& candidates, int32_t k) {
    if (k <= 0 || static_cast<size_t>(k) >= candidates.size()) return;
    std::nth_element(candidates.begin(), candidates.begin() + k, candidates.end(), likelier);
    candidates.resize(static_cast<size_t>(k));
}

float probability(const Candidate& candidate, float max_logit) {
    return std::exp(candidate.logit - max_logit);
}

/// Keeps the likeliest candidates up to the one with which their share of the whole reaches p.
void keep_top_p(std::vector<Candidate>& candidates, float p, float max_logit) {
    if (p >= 1.0f) return;
    double total = 0;
    for (const Candidate& candidate : candidates) total += probability(candidate, max_logit);
    std::make_heap(candidates.begin(), candidates.end(), less_likely);
    double kept_mass = 0;
    auto heap_end = candidates.end();
    do {
        std::pop_heap(candidates.begin(), heap_end--, less_likely);
        kept_mass += probability(*heap_end, max_logit);
    } while (kept_mass < p * total && heap_end != candidates.begin());
    candidates.erase(candidates.begin(), heap_end);
}

void keep_min_p(std::vector<Candidate>& candidates, float p, float max_logit) {
    if (p <= 0.0f) return;
    std::erase_if(candidates, [&](const Candidate& c) { return probability(c, max_logit) < p; });
}

}  // namespace

void Sampling::validate() const {
    const auto in = [](float value, float low, float high) {
        return std::isfinite(value) && value >= low && value <= high;
    };
    constexpr float kAny = std::numeric_limits<float>::max();
    require(in(temperature, 0, kAny), "temperature must be 0 (greedy) or positive, got {}",
            temperature);
    require(top_k >= 0, "top-k must be 0 (off) or positive, got {}", top_k);
    require(in(top_p, 0, 1) && top_p > 0, "top-p must be above 0 and at most 1, got {}", top_p);
    require(in(min_p, 0, 1), "min-p must be between 0 and 1, got {}", min_p);
    require(in(repetition_penalty, 0, kAny) && repetition_penalty > 0,
            "repetition penalty must be positive (1 is off), got {}", repetition_penalty);
    require(in(presence_penalty, -kAny, kAny), "presence penalty must be finite, got {}",
            presence_penalty);
    require(in(frequency_penalty, -kAny, kAny), "frequency penalty must be finite, got {}",
            frequency_penalty);
}

int32_t sample(const Sampling& sampling, std::span<float> logits, std::span<const int32_t> prompt,
               std::span<const int32_t> output, uint64_t step) {
    apply_penalties(sampling, logits, prompt, output);

    Candidate best{-1, kMinusInfinity};
    for (size_t i = 0; i < logits.size(); ++i) {
        require(!std::isnan(logits[i]),
                "the model produced NaN logits; its weights are damaged or overflow {}",
                "(an fp16 model or cache may need --dtype or --kv-dtype bf16)");
        if (logits[i] > best.logit) best = {static_cast<int32_t>(i), logits[i]};
    }
    require(best.token >= 0, "the model gave every token probability zero");
    if (sampling.temperature == 0.0f) return best.token;

    std::vector<Candidate> candidates;
    candidates.reserve(logits.size());
    for (size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] == kMinusInfinity) continue;
        candidates.push_back({static_cast<int32_t>(i), logits[i] / sampling.temperature});
    }
    const float max_logit = best.logit / sampling.temperature;
    keep_top_k(candidates, sampling.top_k);
    keep_top_p(candidates, sampling.top_p, max_logit);
    keep_min_p(candidates, sampling.min_p, max_logit);

    // A fixed order makes the draw depend on the candidates alone, not on how they were found.
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
    double total = 0;
    for (const Candidate& candidate : candidates) total += probability(candidate, max_logit);
    double left = uniform_value(sampling.seed, step) * total;
    for (const Candidate& candidate : candidates) {
        left -= probability(candidate, max_logit);
        if (left < 0) return candidate.token;
    }
    return best.token;  // rounding left a sliver of the total undrawn
}

}  // namespace dak::ops
