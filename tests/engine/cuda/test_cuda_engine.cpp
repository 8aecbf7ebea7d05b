#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include "base/error.h"
#include "engine/cuda/cuda_executor.h"
#include "engine/cuda/cuda_transformer.h"
#include "engine/engine.h"
#include "engine/golden.h"
#include "ops/cuda/check.h"

namespace dak {
namespace {

using testing::GoldenPrompt;

/// Where the remote tier lives: pinned host memory, or a peer: another GPU, or the same one where
/// there is no other.
enum class Remote : uint8_t { kHost, kPeer };

struct Setting {
    DType dtype = DType::kBF16;
    double ratio = 0;
    Remote remote = Remote::kHost;
    bool staged = false;
    bool graphs = true;
    int64_t prefill_chunk = 64;
    int64_t max_batch = 3;

    /// The smallest ring, in the smallest pieces: laps and waits as many as can be.
    std::optional<StagingSizes> staging(const ModelConfig& config,
                                        const ModelWeights& weights) const {
        if (!staged) return {};
        int64_t largest = kAtomBytes;
        for (const SplitTensor& weight : cuda::streamed_weights(config, weights)) {
            largest = std::max(largest, weight.remote_bytes());
        }
        return StagingSizes{largest, kAtomBytes};
    }
};

std::ostream& operator<<(std::ostream& out, const Setting& s) {
    return out << name_of(s.dtype) << " ratio " << s.ratio
               << (s.remote == Remote::kHost ? " host" : " peer")
               << (s.staged ? " staged" : " direct") << (s.graphs ? " graphs" : " eager")
               << " chunk " << s.prefill_chunk << " batch " << s.max_batch;
}

TierMemory memory_of(Remote remote) {
    if (remote == Remote::kHost) return TierMemory::gpu_and("host");
    int gpus = 0;
    int reachable = 0;
    cudaGetDeviceCount(&gpus);
    if (gpus > 1) cudaDeviceCanAccessPeer(&reachable, 0, 1);
    return TierMemory::gpu_and(reachable != 0 ? "peer:1" : "peer:0");
}

ModelWeights load(const std::filesystem::path& model, const ModelConfig& config,
                  const Setting& setting) {
    return load_weights(model, config, uniform_placement(weight_specs(config), setting.ratio),
                        {.num_threads = 2, .progress = false, .memory = memory_of(setting.remote)});
}

class CudaGolden : public ::testing::TestWithParam<std::filesystem::path> {
  protected:
    void SetUp() override {
        int gpus = 0;
        if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) GTEST_SKIP() << "no GPU";
    }

    ModelConfig config(DType dtype) const {
        ModelConfig result = load_config(GetParam());
        result.dtype = dtype;
        return result;
    }

    std::unique_ptr<Engine> start(const Setting& setting) const {
        const ModelConfig model = config(setting.dtype);
        const EngineOptions options{
            .max_batch = setting.max_batch,
            .kv_pages = 14,
            .kv_remote_pages = std::llround(14 * setting.ratio),
            .prefill_chunk = setting.prefill_chunk,
            .memory = memory_of(setting.remote),
            .make_executor = [&](const ModelConfig& c, const ModelWeights& w, KvCache& cache) {
                return make_cuda_executor(
                    c, w, cache,
                    {.max_batch = setting.max_batch,
                     .max_step_tokens = setting.prefill_chunk + setting.max_batch,
                     .max_tokens = 256,
                     .staging = setting.staging(c, w),
                     .graphs = setting.graphs});
            }};
        return std::make_unique<Engine>(model, load(GetParam(), model, setting), nullptr, options);
    }

    /// The greedy tokens after each prompt, as many as Hugging Face's but `most` at most.
    std::vector<std::vector<int32_t>> generate(Engine& engine, int64_t most) const {
        std::map<RequestId, std::vector<int32_t>> tokens;
        for (const GoldenPrompt& prompt : prompts_) {
            const auto length = static_cast<int64_t>(prompt.greedy.size());
            tokens[engine.add({.prompt = prompt.prompt,
                               .max_new_tokens = std::min(length, most),
                               .ignore_eos = true})];
        }
        while (!engine.idle()) {
            for (Completion& completion : engine.step()) {
                EXPECT_EQ(completion.error, "");
                tokens.at(completion.id) = std::move(completion.tokens);
            }
        }
        std::vector<std::vector<int32_t>> in_order;
        for (auto& [id, generated] : tokens) in_order.push_back(std::move(generated));
        return in_order;
    }

    std::vector<std::vector<int32_t>> generate(const Setting& setting) const {
        return generate(*start(setting), std::numeric_limits<int64_t>::max());
    }

