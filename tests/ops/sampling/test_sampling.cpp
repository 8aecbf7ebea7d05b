#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "base/error.h"
#include "ops/sampling/sampling.h"

namespace dak::ops {
namespace {

using ::testing::Each;

const float kInf = std::numeric_limits<float>::infinity();

int32_t draw(const Sampling& sampling, std::vector<float> logits, uint64_t step = 0,
             std::vector<int32_t> prompt = {}, std::vector<int32_t> output = {}) {
    return sample(sampling, logits, prompt, output, step);
}

/// How often each token is drawn in `count` steps.
std::map<int32_t, int> histogram(const Sampling& sampling, const std::vector<float>& logits,
                                 int count = 20000) {
    std::map<int32_t, int> counts;
    for (int step = 0; step < count; ++step) ++counts[draw(sampling, logits, uint64_t(step))];
    return counts;
}

TEST(Sample, GreedyTakesTheLargestAndTheFirstOfEquals) {
    EXPECT_EQ(draw({}, {0, 3, 3, 1}), 1);
    EXPECT_EQ(draw({}, {-kInf, -5, -kInf}), 1);
}

TEST(Sample, FollowsTheSoftmaxDistribution) {
    const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f), -kInf};
    const auto counts = histogram({.temperature = 1.0f}, logits);
    EXPECT_NEAR(counts.at(0) / 20000.0, 1 / 8.0, 0.01);
    EXPECT_NEAR(counts.at(1) / 20000.0, 2 / 8.0, 0.01);
    EXPECT_NEAR(counts.at(2) / 20000.0, 5 / 8.0, 0.01);
    EXPECT_EQ(counts.count(3), 0u);
}

TEST(Sample, TemperatureSharpens) {
    const auto counts = histogram({.temperature = 0.5f}, {0, std::log(3.0f)});
    EXPECT_NEAR(counts.at(1) / 20000.0, 0.9, 0.01);
}

TEST(Sample, Filters) {
    const std::vector<float> logits = {std::log(1.0f), std::log(4.0f), std::log(3.0f),
                                       std::log(2.0f)};  // 0.1 0.4 0.3 0.2
    const auto kept = [&](const Sampling& sampling) {
        std::vector<int32_t> tokens;
        for (const auto& [token, count] : histogram(sampling, logits, 2000)) {
            tokens.push_back(token);
        }
        return tokens;
    };
    using Tokens = std::vector<int32_t>;
    EXPECT_EQ(kept({.temperature = 1, .top_k = 2}), (Tokens{1, 2}));
    EXPECT_EQ(kept({.temperature = 1, .top_k = 9}), (Tokens{0, 1, 2, 3}));
    EXPECT_EQ(kept({.temperature = 1, .top_p = 0.39f}), (Tokens{1}));
    EXPECT_EQ(kept({.temperature = 1, .top_p = 0.41f}), (Tokens{1, 2}));
    EXPECT_EQ(kept({.temperature = 1, .top_p = 0.91f}), (Tokens{0, 1, 2, 3}));
    EXPECT_EQ(kept({.temperature = 1, .min_p = 0.45f}), (Tokens{1, 2, 3}));
    EXPECT_EQ(kept({.temperature = 1, .min_p = 1.0f}), (Tokens{1}));
    EXPECT_EQ(kept({.temperature = 1, .top_k = 3, .top_p = 0.75f}), (Tokens{1, 2}));
}

TEST(Sample, Penalties) {
    // 2 / 1.5 < 1.5, and -1 * 1.5 < -1.2.
    EXPECT_EQ(draw({.repetition_penalty = 1.5f}, {2, 1.5f}, 0, {0}), 1);
    EXPECT_EQ(draw({.repetition_penalty = 1.5f}, {-1, -1.2f}, 0, {}, {0, 0}), 1);
    EXPECT_EQ(draw({.presence_penalty = 0.6f}, {2, 1.5f}, 0, {0}), 0);  // prompt does not count
    EXPECT_EQ(draw({.presence_penalty = 0.6f}, {2, 1.5f}, 0, {}, {0}), 1);
    EXPECT_EQ(draw({.frequency_penalty = 0.2f}, {2, 1.5f}, 0, {}, {0, 0}), 0);
    EXPECT_EQ(draw({.frequency_penalty = 0.2f}, {2, 1.5f}, 0, {}, {0, 0, 0}), 1);
}

TEST(Sample, SeedAndStepDecideTheDraw) {
    const std::vector<float> logits(50, 0.0f);
    std::vector<int32_t> first, again, other;
    for (uint64_t step = 0; step < 30; ++step) {
        first.push_back(draw({.temperature = 1, .seed = 7}, logits, step));
        again.push_back(draw({.temperature = 1, .seed = 7}, logits, step));
        other.push_back(draw({.temperature = 1, .seed = 8}, logits, step));
    }
    EXPECT_EQ(first, again);
    EXPECT_NE(first, other);
    EXPECT_THAT(first, ::testing::Not(Each(first[0])));
}

TEST(Sample, RefusesBrokenLogits) {
    EXPECT_THROW(draw({}, {1, NAN}), Error);
    EXPECT_THROW(draw({}, {-kInf, -kInf}), Error);
}

TEST(Sampling, ValidatesItsValues) {
    EXPECT_NO_THROW(Sampling{}.validate());
    for (const Sampling& bad :
         {Sampling{.repetition_penalty = 0}, Sampling{.presence_penalty = NAN},
          Sampling{.frequency_penalty = kInf}, Sampling{.temperature = -1},
          Sampling{.temperature = NAN}, Sampling{.top_k = -1}, Sampling{.top_p = 0},
          Sampling{.top_p = 1.1f}, Sampling{.min_p = -0.1f}, Sampling{.min_p = 2}}) {
        EXPECT_THROW(bad.validate(), Error);
    }
}

}  // namespace
}  // namespace dak::ops
