#include "profiler/profiler.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <numeric>

#include "base/error.h"
#include "hardware/find_profile.h"
#include "ops/cuda/handles.h"
#include "ops/cuda/small_ops/small_ops.h"
#include "ops/cuda/split_attention/split_attention.h"
#include "ops/cuda/split_gemm/split_gemm.h"
#include "profiler/probe_memory.h"
#include "profiler/timing.h"

namespace dak {

namespace {

using namespace cuda;

constexpr int64_t kLocalBytes = 4 * kGiB;  // many times any L2 cache
constexpr int64_t kRemoteBytes = kGiB + kGiB / 2;
constexpr int64_t kMaxTokens = 4096;
constexpr int64_t kMaxWidth = 28672;
constexpr int64_t kDecodeTokens = 8;
constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;
constexpr double kMicro = 1e-6;
// The split GEMM reads remote atoms in slots of this size (its config.h), and its window counts the
// slots of two kernels, which overlap.
constexpr int64_t kSlot = 16 * kKiB;
constexpr int64_t kProductSlots = 4;
constexpr int64_t kOverlap = 2;

struct Layer {
    int64_t rows, cols;
    int64_t bytes() const { return rows * cols * 2; }
    double flops(int64_t tokens) const {
        return 2.0 * static_cast<double>(rows * cols) * static_cast<double>(tokens);
    }
};

/// The products of a layer of a model with large weights (OPT-30B) and of one with small weights
/// (OPT-6.7B): what a product costs besides its bytes shows in their difference.
constexpr std::array<Layer, 4> kLarge = {
    {{21504, 7168}, {7168, 7168}, {28672, 7168}, {7168, 28672}}};
constexpr std::array<Layer, 4> kSmall = {
    {{12288, 4096}, {4096, 4096}, {16384, 4096}, {4096, 16384}}};
constexpr Layer kSquare = {7168, 7168};

double bytes_of(std::span<const Layer> layers, int copies) {
    double bytes = 0;
    for (const Layer& layer : layers) bytes += static_cast<double>(layer.bytes());
    return bytes * copies;
}

class DeviceBuffer {
  public:
    explicit DeviceBuffer(int64_t bytes) {
        check(cudaMalloc(&memory_, static_cast<size_t>(bytes)), "memory to measure with");
    }
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;
    ~DeviceBuffer() { cudaFree(memory_); }
    void* get() const { return memory_; }

  private:
    void* memory_ = nullptr;
};

class Profiler {
  public:
    Profiler(const SystemInfo& system, const std::string& remote)
        : remote_(remote),
          gpu_(system.gpus.front()),
          memory_(remote, kLocalBytes, kRemoteBytes, stream_),
          machine_(current_gemm_machine()),
          workspace_(machine_),
          input_(memory_.local(kMaxTokens * kMaxWidth * 2)),
          output_(kMaxTokens * kMaxWidth * 2) {
        profile_.name = fmt::format("{} ({})", gpu_.name, remote);
        profile_.gpu = gpu_.name;
        profile_.gpu_uuid = gpu_.uuid;
        profile_.driver = system.driver.version;
        profile_.link = link_of(gpu_, remote);
        profile_.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
        profile_.measured = true;
        profile_.remote = remote;
        profile_.sms = machine_.sms;
        profile_.gpu_memory_bytes = gpu_.memory_bytes;
        const std::optional<int> peer = peer_of(remote);
        profile_.remote_memory_bytes = peer
                                           ? system.gpus.at(static_cast<size_t>(*peer)).memory_bytes
                                           : usable_host_bytes(system);
        profile_.direct_once_tokens = kMaxTokensReadOnce;
        if (const auto preset = preset_of(gpu_.name, remote)) {
            profile_.datasheet = preset->datasheet;
        }
    }

    HardwareProfile measure(const ProfileProgress& progress) {
        const std::array<std::pair<const char*, void (Profiler::*)()>, 8> steps = {{
            {"HBM", &Profiler::measure_local},
            {"remote reads by SMs", &Profiler::measure_direct},
            {"copy engine", &Profiler::measure_copies},
            {"copies beside kernels", &Profiler::measure_contention},
            {"window", &Profiler::measure_window},
            {"large products", &Profiler::measure_maths},
            {"attention", &Profiler::measure_attention},
            {"launches", &Profiler::measure_launches},
        }};
        for (size_t i = 0; i < steps.size(); ++i) {
            progress(steps[i].first, static_cast<double>(i) / steps.size());
            (this->*steps[i].second)();
        }
        progress("", 1);
        return profile_;
    }

