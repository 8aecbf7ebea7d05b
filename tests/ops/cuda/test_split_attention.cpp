#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "ops/cuda/attention_problem.h"
#include "ops/cuda/check.h"
#include "ops/cuda/split_attention/split_attention.h"

namespace dak::cuda {
namespace {

bool has_hopper() {
    int count = 0, major = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0 &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
           major == 9;
}

std::vector<SequenceCase> decoding(const std::vector<int>& lengths) {
    std::vector<SequenceCase> sequences;
    for (const int length : lengths) sequences.push_back({length, 1});
    return sequences;
}

constexpr int kHeadDims[] = {64, 80, 96, 128, 256};
constexpr RemotePages kPlaces[] = {RemotePages::kNone, RemotePages::kAll, RemotePages::kAlternating,
                                   RemotePages::kWholeSequences, RemotePages::kRandom};

class SplitAttention : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!has_hopper()) GTEST_SKIP() << "needs a Hopper GPU (sm_90)";
        machine_ = current_attention_machine();
        check(cudaStreamCreate(&stream_), "stream");
    }
    void TearDown() override {
        if (stream_ != nullptr) cudaStreamDestroy(stream_);
    }

    /// Decodes twice over poisoned results, and checks results, that they are the same bits, and
    /// that the workspace is as it was.
    void expect_decode(const AttentionCase& c) {
        AttentionProblem problem(c, true);
        const AttentionShape shape = problem.shape();
        expect_decode(c, problem, choose_attention_config(shape, machine_));
    }

    void expect_decode(const AttentionCase& c, AttentionProblem& problem,
                       const AttentionConfig& config) {
        SCOPED_TRACE(c.to_string() + " | " + config.to_string());
        AttentionWorkspace workspace(problem.shape(), config);
        plan_decode_attention(problem.args(), config, workspace, stream_);
        std::vector<uint16_t> first;
        for (int run = 0; run < 2; ++run) {
            problem.poison();
            check(cudaDeviceSynchronize(), "poison");
            decode_attention(problem.args(), config, workspace, stream_, run == 1);
            check(cudaStreamSynchronize(stream_), "decode attention");
            if (run == 0) first = problem.result();
        }
        EXPECT_EQ(problem.verdict(), "");
        EXPECT_TRUE(first == problem.result()) << "two runs differ";
        EXPECT_TRUE(parts_are_clear(problem.shape(), workspace));
    }

    void expect_prefill(const AttentionCase& c) {
        SCOPED_TRACE(c.to_string());
        AttentionProblem problem(c, false);
        AttentionShape shape = problem.shape();
        const AttentionConfig config = choose_attention_config(shape, machine_);
        // Copies of no remote page, of some and of all.
        std::vector<int64_t> copied = {0};
        if (problem.remote_pages() > 0) {
            copied.push_back(problem.remote_pages() / 2 + 1);
            copied.push_back(problem.remote_pages() + 1);
        }
        std::vector<uint16_t> first;
        for (const int64_t pages : copied) {
            SCOPED_TRACE(fmt::format("{} pages copied", pages));
            shape.copied_pages = pages;
            AttentionWorkspace workspace(shape, config);
            for (int run = 0; run < 3; ++run) {
                problem.poison();
                check(cudaDeviceSynchronize(), "poison");
                prefill_attention(problem.args(), problem.max_query_tokens(), config, workspace,
                                  stream_, run > 0);
                check(cudaStreamSynchronize(stream_), "prefill attention");
                if (first.empty()) first = problem.result();
                EXPECT_TRUE(first == problem.result()) << "two runs differ";
            }
            EXPECT_EQ(problem.verdict(), "");
        }
    }

    static bool parts_are_clear(const AttentionShape& shape, const AttentionWorkspace& workspace) {
        const auto floats = static_cast<size_t>(workspace.max_ranges() * shape.num_heads /
                                                shape.num_kv_heads * (shape.head_dim + 4));
        std::vector<uint32_t> parts(floats);
        check(cudaMemcpy(parts.data(), workspace.parts(), floats * 4, cudaMemcpyDefault), "parts");
        return std::ranges::all_of(parts, [](uint32_t word) { return word == ~0u; });
    }

    AttentionMachine machine_;
    cudaStream_t stream_ = nullptr;
};