    std::vector<GoldenPrompt> prompts_ = testing::read_golden(GetParam() / "expected.json");
};

/// Logits after each prompt, in one step of all of them.
std::vector<float> logits_after(const ModelConfig& config, const ModelWeights& weights,
                                const std::vector<GoldenPrompt>& prompts, const Setting& setting) {
    const auto count = static_cast<int64_t>(prompts.size());
    KvCache cache({config.num_kv_heads, config.head_dim, config.dtype}, config.num_layers, 16,
                  std::llround(16 * setting.ratio), memory_of(setting.remote));
    std::vector<std::vector<int32_t>> pages;
    std::vector<SequenceChunk> chunks;
    std::vector<Draw> draws;
    const ops::Sampling greedy;
    cuda::StepShape shape{0, count};
    int64_t most = 0;
    for (const GoldenPrompt& prompt : prompts) {
        const auto length = static_cast<int64_t>(prompt.prompt.size());
        pages.push_back(cache.allocate(KvCache::pages_for(length)));
        shape.rows += length;
        most = std::max(most, length);
    }
    for (size_t i = 0; i < prompts.size(); ++i) {
        chunks.push_back({.tokens = prompts[i].prompt,
                          .pages = pages[i],
                          .rope_length = static_cast<int64_t>(prompts[i].prompt.size())});
        draws.push_back({&greedy, prompts[i].prompt, {}});
    }
    const cuda::StepLimits limits{shape, 256};
    cuda::StepInputs inputs(config, limits);
    cuda::CudaTransformer transformer(config, weights, cache, cuda::current_gemm_machine(), limits,
                                      setting.staging(config, weights));
    inputs.fill(shape, chunks, draws);
    inputs.upload(shape, nullptr);
    transformer.enqueue(inputs.view(shape), false, most, nullptr);
    std::vector<float> logits;
    for (int64_t i = 0; i < count; ++i) {
        std::vector<float> row(static_cast<size_t>(config.vocab_size));
        cuda::check(cudaMemcpy(row.data(), transformer.logits() + i * transformer.logits_stride(),
                               row.size() * sizeof(float), cudaMemcpyDeviceToHost),
                    "logits");
        logits.insert(logits.end(), row.begin(), row.end());
    }
    return logits;
}

/// The largest error of a logit that plain PyTorch makes in this type, over all prompts
/// (tools/make_goldens.py).
double reference_error(const std::filesystem::path& model, DType dtype) {
    return read_json_file(model / "low_precision.json").at(std::string(name_of(dtype)));
}

TEST_P(CudaGolden, LogitsErrTwiceAsMuchAsPlainLowPrecisionAtMost) {
    std::vector<float> expected;
    std::ifstream file(GetParam() / "expected_logits.bin", std::ios::binary);
    const size_t vocab = static_cast<size_t>(config(DType::kBF16).vocab_size);
    expected.resize(vocab * prompts_.size());
    file.read(reinterpret_cast<char*>(expected.data()),
              static_cast<std::streamsize>(expected.size() * sizeof(float)));
    ASSERT_TRUE(file);
    for (const Setting& setting :
         {Setting{DType::kBF16, 0.0}, Setting{DType::kBF16, 0.3}, Setting{DType::kBF16, 1.0},
          Setting{DType::kF16, 0.0}, Setting{DType::kF16, 0.3, Remote::kPeer},
          Setting{DType::kBF16, 0.3, Remote::kHost, true},
          Setting{DType::kBF16, 0.3, Remote::kPeer, true},
          Setting{DType::kF16, 1.0, Remote::kHost, true}}) {
        SCOPED_TRACE(::testing::Message() << setting);
        const ModelConfig model = config(setting.dtype);
        const ModelWeights weights = load(GetParam(), model, setting);
        const std::vector<float> logits = logits_after(model, weights, prompts_, setting);
        for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
            double error = 0;
            for (size_t i = 0; i < vocab; ++i) {
                const float value = logits[prompt * vocab + i];
                ASSERT_TRUE(std::isfinite(value)) << "prompt " << prompt << ", logit " << i;
                error =
                    std::max(error, std::abs(double{value} - double{expected[prompt * vocab + i]}));
            }
            EXPECT_LE(error, 2 * reference_error(GetParam(), setting.dtype))
                << "prompt of " << prompts_[prompt].prompt.size() << " tokens";
        }
    }
}

TEST_P(CudaGolden, GreedyTokensEqualHuggingFaceUpToRounding) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
        const double margin = 4 * reference_error(GetParam(), dtype);  // both logits may err by 2
        for (const double ratio : {0.0, 0.3, 1.0}) {
            for (const bool staged : {false, true}) {
                for (const Remote remote : {Remote::kHost, Remote::kPeer}) {
                    const Setting setting{dtype, ratio, remote, staged};
                    SCOPED_TRACE(::testing::Message() << setting);
                    const auto tokens = generate(setting);
                    for (size_t i = 0; i < prompts_.size(); ++i) {
                        const GoldenPrompt& prompt = prompts_[i];
                        ASSERT_EQ(tokens[i].size(), prompt.greedy.size());
                        for (size_t t = 0; t < tokens[i].size() && prompt.margins[t] > margin;
                             ++t) {
                            ASSERT_EQ(tokens[i][t], prompt.greedy[t])
                                << "prompt " << i << ", step " << t;
                        }
                    }
                }
            }
        }
    }
}