  private:
    // A 256-token tile in a cluster of 4 (docs/split-gemm.md).
    static constexpr int64_t kMaxTokensReadOnce = 1024;

    GemmArgs product(const Layer& layer, double ratio, int64_t tokens) {
        GemmArgs args;
        const PackedShape shape = {layer.rows, layer.cols, DType::kBF16};
        args.weight =
            memory_.weight(shape, std::llround(ratio * static_cast<double>(shape.atoms())));
        args.x = input_;
        args.ldx = layer.cols;
        args.tokens = tokens;
        args.y = output_.get();
        args.ldy = layer.rows;
        args.out_features = layer.rows;
        return args;
    }

    using Vary = std::function<void(GemmConfig&)>;

    /// The products of `copies` layers one after the other, as in a decode step.
    Enqueue chain(std::span<const Layer> layers, int copies, int64_t tokens, double ratio = 0,
                  const Vary& vary = nullptr) {
        std::vector<std::pair<GemmArgs, GemmConfig>> products;
        for (int i = 0; i < copies; ++i) {
            for (const Layer& layer : layers) {
                const GemmArgs args = product(layer, ratio, tokens);
                GemmConfig config = choose_gemm_config(shape_of(args), machine_);
                if (vary) vary(config);
                products.emplace_back(args, config);
            }
        }
        return [this, products = std::move(products)](cudaStream_t stream) {
            for (const auto& [args, config] : products) {
                split_gemm(args, config, workspace_, stream);
            }
        };
    }

    void source(const char* field, std::string text) { profile_.sources[field] = std::move(text); }

    /// B_g, and the fixed cost of a product: a chain's time is bytes / B_g + products * cost, and
    /// chains of large and of small products have the one and the other in different parts.
    void measure_local() {
        constexpr int kLargeCopies = 8, kSmallCopies = 16;
        const std::array<int64_t, 5> tokens = {1, kDecodeTokens, 16, 32, 64};
        std::vector<Enqueue> works = {chain(kLarge, kLargeCopies, kDecodeTokens)};
        for (const int64_t n : tokens) works.push_back(chain(kSmall, kSmallCopies, n));
        const std::vector<double> seconds = time_graphs(works, stream_);

        const double large = bytes_of(kLarge, kLargeCopies), small = bytes_of(kSmall, kSmallCopies);
        constexpr double kLargeCount = kLargeCopies * kLarge.size();
        constexpr double kSmallCount = kSmallCopies * kSmall.size();
        const double small_at_8 = seconds[2];
        const double cost =
            (small_at_8 - seconds[0] * small / large) / (kSmallCount - kLargeCount * small / large);
        profile_.local_gbps = large / (seconds[0] - kLargeCount * cost) / kGiga;
        for (size_t i = 0; i < tokens.size(); ++i) {
            const double rest = seconds[i + 1] - small / (profile_.local_gbps * kGiga);
            profile_.kernel_us.push_back(
                {static_cast<double>(tokens[i]), std::max(0.1, rest / kSmallCount / kMicro)});
        }
        // Above 64 tokens the products are other kernels, whose cost is taken to be that at 8.
        profile_.kernel_us.push_back({128, cost / kMicro});
        machine_.local_gbps = profile_.local_gbps;
        source("local_gbps", "measured: slope of chains of decode products, everything local");
        source("kernel_us", "measured: what chains of small products take besides their bytes");
    }

    /// B_h: everything remote, with as many CTAs as it takes.
    void measure_direct() {
        constexpr int kCopies = 6;
        std::vector<Enqueue> works;
        for (const int ctas : {4, 8, 16, 32}) {
            works.push_back(chain({&kSquare, 1}, kCopies, kDecodeTokens, 1.0, [&](GemmConfig& c) {
                c.remote_workers = ctas;
                c.remote_slots = kProductSlots;
            }));
        }
        const std::vector<double> seconds = time_graphs(works, stream_);
        profile_.remote_direct_gbps =
            bytes_of({&kSquare, 1}, kCopies) / std::ranges::min(seconds) / kGiga;
        machine_.remote_gbps = profile_.remote_direct_gbps;
        source("remote_direct_gbps", "measured: decode products whose weights are all remote");
    }