TEST_F(SplitAttention, DecodesEveryHeadSizeAndRatio) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
        for (const int head_dim : kHeadDims) {
            for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16}) {
                AttentionCase c;
                c.sequences = decoding({70, 1, 300, 64});
                c.kv_heads = 2;
                c.head_group = group;
                c.head_dim = head_dim;
                c.dtype = dtype;
                c.remote = RemotePages::kRandom;
                c.padding = group % 2;
                c.seed = static_cast<uint32_t>(group);
                expect_decode(c);
                if (HasFailure()) return;
            }
        }
    }
}

TEST_F(SplitAttention, DecodesLengthsAroundPageBoundaries) {
    std::vector<int> lengths;
    for (const int pages : {0, 1, 2, 5, 16, 64}) {
        for (const int offset : {-2, -1, 0, 1, 2, 15, 16, 17, 33}) {
            lengths.push_back(std::clamp(pages * 64 + offset, 1, 4096));
        }
    }
    for (const RemotePages remote : kPlaces) {
        AttentionCase c;
        c.sequences = decoding(lengths);
        c.kv_heads = 3;
        c.remote = remote;
        expect_decode(c);
        c.kv_heads = 2;
        c.head_group = 4;
        expect_decode(c);
    }
}

TEST_F(SplitAttention, EmptySlotsWriteNothing) {
    for (const RemotePages remote : {RemotePages::kNone, RemotePages::kAlternating}) {
        for (const auto& lengths : {std::vector{0, 0, 200, 0, 64, 0}, std::vector{5, 0},
                                    std::vector{0, 0}, std::vector{0, 1000, 0, 3}}) {
            AttentionCase c;
            c.sequences = decoding(lengths);
            c.kv_heads = 5;
            c.remote = remote;
            expect_decode(c);
        }
    }
}

TEST_F(SplitAttention, DecodesWindowsAndCaps) {
    for (const int window : {1, 17, 64, 100, 4096}) {
        for (const float cap : {0.0f, 3.0f, 50.0f}) {
            AttentionCase c;
            c.sequences = decoding({1, 63, 64, 65, 80, 128, 129, 500, 1300});
            c.kv_heads = 2;
            c.head_group = 6;
            c.sliding_window = window;
            c.soft_cap = cap;
            c.sharpness = 4;
            c.remote = RemotePages::kAlternating;
            expect_decode(c);
        }
    }
}

TEST_F(SplitAttention, DecodesLargeScores) {
    for (const float sharpness : {0.01f, 30.0f, 1000.0f}) {
        for (const DType dtype : {DType::kBF16, DType::kF16}) {
            AttentionCase c;
            c.sequences = decoding({64, 777, 2048});
            c.kv_heads = 4;
            c.dtype = dtype;
            c.sharpness = sharpness;
            expect_decode(c);
        }
    }
}

TEST_F(SplitAttention, DecodesRandomBatches) {
    std::mt19937 generator(7);
    const auto between = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(generator);
    };
    for (int i = 0; i < 60 && !HasFailure(); ++i) {
        AttentionCase c;
        const int longest = 1 << between(0, 12);
        const int sequences = longest > 1024 ? between(1, 24) : 1 << between(0, 9);
        for (int s = 0; s < sequences; ++s) c.sequences.push_back({between(0, longest), 1});
        c.sequences[0].length = longest;
        c.kv_heads = sequences > 100 ? between(1, 3) : between(1, 8);
        c.head_group = between(1, 16);
        c.head_dim = kHeadDims[between(0, 4)];
        c.dtype = between(0, 1) == 0 ? DType::kBF16 : DType::kF16;
        c.remote = kPlaces[between(0, 4)];
        c.sliding_window = between(0, 3) == 0 ? between(1, longest) : 0;
        c.padding = between(0, 2);
        c.seed = static_cast<uint32_t>(generator());
        expect_decode(c);
    }
}

