// The small operations between the matrix products: time against the bytes they must move, and
// against these bytes and the launch of an empty kernel, in a chain of programmatic launches (what
// a decode step is) and of plain ones.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/units.h"
#include "empty.h"
#include "fill.h"
#include "measure.h"
#include "ops/cuda/check.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/small_ops/fill_random.h"
#include "ops/cuda/small_ops/sample.h"
#include "ops/cuda/small_ops/small_ops.h"

namespace dak::bench {
namespace {

using cuda::check;

/// What operations rotate through: several times the L2.
constexpr int64_t kPoolBytes = 512 * kMiB;
constexpr int64_t kVectorElements = 32768;

class Device {
  public:
    explicit Device(int64_t bytes) : bytes_(bytes) {
        check(cudaMalloc(&memory_, static_cast<size_t>(bytes)), "benchmark memory");
    }
    template <typename T>
    explicit Device(const std::vector<T>& values)
        : Device(static_cast<int64_t>(values.size() * sizeof(T))) {
        check(cudaMemcpy(memory_, values.data(), static_cast<size_t>(bytes_), cudaMemcpyDefault),
              "upload");
    }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
    ~Device() { cudaFree(memory_); }

    template <typename T>
    T* as() const {
        return static_cast<T*>(memory_);
    }
    /// The `index`-th piece of `bytes`, starting again at the end.
    std::byte* piece(int64_t index, int64_t bytes) const {
        const int64_t pieces = std::max<int64_t>(1, bytes_ / bytes);
        return as<std::byte>() + index % pieces * bytes;
    }

  private:
    void* memory_ = nullptr;
    int64_t bytes_;
};

std::vector<int32_t> shuffled(int64_t count, int64_t below, uint32_t seed) {
    std::mt19937 generator(seed);
    std::vector<int32_t> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<int32_t>(static_cast<int64_t>(i) % below);
    }
    std::shuffle(values.begin(), values.end(), generator);
    return values;
}

class Bench {
  public:
    Json rows = Json::array();

    Bench(double hbm_gbps, int rounds)
        : hbm_gbps_(hbm_gbps),
          rounds_(rounds),
          in_(kPoolBytes),
          out_(kPoolBytes),
          vectors_(kVectorElements * 4) {
        check(cudaStreamCreate(&stream_), "stream");
        fill_random(in_.as<void>(), kPoolBytes / 2, 1, 1.0f, stream_);
        fill_random(out_.as<void>(), kPoolBytes / 2, 2, 1.0f, stream_);
        fill_random(vectors_.as<void>(), kVectorElements * 2, 3, 1.0f, stream_);
        const auto empty = [&](bool programmatic) {
            const cuda::LaunchShape shape{.grid = dim3(static_cast<unsigned>(cuda::current_sms())),
                                          .threads = 256};
            cuda::launch(empty_kernel(), shape, 0, stream_, programmatic, "empty kernel");
        };
        launch_us_ = measure({{"chain", 500, [&](int, cudaStream_t) { empty(true); }, {}},
                              {"plain", 500, [&](int, cudaStream_t) { empty(false); }, {}}},
                             stream_, rounds_);
        std::printf("%-10s %-34s %9s %9s %9s %8s %9s %8s\n", "op", "size", "chain us", "plain us",
                    "floor us", "x floor", "x +launch", "GB/s");
        std::printf("%-10s %-34s %9.2f %9.2f\n", "launch", "empty kernel", launch_us_[0],
                    launch_us_[1]);
        rows.push_back({{"op", "launch"},
                        {"size", "empty kernel"},
                        {"bytes", 0},
                        {"chain_us", launch_us_[0]},
                        {"plain_us", launch_us_[1]}});
    }

    void copy() {
        for (const int64_t bytes : {int64_t{64} * kKiB, 16 * kMiB}) {
            report(
                "copy", format_bytes(bytes) + " by cudaMemcpyAsync", 2 * bytes, [&](int i, bool) {
                    check(cudaMemcpyAsync(out_.piece(i, bytes), in_.piece(i, bytes),
                                          static_cast<size_t>(bytes), cudaMemcpyDefault, stream_),
                          "copy");
                });
        }
    }

    void norm() {
        for (const int64_t width : {int64_t{4096}, int64_t{7168}}) {
            for (const int64_t count : {8, 64, 512, 4096}) {
                const NormKind kind = width == 4096 ? NormKind::kRms : NormKind::kLayer;
                const int64_t bytes = count * width * 2;
                report("norm",
                       fmt::format("{} x {} {}", count, width,
                                   kind == NormKind::kRms ? "RMS" : "layer"),
                       2 * bytes, [&](int i, bool programmatic) {
                           cuda::norm(
                               {.kind = kind,
                                .weight = vectors_.as<float>(),
                                .bias = kind == NormKind::kLayer ? vectors_.as<float>() : nullptr,
                                .x = in_.piece(i, bytes),
                                .ldx = width,
                                .out = out_.piece(i, bytes),
                                .ldo = width,
                                .rows = count,
                                .width = width},
                               stream_, programmatic);
                       });
            }
        }
    }