    /// Copies of `count` pieces of the remote tier, enqueued one after the other.
    Enqueue copies(int64_t piece, int64_t count) {
        std::vector<std::pair<std::byte*, std::byte*>> pieces;
        for (int64_t i = 0; i < count; ++i) {
            pieces.emplace_back(memory_.local(piece), memory_.remote(piece));
        }
        return [piece, pieces = std::move(pieces)](cudaStream_t stream) {
            for (const auto& [to, from] : pieces) {
                check(cudaMemcpyAsync(to, from, static_cast<size_t>(piece), cudaMemcpyDefault,
                                      stream),
                      "copy");
            }
        };
    }

    void measure_copies() {
        const std::array<int64_t, 6> pieces = {64 * kKiB, 256 * kKiB, kMiB,
                                               4 * kMiB,  16 * kMiB,  64 * kMiB};
        std::vector<Enqueue> works;
        std::vector<int64_t> counts;
        for (const int64_t piece : pieces) {
            counts.push_back(std::clamp<int64_t>(256 * kMiB / piece, 4, 512));
            works.push_back(copies(piece, counts.back()));
        }
        const std::vector<double> seconds = time_graphs(works, stream_);
        for (size_t i = 0; i < pieces.size(); ++i) {
            const auto bytes = static_cast<double>(pieces[i] * counts[i]);
            profile_.staged_gbps.push_back(
                {static_cast<double>(pieces[i]), bytes / seconds[i] / kGiga});
        }
        source("staged_gbps", "measured: the copy engine, pieces one after the other");
    }

    /// How much longer a chain of local products takes while copies are under way, and these beside
    /// it.
    void measure_contention() {
        constexpr int kCopies = 60;
        constexpr int64_t kPiece = 16 * kMiB;
        const Enqueue kernels = chain(kLarge, kCopies, kDecodeTokens);
        const double alone = bytes_of(kLarge, kCopies) / (profile_.local_gbps * kGiga);
        const double rate = profile_.staged_at(static_cast<double>(kPiece)) * kGiga;
        const Stream side;
        const Event fork, join;
        std::vector<Enqueue> works = {kernels};
        std::vector<double> copied;
        // Copies that end before the kernels do, and copies that go on after them.
        for (const double share : {0.5, 1.8}) {
            const auto count = static_cast<int64_t>(share * alone * rate / kPiece);
            copied.push_back(static_cast<double>(count * kPiece));
            works.push_back([&, pieces = copies(kPiece, count)](cudaStream_t stream) {
                check(cudaEventRecord(fork, stream), "fork");
                check(cudaStreamWaitEvent(side, fork), "fork");
                pieces(side);
                kernels(stream);
                check(cudaEventRecord(join, side), "join");
                check(cudaStreamWaitEvent(stream, join), "join");
            });
        }
        const std::vector<double> seconds = time_graphs(works, stream_);
        // Seconds that a copied byte costs the kernels.
        const double cost = std::max(0.0, seconds[1] - seconds[0]) / copied[0];
        profile_.staging_write_cost = cost * profile_.local_gbps * kGiga;
        source("staging_write_cost", "measured: a chain of products beside the copy engine");
        const HardwareProfile h200 = hardware_preset(peer_of(remote_) ? "h200-peer" : "h200-pcie");
        profile_.staging_slowdown = h200.staging_slowdown;
        source("staging_slowdown", "of " + h200.name);
        // Of `missing` bytes fewer than without kernels, beside kernels that take
        // seconds[0] / (1 - cost * beside) seconds.
        const double missing = rate * seconds[2] - copied[1];
        const double beside = (seconds[0] * rate - missing) / (seconds[0] - missing * cost);
        profile_.staging_contention = std::max(1.0, rate / beside);
        source("staging_contention", "measured: copies beside a chain of products, and after it");
    }

    /// The rates of both tiers at once, at the ratio where both sides end together, with all
    /// numbers of remote CTAs and slots; then with the product's own choice at each window.
    void measure_window() {
        constexpr int kCopies = 4;
        const double ratio =
            profile_.remote_direct_gbps / (profile_.remote_direct_gbps + profile_.local_gbps);
        std::vector<int> ctas = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
        if (peer_of(remote_)) ctas = {2, 4, 8, 12, 16, 24, 32, 48};
        std::vector<Enqueue> works;
        for (const int count : ctas) {
            for (const int slots : {1, 2, 3, 4, 6}) {
                works.push_back(chain(kLarge, kCopies, kDecodeTokens, ratio, [&](GemmConfig& c) {
                    c.remote_workers = count;
                    c.remote_slots = slots;
                    c.local_workers = machine_.sms - count;
                }));
                profile_.window_sweep.push_back({count, slots, kSlot * count * slots, 0, 0});
            }
        }
        std::vector<int64_t> windows;
        for (const int count : ctas) {
            windows.push_back(kOverlap * count * kProductSlots * kSlot);
            machine_.window_bytes = windows.back();
            works.push_back(chain(kLarge, kCopies, kDecodeTokens, ratio));
        }
        const std::vector<double> seconds = time_graphs(works, stream_);
        const double bytes = bytes_of(kLarge, kCopies);
        for (size_t i = 0; i < profile_.window_sweep.size(); ++i) {
            WindowPoint& point = profile_.window_sweep[i];
            point.local_gbps = (1 - ratio) * bytes / seconds[i] / kGiga;
            point.remote_gbps = ratio * bytes / seconds[i] / kGiga;
        }
        const std::span<const double> own =
            std::span(seconds).subspan(profile_.window_sweep.size());
        choose_window(windows, own, bytes);
    }