TEST_F(SplitAttention, DecodesWithAnyRingAndAnyNumberOfCtas) {
    AttentionCase c;
    c.sequences = decoding({1, 5000, 64, 640, 333});
    c.kv_heads = 2;
    c.head_group = 4;
    for (const RemotePages remote : {RemotePages::kNone, RemotePages::kRandom}) {
        c.remote = remote;
        AttentionProblem problem(c, true);
        for (const int slots : {2, 3, 5, 6}) {
            for (const int ctas : {2, 3, 17, 100, 132}) {
                AttentionConfig config = choose_attention_config(problem.shape(), machine_);
                config.slots = slots;
                config.remote_slots = 2;
                config.query_slots = slots % 2 + 1;
                config.ctas = ctas;
                config.remote_ctas = 1 + ctas / 4;
                expect_decode(c, problem, config);
            }
        }
    }
}

/// Long runs, in which CTAs take more ranges when they are done, launched closely one after
/// another.
TEST_F(SplitAttention, DecodesLongRuns) {
    AttentionCase c;
    c.sequences = decoding({5000, 64, 9000, 333, 1, 700, 0, 2048});
    c.kv_heads = 8;
    for (const int group : {1, 4}) {
        for (const RemotePages remote : {RemotePages::kNone, RemotePages::kRandom}) {
            c.head_group = group;
            c.remote = remote;
            AttentionProblem problem(c, true);
            for (const int ctas : {2, 3, 5, 9}) {
                for (const int slots : {2, 5, 6}) {
                    AttentionConfig config = choose_attention_config(problem.shape(), machine_);
                    config.slots = slots;
                    config.remote_slots = 2;
                    config.ctas = ctas;
                    config.remote_ctas = 1;
                    expect_decode(c, problem, config);
                    if (HasFailure()) return;
                }
            }
        }
    }
    c.sequences.assign(16, {16000, 1});
    c.head_dim = 64;
    c.remote = RemotePages::kNone;
    AttentionProblem problem(c, true);
    const AttentionConfig config = choose_attention_config(problem.shape(), machine_);
    expect_decode(c, problem, config);
    AttentionWorkspace workspace(problem.shape(), config);
    plan_decode_attention(problem.args(), config, workspace, stream_);
    problem.poison();
    check(cudaDeviceSynchronize(), "poison");
    for (int layer = 0; layer < 20; ++layer) {
        decode_attention(problem.args(), config, workspace, stream_);
    }
    check(cudaStreamSynchronize(stream_), "decode attention");
    EXPECT_EQ(problem.verdict(), "");
    EXPECT_TRUE(parts_are_clear(problem.shape(), workspace));
}

