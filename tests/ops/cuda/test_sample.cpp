#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "ops/cuda/check.h"
#include "ops/cuda/device_array.h"
#include "ops/cuda/small_ops/sample.h"
#include "ops/testing.h"

namespace dak::cuda {
namespace {

using ops::Sampling;

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Draws on the GPU and on the CPU, the oracle.
struct Draws {
    int64_t vocab = 0;
    std::vector<std::vector<float>> logits;
    std::vector<Sampling> samplings;
    std::vector<std::vector<int32_t>> prompts, outputs;

    struct Result {
        std::vector<int32_t> tokens;
        std::vector<SampleStatus> status;
    };

    size_t size() const { return logits.size(); }

    void add(std::vector<float> row, const Sampling& sampling, std::vector<int32_t> prompt = {},
             std::vector<int32_t> output = {}) {
        vocab = int64_t(row.size());
        logits.push_back(std::move(row));
        samplings.push_back(sampling);
        prompts.push_back(std::move(prompt));
        outputs.push_back(std::move(output));
    }

    std::vector<int32_t> on_cpu() const {
        std::vector<int32_t> tokens;
        for (size_t s = 0; s < size(); ++s) {
            std::vector<float> row = logits[s];
            tokens.push_back(
                ops::sample(samplings[s], row, prompts[s], outputs[s], outputs[s].size()));
        }
        return tokens;
    }

    /// Sequence s has row size() - 1 - s.
    Result on_gpu(cudaStream_t stream) const {
        const int64_t ld = round_up(vocab, 4) + 4;
        std::vector<float> rows(size() * size_t(ld), kInf);  // between rows: what would win
        std::vector<SampleRequest> requests(size());
        size_t longest = 0;
        for (size_t s = 0; s < size(); ++s) {
            longest = std::max(longest, prompts[s].size() + outputs[s].size());
        }
        const size_t stride = longest + 1;
        std::vector<int32_t> history(size() * stride, -7);
        for (size_t s = 0; s < size(); ++s) {
            const size_t row = size() - 1 - s;
            std::copy(logits[s].begin(), logits[s].end(), rows.begin() + int64_t(row) * ld);
            auto at = history.begin() + int64_t(s * stride);
            at = std::copy(prompts[s].begin(), prompts[s].end(), at);
            std::copy(outputs[s].begin(), outputs[s].end(), at);
            requests[s] = {samplings[s], int32_t(row), int32_t(prompts[s].size()),
                           int32_t(prompts[s].size() + outputs[s].size())};
        }
        const DeviceArray<float> device_rows(rows);
        const DeviceArray<SampleRequest> device_requests(requests);
        const DeviceArray<int32_t> device_history(history);
        DeviceArray<int32_t> tokens(size());
        DeviceArray<SampleStatus> status(size());
        const SampleArgs args{.logits = device_rows.data(),
                              .ld = ld,
                              .vocab = vocab,
                              .sequences = int64_t(size()),
                              .requests = device_requests.data(),
                              .history = device_history.data(),
                              .history_stride = int64_t(stride),
                              .tokens = tokens.data(),
                              .status = status.data()};
        Result first;
        for (int run = 0; run < 2; ++run) {
            tokens.poison();
            status.poison();
            sample(args, stream);
            check(cudaStreamSynchronize(stream), "sampling");
            Result result{tokens.download(), status.download()};
            if (run == 0) first = result;
            EXPECT_EQ(first.tokens, result.tokens) << "two runs differ";
        }
        const std::vector<int32_t> new_history = device_history.download();
        for (size_t s = 0; s < size(); ++s) {
            const auto length = size_t(requests[s].length);
            if (first.tokens[s] >= 0) {
                EXPECT_EQ(new_history[s * stride + length], first.tokens[s]);
            }
        }
        const std::vector<float> rows_after = device_rows.download();
        EXPECT_EQ(std::memcmp(rows_after.data(), rows.data(), rows.size() * sizeof(float)), 0)
            << "logits were changed";
        return first;
    }
};

class Sample : public ::testing::Test {
  protected:
    void SetUp() override {
        int count = 0;
        if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "needs a GPU";
        check(cudaStreamCreate(&stream_), "stream");
    }
    void TearDown() override {
        if (stream_ != nullptr) cudaStreamDestroy(stream_);
    }