    /// The smallest window with which the product comes within half a percent of its best.
    void choose_window(const std::vector<int64_t>& windows, std::span<const double> seconds,
                       double bytes) {
        constexpr double kEqual = 1.005;
        const double fastest = std::ranges::min(seconds);
        size_t chosen = 0;
        while (seconds[chosen] > kEqual * fastest) ++chosen;
        profile_.window_bytes = windows[chosen];
        machine_.window_bytes = windows[chosen];
        profile_.window_sum_gbps = bytes / seconds[chosen] / kGiga;
        source("window_bytes", "measured: the smallest with which products lose nothing");
    }

    void measure_maths() {
        const std::array<int64_t, 6> tokens = {128, 256, 512, 1024, 2048, kMaxTokens};
        std::vector<Enqueue> works;
        for (const int64_t n : tokens) works.push_back(chain(kLarge, 1, n));
        const std::vector<double> seconds = time_graphs(works, stream_);
        const double fixed = kLarge.size() * interpolate(profile_.kernel_us, kMaxTokens) * kMicro;
        for (size_t i = 0; i < tokens.size(); ++i) {
            double flops = 0;
            for (const Layer& layer : kLarge) flops += layer.flops(tokens[i]);
            profile_.gemm_tflops.push_back(
                {static_cast<double>(tokens[i]), flops / (seconds[i] - fixed) / kTera});
        }
        source("gemm_tflops", "measured: the products of a layer with large weights, all local");
        source("direct_once_tokens", "the widest product whose clusters read a weight once");
    }

    /// Decode attention over short and long contexts, a fixed cost and a rate; and over very many
    /// short ones, whose number is what costs.
    void measure_attention() {
        constexpr int64_t kHeads = 56, kHeadDim = 128;
        constexpr int64_t kMany = 512;
        constexpr std::array<std::pair<int64_t, int64_t>, 3> kCases = {
            {{kDecodeTokens, 64}, {kDecodeTokens, 4096}, {kMany, 64}}};
        constexpr int kLayers = 16;
        AttentionMachine machine;
        machine.sms = machine_.sms;
        const KvPageLayout layout = {kHeads, kHeadDim, DType::kBF16};
        std::vector<double> bytes;
        std::vector<std::unique_ptr<AttentionWorkspace>> workspaces;
        std::vector<std::unique_ptr<DeviceBuffer>> tables;
        std::vector<Enqueue> works;
        for (const auto& [batch, length] : kCases) {
            const int64_t pages = batch * length / kPageTokens;
            const AttentionShape shape = {.num_heads = kHeads,
                                          .num_kv_heads = kHeads,
                                          .head_dim = kHeadDim,
                                          .max_sequences = batch,
                                          .max_pages = length / kPageTokens};
            const AttentionConfig config = choose_attention_config(shape, machine);
            bytes.push_back(static_cast<double>(pages * layout.page_bytes()));
            std::vector<int32_t> table(static_cast<size_t>(pages));
            std::iota(table.begin(), table.end(), 0);
            const std::vector<int32_t> lengths(static_cast<size_t>(batch),
                                               static_cast<int32_t>(length));
            AttentionArgs args;
            args.batch.sequences = batch;
            args.batch.lengths = upload(lengths, tables);
            args.batch.pages = upload(table, tables);
            args.batch.pages_stride = shape.max_pages;
            args.num_heads = kHeads;
            args.scale = 1 / std::sqrt(static_cast<float>(kHeadDim));
            args.q = input_;
            args.ldq = kHeads * kHeadDim;
            args.out = output_.get();
            args.ldo = kHeads * kHeadDim;
            args.kv.layout = layout;
            args.kv.num_local_pages = pages;
            std::vector<std::byte*> caches;
            for (int i = 0; i < kLayers; ++i)
                caches.push_back(memory_.local(pages * layout.page_bytes()));
            args.kv.local = caches.front();
            auto& workspace =
                *workspaces.emplace_back(std::make_unique<AttentionWorkspace>(shape, config));
            plan_decode_attention(args, config, workspace, stream_);
            works.push_back([args, caches, config, &workspace](cudaStream_t stream) {
                AttentionArgs layer = args;
                for (std::byte* const cache : caches) {
                    layer.kv.local = cache;
                    decode_attention(layer, config, workspace, stream);
                }
            });
        }
        const std::vector<double> seconds = time_graphs(works, stream_);
        const double rate = kLayers * (bytes[1] - bytes[0]) / (seconds[1] - seconds[0]);
        profile_.attention_local_gbps = rate / kGiga;
        profile_.attention_us = std::max(0.1, (seconds[0] / kLayers - bytes[0] / rate) / kMicro);
        profile_.attention_item_us =
            (seconds[2] / kLayers / kMicro - profile_.attention_us) / (kMany * kHeads);
        source("attention_item_us", "measured: decode attention of 512 sequences of 64 tokens");
        source("attention_local_gbps", "measured: decode attention, slope from 64 to 4096 tokens");
        source("attention_us", "measured: decode attention of 64 tokens besides its bytes");
        const HardwareProfile h200 = hardware_preset("h200-pcie");
        profile_.attention_tflops = h200.attention_tflops / h200.gemm_tflops.back().value *
                                    profile_.gemm_tflops.back().value;
        source("attention_tflops", "of h200-pcie, times the rate of large products");
    }