/// A captured step serves sequences that grow, move into other slots and end.
TEST_F(SplitAttention, ACapturedPlanFollowsTheLengths) {
    AttentionCase c;
    c.sequences = decoding({700, 64, 129, 1});
    c.kv_heads = 8;
    c.head_group = 4;
    c.remote = RemotePages::kRandom;
    AttentionProblem problem(c, true);
    const AttentionConfig config = choose_attention_config(problem.shape(), machine_);
    AttentionWorkspace workspace(problem.shape(), config);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    plan_decode_attention(problem.args(), config, workspace, stream_);
    for (int layer = 0; layer < 3; ++layer) {
        decode_attention(problem.args(), config, workspace, stream_);
    }
    check(cudaStreamEndCapture(stream_, &graph), "capture");
    check(cudaGraphInstantiate(&executable, graph, 0), "graph");
    for (const auto& lengths : {std::vector{700, 64, 129, 1}, std::vector{1, 1, 1, 1},
                                std::vector{64, 0, 5, 0}, std::vector{699, 60, 128, 1}}) {
        problem.set_lengths(lengths);
        problem.poison();
        check(cudaDeviceSynchronize(), "poison");
        check(cudaGraphLaunch(executable, stream_), "replay");
        check(cudaStreamSynchronize(stream_), "replay");
        EXPECT_EQ(problem.verdict(), "");
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
}

/// Launches that follow each other closely, as layers do, with copies of the same and other pages.
TEST_F(SplitAttention, PrefillsLayerAfterLayer) {
    AttentionCase c;
    c.sequences = {{900, 300}, {64, 1}, {2000, 700}};
    c.kv_heads = 4;
    c.head_group = 2;
    c.remote = RemotePages::kRandom;
    AttentionProblem first(c, false);
    c.seed = 2;
    AttentionProblem second(c, false);
    AttentionShape shape = first.shape();
    shape.max_pages += 4;
    shape.copied_pages = std::max(first.remote_pages(), second.remote_pages());
    const AttentionConfig config = choose_attention_config(shape, machine_);
    AttentionWorkspace workspace(shape, config);
    first.poison();
    second.poison();
    check(cudaDeviceSynchronize(), "poison");
    for (int layer = 0; layer < 20; ++layer) {
        const AttentionProblem& problem = layer % 2 == 0 ? first : second;
        prefill_attention(problem.args(), problem.max_query_tokens(), config, workspace, stream_);
    }
    check(cudaStreamSynchronize(stream_), "prefill attention");
    EXPECT_EQ(first.verdict(), "");
    EXPECT_EQ(second.verdict(), "");
}

/// Tokens are read ahead of the preceding kernel, except those that it is still writing.
TEST_F(SplitAttention, WaitsForTheKernelThatAppends) {
    std::vector<int> many;  // more newest pages for a CTA than fit into its ring
    for (int i = 0; i < 180; ++i) many.push_back(std::vector{64, 1, 65, 2, 128, 0, 33}[i % 7]);
    for (const auto& lengths : {std::vector{64, 1000, 65, 1, 200}, many}) {
        for (const int head_dim : {80, 128, 256}) {
            for (const int window : {0, 1, 40}) {
                AttentionCase c;
                c.sequences = decoding(lengths);
                c.kv_heads = 8;
                c.head_group = 4;
                c.head_dim = head_dim;
                c.sliding_window = window;
                c.remote = window == 0 ? RemotePages::kNone : RemotePages::kRandom;
                AttentionProblem problem(c, true);
                AttentionConfig config = choose_attention_config(problem.shape(), machine_);
                AttentionWorkspace workspace(problem.shape(), config);
                for (const int slots : {config.slots, 3, 2}) {
                    SCOPED_TRACE(c.to_string() + " | " + config.to_string());
                    config.slots = slots;
                    config.remote_slots = std::min(config.remote_slots, slots);
                    plan_decode_attention(problem.args(), config, workspace, stream_);
                    check(cudaStreamSynchronize(stream_), "plan");
                    problem.poison();
                    problem.forget_newest();
                    problem.store_newest_late(stream_);
                    decode_attention(problem.args(), config, workspace, stream_);
                    check(cudaStreamSynchronize(stream_), "decode attention");
                    EXPECT_EQ(problem.verdict(), "");
                }
            }
        }
    }
}

TEST_F(SplitAttention, LayersWithDifferentWindowsShareAStep) {
    AttentionCase c;
    c.sequences = decoding({700, 64, 129, 1});
    c.kv_heads = 2;
    AttentionProblem all(c, true);
    c.sliding_window = 70;
    AttentionProblem windowed(c, true);
    const AttentionConfig config = choose_attention_config(all.shape(), machine_);
    AttentionWorkspace workspace(all.shape(), config, 2);
    plan_decode_attention(all.args(), config, workspace, stream_);
    plan_decode_attention(windowed.args(), config, workspace, stream_);
    all.poison();
    windowed.poison();
    check(cudaDeviceSynchronize(), "poison");
    decode_attention(all.args(), config, workspace, stream_);
    decode_attention(windowed.args(), config, workspace, stream_);
    decode_attention(all.args(), config, workspace, stream_);
    check(cudaStreamSynchronize(stream_), "decode attention");
    EXPECT_EQ(all.verdict(), "");
    EXPECT_EQ(windowed.verdict(), "");
}

TEST_F(SplitAttention, PrefillsEveryHeadSizeAndRatio) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
        for (const int head_dim : kHeadDims) {
            for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16}) {
                AttentionCase c;
                c.sequences = {{70, 70}, {1, 1}, {300, 130}, {64, 64}, {200, 5}};
                c.kv_heads = 2;
                c.head_group = group;
                c.head_dim = head_dim;
                c.dtype = dtype;
                c.remote = RemotePages::kRandom;
                c.padding = group % 2;
                c.seed = static_cast<uint32_t>(group);
                expect_prefill(c);
                if (HasFailure()) return;
            }
        }
    }
}