    void embed() {
        constexpr int64_t kWidth = 7168;
        const PackedShape shape{35000, kWidth, DType::kBF16};
        const SplitTensor table{shape, 0, nullptr, in_.as<std::byte>()};
        constexpr int64_t kTokens = 1 << 20;
        const Device tokens(shuffled(kTokens, shape.rows, 4));
        for (const int64_t count : {8, 512, 4096}) {
            const int64_t bytes = count * kWidth * 2;
            report("embed", fmt::format("{} x {}", count, kWidth), 2 * bytes,
                   [&](int i, bool programmatic) {
                       const cuda::EmbedArgs args{
                           .table = table,
                           .tokens = tokens.as<int32_t>() + i * count % (kTokens - count),
                           .count = count,
                           .out = out_.piece(i, bytes),
                           .ldo = kWidth};
                       cuda::embed(args, stream_, programmatic);
                   });
        }
    }

    struct Heads {
        const char* name;
        int64_t q, kv;
        bool rotates, normalises;
    };

    /// `prefill`: one sequence of `tokens`; otherwise as many sequences with one token each.
    void rope_append(const Heads& heads, int64_t tokens, bool prefill) {
        const KvPageLayout layout{heads.kv, 128, DType::kBF16};
        const int64_t pages = kPoolBytes / layout.page_bytes();
        const int64_t width = (heads.q + 2 * heads.kv) * layout.head_dim;
        const int64_t bytes = tokens * width * 2;
        constexpr int64_t kTable = 1 << 18;
        const Device table(shuffled(kTable, pages, 5));
        std::vector<int32_t> sequences(static_cast<size_t>(tokens));
        std::vector<int32_t> positions = shuffled(tokens, kPageTokens, 6);
        std::iota(sequences.begin(), sequences.end(), 0);
        if (prefill) std::swap(sequences, positions);
        if (prefill) std::fill(sequences.begin(), sequences.end(), 0);
        const Device sequence_of(sequences), position_of(positions);
        const int64_t stride = prefill ? ceil_div(tokens, kPageTokens) : 1;
        const int64_t used = prefill ? stride : tokens;
        const bool changes_q = heads.rotates || heads.normalises;
        const int64_t moved = (changes_q ? heads.q : 0) + 2 * heads.kv;
        report("rope", fmt::format("{} {} {}", tokens, heads.name, prefill ? "prefill" : "decode"),
               2 * tokens * moved * layout.head_dim * 2, [&](int i, bool programmatic) {
                   cuda::rope_append({.qkv = in_.piece(i, bytes),
                                      .ld = width,
                                      .tokens = tokens,
                                      .num_heads = heads.q,
                                      .kv = {layout, out_.as<std::byte>(), nullptr, pages},
                                      .positions = position_of.as<int32_t>(),
                                      .sequence_of = sequence_of.as<int32_t>(),
                                      .pages = table.as<int32_t>() + i * used % (kTable - used),
                                      .pages_stride = stride,
                                      .frequencies = heads.rotates ? vectors_.as<float>() : nullptr,
                                      .q_norm = heads.normalises ? vectors_.as<float>() : nullptr,
                                      .k_norm = heads.normalises ? vectors_.as<float>() : nullptr},
                                     stream_, programmatic);
               });
    }
    void rope_append() {
        for (const Heads& heads : {Heads{"32/8 heads", 32, 8, true, false},
                                   Heads{"32/8 heads, normed", 32, 8, true, true},
                                   Heads{"56/56 heads, no rope", 56, 56, false, false}}) {
            for (const int64_t tokens : {8, 64, 512}) rope_append(heads, tokens, false);
            rope_append(heads, 4096, true);
        }
    }

    void sample(const char* name, const ops::Sampling& sampling, int64_t vocab, int64_t sequences) {
        const int64_t ld = round_up(vocab, 4);
        const int64_t bytes = sequences * ld * 4;
        std::vector<cuda::SampleRequest> list(static_cast<size_t>(sequences));
        for (size_t i = 0; i < list.size(); ++i) {
            list[i] = {sampling, static_cast<int32_t>(i), 0, 40};
            list[i].sampling.seed = i;
        }
        const Device requests(list), tokens(sequences * 4), status(sequences * 4);
        const Device history(shuffled(sequences * 64, vocab, 7));
        report("sample", fmt::format("{} x {} {}", sequences, vocab, name), bytes,
               [&](int i, bool programmatic) {
                   cuda::sample({.logits = reinterpret_cast<float*>(logits_->piece(i, bytes)),
                                 .ld = ld,
                                 .vocab = vocab,
                                 .sequences = sequences,
                                 .requests = requests.as<cuda::SampleRequest>(),
                                 .history = history.as<int32_t>(),
                                 .history_stride = 64,
                                 .tokens = tokens.as<int32_t>(),
                                 .status = status.as<cuda::SampleStatus>()},
                                stream_, programmatic);
               });
    }
    void sample() {
        std::vector<float> values(static_cast<size_t>(kPoolBytes / 4));
        std::mt19937 generator(8);
        std::normal_distribution<float> normal(0.0f, 3.0f);
        std::vector<float> some(1 << 20);
        for (float& value : some) value = normal(generator);
        for (size_t i = 0; i < values.size(); ++i) values[i] = some[(i * 7919) & (some.size() - 1)];
        logits_.emplace(values);
        const ops::Sampling plain{.temperature = 1.0f}, top_p{.temperature = 0.8f, .top_p = 0.95f},
            both{.temperature = 0.8f, .top_k = 50, .top_p = 0.95f},
            penalties{.repetition_penalty = 1.1f, .temperature = 0.8f, .top_p = 0.95f};
        for (const int64_t vocab : {int64_t{50272}, int64_t{151936}}) {
            for (const int64_t sequences : {1, 8, 64, 512}) sample("greedy", {}, vocab, sequences);
            for (const int64_t sequences : {8, 512}) {
                sample("temperature", plain, vocab, sequences);
                sample("top-p", top_p, vocab, sequences);
                sample("top-k, top-p", both, vocab, sequences);
                sample("penalties, top-p", penalties, vocab, sequences);
            }
        }
    }