    const int32_t* upload(const std::vector<int32_t>& values,
                          std::vector<std::unique_ptr<DeviceBuffer>>& owners) {
        const auto bytes = static_cast<int64_t>(values.size() * sizeof(int32_t));
        owners.push_back(std::make_unique<DeviceBuffer>(bytes));
        check(cudaMemcpy(owners.back()->get(), values.data(), static_cast<size_t>(bytes),
                         cudaMemcpyHostToDevice),
              "upload");
        return static_cast<const int32_t*>(owners.back()->get());
    }

    void measure_launches() {
        constexpr int kNorms = 300;
        constexpr int64_t kManyRows = 512;
        NormArgs args;
        args.x = input_;
        args.ldx = kSquare.cols;
        args.out = output_.get();
        args.ldo = kSquare.cols;
        args.width = kSquare.cols;
        const auto norms = [&args](int64_t rows) -> Enqueue {
            return [args, rows](cudaStream_t stream) {
                NormArgs some = args;
                some.rows = rows;
                for (int i = 0; i < kNorms; ++i) norm(some, stream);
            };
        };
        const std::array<Enqueue, 2> works = {norms(kDecodeTokens), norms(kManyRows)};
        const std::vector<double> seconds = time_graphs(works, stream_);
        profile_.small_kernel_us = seconds[0] / kNorms / kMicro;
        const auto bytes = static_cast<double>((kManyRows - kDecodeTokens) * kSquare.cols * 2 * 2);
        profile_.small_kernel_gbps = bytes * kNorms / (seconds[1] - seconds[0]) / kGiga;
        profile_.step_us = launch_overhead(works[0], stream_, 20) / kMicro;
        source("small_kernel_gbps", "measured: chains of norms of 8 and of 512 rows");
        source("small_kernel_us", "measured: a chain of norms");
        source("step_us", "measured: a captured chain, time on the host less time on the GPU");
        source("gpu_memory_bytes", "the driver");
        source("remote_memory_bytes",
               peer_of(remote_) ? "the peer's size" : "what this process could get when measured");
        source("datasheet", "of the preset");
    }

    const std::string remote_;
    const GpuInfo& gpu_;
    Stream stream_;
    ProbeMemory memory_;
    GemmMachine machine_;
    GemmWorkspace workspace_;
    const void* input_;
    DeviceBuffer output_;
    HardwareProfile profile_;
};

}  // namespace

HardwareProfile measure_hardware(const SystemInfo& system, const std::string& remote,
                                 const ProfileProgress& progress) {
    require(!system.gpus.empty(), "there is no GPU to measure here: the NVIDIA driver shows none");
    progress("memory", 0);
    check(cudaSetDevice(0), "first GPU");
    return Profiler(system, remote).measure(progress);
}

}  // namespace dak