TEST_F(SplitAttention, PrefillsLengthsAroundPageAndTileBoundaries) {
    for (const RemotePages remote : kPlaces) {
        for (const int group : {1, 5}) {
            AttentionCase c;
            for (const int tokens : {1, 2, 25, 26, 63, 64, 65, 127, 128, 129, 255, 257, 600}) {
                for (const int past : {0, 1, 63, 64, 65, 127, 128, 700}) {
                    c.sequences.push_back({past + tokens, tokens});
                }
            }
            c.kv_heads = 2;
            c.head_group = group;
            c.remote = remote;
            expect_prefill(c);
        }
    }
}

TEST_F(SplitAttention, PrefillsWindowsAndCaps) {
    for (const int window : {1, 17, 64, 100, 129, 4096}) {
        for (const float cap : {0.0f, 3.0f, 50.0f}) {
            AttentionCase c;
            c.sequences = {{1, 1}, {200, 200}, {640, 100}, {1300, 300}, {500, 1}};
            c.kv_heads = 2;
            c.head_group = 3;
            c.sliding_window = window;
            c.soft_cap = cap;
            c.sharpness = 4;
            c.remote = RemotePages::kAlternating;
            expect_prefill(c);
        }
    }
}

TEST_F(SplitAttention, PrefillsLargeScores) {
    for (const float sharpness : {0.01f, 30.0f, 1000.0f}) {
        for (const DType dtype : {DType::kBF16, DType::kF16}) {
            AttentionCase c;
            c.sequences = {{64, 64}, {777, 200}, {1500, 1500}};
            c.kv_heads = 2;
            c.dtype = dtype;
            c.sharpness = sharpness;
            expect_prefill(c);
        }
    }
}

TEST_F(SplitAttention, PrefillsRandomBatches) {
    std::mt19937 generator(11);
    const auto between = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(generator);
    };
    for (int i = 0; i < 40 && !HasFailure(); ++i) {
        AttentionCase c;
        const int longest = 1 << between(0, 11);
        const int sequences = longest > 256 ? between(1, 6) : between(1, 64);
        for (int s = 0; s < sequences; ++s) {
            const int length = between(1, longest);
            const int tokens = between(0, 1) == 0 ? between(0, 1) : between(1, length);
            c.sequences.push_back({length, tokens});
        }
        c.sequences[0] = {longest, between(1, longest)};
        c.kv_heads = between(1, 4);
        c.head_group = between(1, 16);
        c.head_dim = kHeadDims[between(0, 4)];
        c.dtype = between(0, 1) == 0 ? DType::kBF16 : DType::kF16;
        c.remote = kPlaces[between(0, 4)];
        c.sliding_window = between(0, 3) == 0 ? between(1, longest) : 0;
        c.padding = between(0, 2);
        c.seed = static_cast<uint32_t>(generator());
        expect_prefill(c);
    }
}

TEST_F(SplitAttention, RefusesWhatItCannotTake) {
    AttentionCase c;
    c.sequences = decoding({70, 3});
    AttentionProblem problem(c, true);
    const AttentionConfig config = choose_attention_config(problem.shape(), machine_);
    AttentionWorkspace workspace(problem.shape(), config);
    const auto refuses = [&](const auto& change) {
        AttentionArgs args = problem.args();
        change(args);
        EXPECT_THROW(decode_attention(args, config, workspace, stream_), Error);
    };
    refuses([](AttentionArgs&) {});  // no plan yet
    plan_decode_attention(problem.args(), config, workspace, stream_);
    refuses([](AttentionArgs& args) { args.ldq += 1; });
    refuses([](AttentionArgs& args) { args.ldo = 8; });
    refuses([](AttentionArgs& args) { args.sliding_window = 9; });
    refuses([](AttentionArgs& args) { args.num_heads *= 2; });
    refuses([](AttentionArgs& args) { args.kv.remote = args.kv.local; });
    check(cudaStreamSynchronize(stream_), "plan");
}

}  // namespace
}  // namespace dak::cuda