TEST_P(CudaGolden, GraphsAndEagerStepsGiveTheSameTokens) {
    for (const bool staged : {false, true}) {
        for (const int64_t chunk : {16, 256}) {
            Setting setting{.ratio = staged ? 1.0 : 0.3,
                            .staged = staged,
                            .prefill_chunk = chunk,
                            .max_batch = 6};
            SCOPED_TRACE(::testing::Message() << setting);
            const auto with_graphs = generate(setting);
            EXPECT_EQ(generate(setting), with_graphs) << "again";
            setting.graphs = false;
            EXPECT_EQ(generate(setting), with_graphs);
        }
    }
}

TEST_P(CudaGolden, AThousandGenerationsGiveTheSameTokens) {
    constexpr int64_t kTokens = 8;  // each but the first by a replay of the graph
    for (const bool staged : {false, true}) {
        const Setting setting{.ratio = 0.3, .staged = staged, .prefill_chunk = 512, .max_batch = 6};
        SCOPED_TRACE(::testing::Message() << setting);
        const auto engine = start(setting);
        const auto expected = generate(*engine, kTokens);
        for (int i = 1; i < 1000; ++i) ASSERT_EQ(generate(*engine, kTokens), expected) << i;
    }
}

/// Logits of the tokens that Hugging Face chose, step by step, when they are fed to decode steps.
std::vector<float> forced_logits(const ModelConfig& config, const ModelWeights& weights,
                                 const GoldenPrompt& prompt, const Setting& setting) {
    KvCache cache({config.num_kv_heads, config.head_dim, config.dtype}, config.num_layers, 4,
                  std::llround(4 * setting.ratio), memory_of(setting.remote));
    const auto length = static_cast<int64_t>(prompt.prompt.size());
    const auto steps = static_cast<int64_t>(prompt.greedy.size());
    const auto pages = cache.allocate(KvCache::pages_for(length + steps));
    const cuda::StepLimits limits{{length, 1}, 256};
    cuda::StepInputs inputs(config, limits);
    cuda::CudaTransformer transformer(config, weights, cache, cuda::current_gemm_machine(), limits,
                                      setting.staging(config, weights));
    const ops::Sampling greedy;
    const std::vector<Draw> draws = {{&greedy, prompt.prompt, {}}};
    std::vector<float> logits;
    for (int64_t step = 0; step < steps; ++step) {
        const std::span<const int32_t> tokens =
            step == 0
                ? std::span<const int32_t>(prompt.prompt)
                : std::span<const int32_t>(prompt.greedy).subspan(static_cast<size_t>(step - 1), 1);
        const int64_t past = step == 0 ? 0 : length + step - 1;
        const auto count = static_cast<int64_t>(tokens.size());
        const std::vector<SequenceChunk> chunks = {{.tokens = tokens,
                                                    .past = past,
                                                    .pages = pages,
                                                    .rope_length = std::max(past + count, length)}};
        const cuda::StepShape shape{count, 1};
        inputs.fill(shape, chunks, draws);
        inputs.upload(shape, nullptr);
        transformer.enqueue(inputs.view(shape), step > 0, count, nullptr);
        transformer.join_copies(nullptr);
        float logit = 0;
        const int32_t chosen = prompt.greedy[static_cast<size_t>(step)];
        cuda::check(cudaMemcpy(&logit, transformer.logits() + chosen, sizeof(float),
                               cudaMemcpyDeviceToHost),
                    "logit");
        logits.push_back(logit);
    }
    return logits;
}

TEST_P(CudaGolden, DecodeStepsErrAsLittle) {
    for (const Setting& setting : {Setting{DType::kBF16, 0.0}, Setting{DType::kF16, 0.5},
                                   Setting{DType::kF16, 1.0, Remote::kPeer},
                                   Setting{DType::kF16, 1.0, Remote::kHost, true}}) {
        SCOPED_TRACE(::testing::Message() << setting);
        const ModelConfig model = config(setting.dtype);
        const ModelWeights weights = load(GetParam(), model, setting);
        for (const GoldenPrompt& prompt : prompts_) {
            const std::vector<float> logits = forced_logits(model, weights, prompt, setting);
            for (size_t step = 0; step < logits.size(); ++step) {
                EXPECT_NEAR(logits[step], prompt.greedy_logits[step],
                            2 * reference_error(GetParam(), setting.dtype))
                    << "prompt of " << prompt.prompt.size() << " tokens, step " << step;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaGolden, ::testing::ValuesIn(testing::golden_models()),
                         [](const auto& model) {
                             std::string name = model.param.filename();
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace dak