    /// All draws but a share of `tolerance` are the CPU's.
    void expect_same(const Draws& draws, double tolerance) {
        const std::vector<int32_t> expected = draws.on_cpu();
        const Draws::Result result = draws.on_gpu(stream_);
        size_t different = 0;
        std::string example;
        for (size_t s = 0; s < draws.size(); ++s) {
            EXPECT_EQ(result.status[s], SampleStatus::kDrawn);
            if (result.tokens[s] == expected[s]) continue;
            ++different;
            example = "sequence " + std::to_string(s) + " drew " +
                      std::to_string(result.tokens[s]) + " instead of " +
                      std::to_string(expected[s]);
        }
        EXPECT_LE(double(different), tolerance * double(draws.size())) << example;
    }

    cudaStream_t stream_ = nullptr;
};

std::vector<float> bell_logits(int64_t vocab, uint32_t seed, float scale = 3.0f) {
    return testing::random_floats(vocab, seed, scale);
}

std::vector<int32_t> random_tokens(int64_t count, int64_t vocab, uint32_t seed) {
    std::mt19937 generator(seed);
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(int32_t(generator() % uint64_t(vocab)));
    return tokens;
}

TEST_F(Sample, GreedyIsTheArgmax) {
    for (const int64_t vocab : {1, 3, 4, 7, 1000, 32000, 50272, 151936}) {
        SCOPED_TRACE(vocab);
        Draws draws;
        for (uint32_t s = 0; s < 9; ++s) {
            std::vector<float> row = bell_logits(vocab, s);
            // Ties of the largest, far apart.
            for (const int64_t at : {vocab - 1, vocab / 3, vocab / 2}) {
                if (s % 2 == 0) row[size_t(at)] = 50.0f;
            }
            if (s == 3) row.assign(row.size(), -kInf), row.back() = -1e30f;
            if (s == 5) row.assign(row.size(), 0.0f), row[0] = -0.0f;  // equal to 0
            draws.add(std::move(row), {});
        }
        expect_same(draws, 0);
    }
}

TEST_F(Sample, GreedyOfManySequences) {
    for (const int64_t vocab : {2000, 32000}) {
        Draws draws;
        for (uint32_t s = 0; s < 600; ++s) draws.add(bell_logits(vocab, s), {});
        expect_same(draws, 0);
    }
}

TEST_F(Sample, PenaltiesAreExact) {
    constexpr int64_t kVocab = 5003;
    Draws draws;
    for (uint32_t s = 0; s < 100; ++s) {
        Sampling sampling;
        if (s % 2 == 0) sampling.repetition_penalty = 0.6f + 0.02f * float(s);
        if (s % 3 == 0) sampling.presence_penalty = -1.0f + 0.05f * float(s);
        if (s % 5 != 1) sampling.frequency_penalty = 0.013f * float(s % 7) - 0.02f;
        std::vector<int32_t> prompt = random_tokens(s * 10, kVocab, s);
        std::vector<int32_t> output = random_tokens(s * 7, s % 4 == 0 ? 20 : kVocab, s + 1);
        draws.add(bell_logits(kVocab, s, 0.3f), sampling, std::move(prompt), std::move(output));
    }
    expect_same(draws, 0);
}

TEST_F(Sample, FollowsTheCpuUnderEveryFilter) {
    const std::vector<Sampling> filters = {
        {.temperature = 1.0f},
        {.temperature = 0.7f, .top_k = 50},
        {.temperature = 1.3f, .top_k = 1},
        {.temperature = 1.0f, .top_k = 3000},
        {.temperature = 0.8f, .top_p = 0.9f},
        {.temperature = 2.0f, .top_p = 0.999f},
        {.temperature = 1.0f, .top_p = 0.01f},
        {.temperature = 1.0f, .min_p = 0.05f},
        {.temperature = 0.9f, .top_k = 200, .top_p = 0.8f, .min_p = 0.01f},
        {.repetition_penalty = 1.2f,
         .presence_penalty = 0.1f,
         .frequency_penalty = 0.2f,
         .temperature = 0.9f,
         .top_p = 0.95f},
    };
    for (const int64_t vocab : {5, 999, 50272, 151936}) {
        SCOPED_TRACE(vocab);
        Draws draws;
        for (uint32_t s = 0; s < 40; ++s) {
            Sampling sampling = filters[s % filters.size()];
            sampling.seed = s * 77;
            draws.add(bell_logits(vocab, s), sampling, random_tokens(s % 5, vocab, s),
                      random_tokens(s, vocab, s + 1));
        }
        expect_same(draws, 0.03);  // 1 of 40
    }
}

TEST_F(Sample, ManyDrawsDifferRarely) {
    Draws draws;
    for (uint32_t s = 0; s < 1000; ++s) {
        draws.add(bell_logits(300, s / 10),
                  {.temperature = 1.0f, .top_k = 120, .top_p = 0.97f, .seed = s});
    }
    expect_same(draws, 0.002);
}

TEST_F(Sample, EqualLogitsAreFilteredByTheLowerId) {
    constexpr int64_t kVocab = 20000;
    Draws draws;
    for (uint32_t s = 0; s < 60; ++s) {
        std::vector<float> row(kVocab, 1.5f);
        if (s % 2 == 0) {
            for (size_t i = 0; i < row.size(); i += 3) row[i] = 1.25f;
        }
        if (s % 3 == 0) row[kVocab - 5] = 2.0f;
        Sampling sampling{.temperature = 1.0f, .seed = s};
        if (s % 4 < 2) sampling.top_k = int32_t(1 + s * 200);
        if (s % 4 > 0) sampling.top_p = 0.02f + 0.015f * float(s);
        draws.add(std::move(row), sampling);
    }
    expect_same(draws, 0.05);  // sums of equal terms meet their bound exactly: rounding decides
    for (size_t s = 0; s < draws.size(); ++s) {
        if (draws.samplings[s].top_p == 1.0f) continue;
        draws.samplings[s].top_p = 1.0f;
        draws.samplings[s].top_k = 7;
    }
    expect_same(draws, 0);
}

/// Sizes around which a vocabulary is cut into slices, warps' parts and vectors differently.
TEST_F(Sample, EverySizeOfVocabulary) {
    for (const int64_t vocab :
         {1, 2, 3, 5, 31, 33, 63, 64, 65, 127, 129, 511, 513, 2047, 2049, 4095, 4097}) {
        SCOPED_TRACE(vocab);
        Draws draws;
        for (uint32_t s = 0; s < 60; ++s) {
            Sampling sampling{.temperature = s % 5 == 0 ? 0.0f : 1.0f, .seed = s};
            if (s % 5 == 1) sampling.top_k = int32_t(1 + s % 50);
            if (s % 5 >= 2) sampling.top_p = 0.3f + 0.01f * float(s);
            draws.add(bell_logits(vocab, s), sampling);
        }
        expect_same(draws, 0.02);  // 1 of 60
    }
}

/// More than are drawn at the same time, in clusters of every size.
TEST_F(Sample, ManySequencesOfLongVocabularies) {
    for (const int64_t vocab : {20479, 20480, 20481, 40959, 40961, 81921}) {
        SCOPED_TRACE(vocab);
        Draws draws;
        for (uint32_t s = 0; s < 290; ++s) {
            std::vector<float> row = bell_logits(vocab, s);
            Sampling sampling{.temperature = 0.8f, .seed = s};
            if (s % 4 == 0) sampling = {}, row.back() = 30.0f;
            if (s % 4 == 1) sampling.top_k = 40;
            if (s % 4 == 2) sampling.top_p = 0.95f;
            draws.add(std::move(row), sampling);
        }
        expect_same(draws, 0.01);
    }
}

TEST_F(Sample, DrawsDoNotDependOnTheBatch) {
    constexpr int64_t kVocab = 30001;
    Draws all;
    for (uint32_t s = 0; s < 300; ++s) {
        Sampling sampling{.temperature = 0.5f + 0.01f * float(s), .seed = s};
        if (s % 4 == 1) sampling.top_k = int32_t(1 + s * s / 7);
        if (s % 4 == 2) sampling.top_p = 0.9f + 0.0003f * float(s);
        if (s % 4 == 3) sampling.min_p = 0.001f * float(s);
        if (s % 3 == 0) sampling.repetition_penalty = 1.3f;
        all.add(bell_logits(kVocab, s), sampling, random_tokens(s, kVocab, s));
    }
    const Draws::Result together = all.on_gpu(stream_);
    for (size_t s = 0; s < all.size(); s += 5) {
        Draws alone;
        alone.add(all.logits[s], all.samplings[s], all.prompts[s]);
        EXPECT_EQ(alone.on_gpu(stream_).tokens[0], together.tokens[s]) << "sequence " << s;
    }
}

/// What makes the guess from which filters start too high, or too low for the first CTA to collect
/// all above it.
TEST_F(Sample, FiltersOfUnevenLogits) {
    for (const int64_t vocab : {6001, 50272, 151936}) {
        SCOPED_TRACE(vocab);
        Draws draws;
        for (uint32_t s = 0; s < 60; ++s) {
            std::vector<float> row = bell_logits(vocab, s);
            Sampling sampling{.temperature = 1.0f, .seed = s};
            if (s % 6 == 0) std::sort(row.begin(), row.end());
            if (s % 6 == 1) std::sort(row.rbegin(), row.rend());
            if (s % 6 == 2) std::fill(row.begin() + 40, row.end(), -kInf);
            if (s % 6 == 3) {  // some threads see the large ones alone
                for (int64_t i = 0; i < vocab; ++i) row[size_t(i)] += i / 4 % 32 == 5 ? 20.0f : 0;
            }
            if (s % 6 == 4) sampling.temperature = 40.0f;
            if (s % 6 == 5) std::fill(row.begin() + vocab / 3, row.begin() + vocab / 2, 9.0f);
            if (s % 5 < 3) sampling.top_k = int32_t(1 + s * s * 4);
            if (s % 5 > 1) sampling.top_p = 0.4f + 0.009f * float(s);
            draws.add(std::move(row), sampling);
        }
        expect_same(draws, 0.05);  // equal logits meet their bound exactly: rounding decides
    }
}

TEST_F(Sample, ExtremeValues) {
    Draws draws;
    const auto spread = [](std::vector<float> values) {
        values.resize(3000, -kInf);
        return values;
    };
    const std::vector<float> wide = {1e-38f, 3e38f, 0.0f, -3e38f, 1e-45f, -1e-30f};
    for (const float temperature : {1.0f, 1e-30f, 1e30f}) {
        draws.add(spread(wide), {.temperature = temperature, .top_p = 0.9f, .seed = 1});
        draws.add(spread(wide), {.temperature = temperature, .top_k = 2, .seed = 2});
        draws.add(spread({-5.0f}), {.temperature = temperature, .top_k = 5, .top_p = 0.5f});
        draws.add(spread({1.0f, kInf}), {.temperature = temperature});
    }
    std::vector<float> tiny(3000);
    for (size_t i = 0; i < tiny.size(); ++i) tiny[i] = std::ldexp(1.0f, -int(i % 140));
    draws.add(std::move(tiny), {.temperature = 1.0f, .top_k = 700, .seed = 4});
    expect_same(draws, 0);
}

TEST_F(Sample, SaysWhichLogitsAreBroken) {
    Draws draws;
    std::vector<float> row = bell_logits(4000, 1);
    draws.add(row, {});
    row[3999] = NAN;
    draws.add(row, {});
    draws.add(row, {.temperature = 1.0f});
    draws.add(std::vector<float>(4000, -kInf), {.temperature = 1.0f, .top_k = 3});
    const Draws::Result result = draws.on_gpu(stream_);
    EXPECT_EQ(result.status, (std::vector{SampleStatus::kDrawn, SampleStatus::kNan,
                                          SampleStatus::kNan, SampleStatus::kImpossible}));
    EXPECT_GE(result.tokens[0], 0);
    EXPECT_EQ(std::vector(result.tokens.begin() + 1, result.tokens.end()),
              (std::vector{-1, -1, -1}));
}

TEST_F(Sample, NanIsSeenAnywhere) {
    for (const float nan : {NAN, -NAN}) {
        Draws draws;
        std::vector<size_t> places = {0, 1, 2, 3, 4, 130, 6000, 30000, 50268, 50270};
        for (const size_t place : places) {
            std::vector<float> row(50271, 0.0f);
            row.back() = 1.0f;
            if (place % 4 == 0) row[place + 1] = kInf;
            row[place] = nan;
            draws.add(std::move(row), {.temperature = place % 3 == 0 ? 0.0f : 1.0f});
        }
        const Draws::Result result = draws.on_gpu(stream_);
        EXPECT_EQ(result.status, std::vector(places.size(), SampleStatus::kNan));
        EXPECT_EQ(result.tokens, std::vector(places.size(), -1));
    }
}

TEST_F(Sample, AReplayedGraphSeesNewContents) {
    constexpr int64_t kVocab = 1000;
    std::vector<float> rows(2 * kVocab, 0.0f);
    rows[10] = rows[kVocab + 20] = 1.0f;
    DeviceArray<float> logits(rows);
    std::vector<SampleRequest> requests(2);
    requests[0].row = 0;  // the second has no draw yet
    DeviceArray<SampleRequest> device_requests(requests);
    DeviceArray<int32_t> tokens(2);
    DeviceArray<SampleStatus> status(2);
    tokens.poison();
    const SampleArgs args{.logits = logits.data(),
                          .ld = kVocab,
                          .vocab = kVocab,
                          .sequences = 2,
                          .requests = device_requests.data(),
                          .tokens = tokens.data(),
                          .status = status.data()};
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    sample(args, stream_);
    sample(args, stream_);
    check(cudaStreamEndCapture(stream_, &graph), "capture");
    check(cudaGraphInstantiate(&executable, graph, 0), "graph");
    const auto replay = [&] {
        check(cudaGraphLaunch(executable, stream_), "graph");
        check(cudaStreamSynchronize(stream_), "graph");
        return tokens.download();
    };
    EXPECT_EQ(replay(), (std::vector{10, -1}));
    requests[1].row = 1;
    requests[0].row = -1;
    device_requests.upload(requests);
    rows[kVocab + 999] = 2.0f;
    logits.upload(rows);
    EXPECT_EQ(replay(), (std::vector{10, 999}));
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
}

TEST_F(Sample, RefusesWhatItCannotTake) {
    DeviceArray<float> logits(size_t{4096});
    const SampleArgs good{.logits = logits.data(), .ld = 1000, .vocab = 1000};
    EXPECT_NO_THROW(sample(good, stream_));  // no sequences: nothing to do
    SampleArgs bad = good;
    bad.ld = 1002;
    EXPECT_THROW(sample(bad, stream_), Error);
    bad = good;
    bad.logits = logits.data() + 1;
    EXPECT_THROW(sample(bad, stream_), Error);
    bad = good;
    bad.vocab = bad.ld = 300000;
    EXPECT_THROW(sample(bad, stream_), Error);
}

}  // namespace
}  // namespace dak::cuda