    void fill() {
        const PackedShape shape{28672, 7168, DType::kBF16};
        Arena host = Arena::pinned_host("host", shape.bytes() / 8);
        const SplitTensor local{shape, 0, nullptr, in_.as<std::byte>()};
        const PackedShape part{28672 / 8, 7168, DType::kBF16};
        const SplitTensor remote{part, part.atoms(), host.allocate(part.bytes()), nullptr};
        const RandomMatrix matrix{.hash = 9, .deviation = 0.02f, .rows = shape.rows};
        report("fill", "28672 x 7168 in HBM", shape.bytes(),
               [&](int, bool) { cuda::fill_random(matrix, local, stream_); });
        report("fill", "3584 x 7168 over the link", part.bytes(),
               [&](int, bool) { cuda::fill_random(matrix, remote, stream_); });
    }

  private:
    /// `bytes` are what one operation must move.
    template <typename Enqueue>
    void report(const std::string& op, const std::string& size, int64_t bytes, Enqueue enqueue) {
        const auto operations = static_cast<int>(std::clamp<int64_t>(kPoolBytes / bytes, 10, 500));
        const std::vector<double> us =
            measure({{"chain", operations, [&](int i, cudaStream_t) { enqueue(i, true); }, {}},
                     {"plain", operations, [&](int i, cudaStream_t) { enqueue(i, false); }, {}}},
                    stream_, rounds_);
        const double floor_us = static_cast<double>(bytes) / hbm_gbps_ * 1e-3;
        const double gbps = static_cast<double>(bytes) / us[0] * 1e-3;
        const double above_least = us[0] / (floor_us + launch_us_[0]);
        std::printf("%-10s %-34s %9.2f %9.2f %9.2f %8.2f %9.2f %8.0f\n", op.c_str(), size.c_str(),
                    us[0], us[1], floor_us, us[0] / floor_us, above_least, gbps);
        rows.push_back({{"op", op},
                        {"size", size},
                        {"bytes", bytes},
                        {"chain_us", us[0]},
                        {"plain_us", us[1]},
                        {"floor_us", floor_us},
                        {"gbps", gbps}});
    }

    double hbm_gbps_;
    int rounds_;
    std::vector<double> launch_us_;  ///< in a chain, and plain
    Device in_, out_, vectors_;
    std::optional<Device> logits_;
    cudaStream_t stream_ = nullptr;
};

}  // namespace
}  // namespace dak::bench

int main(int argc, char** argv) {
    using namespace dak;
    CLI::App app{"Benchmark of the small operations on the GPU"};
    std::vector<std::string> sections = {"copy", "norm", "embed", "rope", "sample", "fill"};
    std::string json, commit = "unknown";
    int rounds = 5;
    double hbm_gbps = 4740;
    app.add_option("--sections", sections, "What to run")->delimiter(',');
    app.add_option("--rounds", rounds, "Samples of each measurement");
    app.add_option("--hbm-gbps", hbm_gbps, "Read rate of the memory, for the floor");
    app.add_option("--json", json, "File for the results");
    app.add_option("--commit", commit, "What to record as the commit measured");
    CLI11_PARSE(app, argc, argv);

    try {
        Json report = bench::report_head("small_ops", commit);
        bench::Bench bench(hbm_gbps, rounds);
        for (const std::string& section : sections) {
            if (section == "copy") bench.copy();
            if (section == "norm") bench.norm();
            if (section == "embed") bench.embed();
            if (section == "rope") bench.rope_append();
            if (section == "sample") bench.sample();
            if (section == "fill") bench.fill();
        }
        report["hbm_gbps"] = hbm_gbps;
        report["rows"] = bench.rows;
        if (!json.empty()) bench::write_report(json, report);
    } catch (const std::exception& error) {
        std::cerr << "bench_small_ops: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
