// Split attention against torch's best backend and the link. See docs/split-attention.md for what
// the sections show and how they are run.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>
#include <random>

#include "fill.h"
#include "measure.h"
#include "memory/arena.h"
#include "memory/tier.h"
#include "ops/cuda/check.h"
#include "ops/cuda/split_attention/split_attention.h"
#include "remote_tier.h"

namespace dak::bench {
namespace {

using cuda::AttentionArgs;
using cuda::AttentionConfig;
using cuda::AttentionMachine;
using cuda::AttentionShape;
using cuda::AttentionWorkspace;
using cuda::check;

constexpr double kDensePeakTflops = 989;

struct AttentionBenchCase {
    std::string kind;  ///< decode or prefill
    int64_t batch, heads, kv_heads, head_dim, len;
    double ratio = 0;
    int64_t past = 0;    ///< prefill: tokens cached before the `len` new ones
    bool copies = true;  ///< prefill: of remote pages, made once; otherwise they are read in place

    int64_t tokens() const { return len + past; }
    double kv_bytes() const {
        return 4.0 * static_cast<double>(batch * kv_heads * head_dim * tokens());
    }
    double flops() const {  // causal: half of the new tokens' square
        const auto n = static_cast<double>(len);
        return 4.0 * static_cast<double>(batch * heads * head_dim) *
               (n * n / 2 + n * static_cast<double>(past));
    }
    /// Different caches to go through, so that none is in L2, and operations of a graph.
    int64_t sets() const {
        return std::clamp<int64_t>(static_cast<int64_t>(2e9 / kv_bytes()), 2, 32);
    }
    int operations() const {
        if (kind == "prefill") return flops() > 2e12 ? 2 : 8;
        if (ratio > 0.02) return kv_bytes() * ratio > 5e8 ? 2 : 8;
        return kv_bytes() > 4e9 ? 4 : 32;
    }
};

/// Everything local.
std::vector<AttentionBenchCase> local_cases() {
    std::vector<AttentionBenchCase> all;
    const auto decode = [&](int64_t batch, int64_t heads, int64_t kv_heads,
                            std::initializer_list<int64_t> lengths, int64_t head_dim = 128) {
        for (const int64_t len : lengths) {
            all.push_back({"decode", batch, heads, kv_heads, head_dim, len});
        }
    };
    decode(8, 56, 56, {64, 256, 1024, 4096});
    decode(64, 56, 56, {64, 256, 1024, 4096});
    decode(512, 56, 56, {64, 256, 1024});
    decode(8, 32, 8, {64, 256, 1024, 4096, 16384});
    decode(64, 32, 8, {64, 256, 1024, 4096});
    decode(64, 64, 8, {1024});
    decode(8, 32, 32, {1024});
    decode(1, 32, 8, {16384});
    decode(64, 32, 32, {1024}, 80);
    for (const int64_t kv_heads : {32, 8}) {
        for (const int64_t len : {512, 1024, 2048, 4096, 8192, 16384}) {
            all.push_back({"prefill", 1, 32, kv_heads, 128, len});
        }
    }
    all.push_back({"prefill", 8, 32, 8, 128, 1024});
    all.push_back({"prefill", 1, 32, 8, 64, 4096});
    all.push_back({"prefill", 1, 16, 8, 256, 4096});
    all.push_back({"prefill", 1, 32, 8, 128, 2048, 0, 8192});
    return all;
}

/// Pages in both tiers. A peer's link is wide enough for ratios in between to matter, and its
/// machine is not the one that the local cases were measured on: each shape has its ratio 0.
std::vector<AttentionBenchCase> split_cases(const std::string& remote) {
    const bool peer = peer_of(remote).has_value();
    std::vector<double> decode = {0.01, 0.1, 0.5, 1.0}, prefill = {0.01, 0.1, 0.5};
    if (peer) decode = {0, 0.02, 0.05, 0.07, 0.08, 0.1, 0.2, 0.3, 0.5, 1.0};
    if (peer) prefill = {0, 0.01, 0.1, 0.5, 1.0};
    std::vector<AttentionBenchCase> all;
    for (const double ratio : decode) {
        all.push_back({"decode", 64, 56, 56, 128, 1024, ratio});
        all.push_back({"decode", 64, 32, 8, 128, 1024, ratio});
    }
    for (const double ratio : prefill) {
        all.push_back({"prefill", 1, 32, 8, 128, 2048, ratio, 8192});
        if (ratio > 0) all.push_back({"prefill", 1, 32, 8, 128, 2048, ratio, 8192, false});
    }
    return all;
}

/// Device array of the values.
template <typename T>
class DeviceValues {
  public:
    explicit DeviceValues(const std::vector<T>& values) {
        void* memory = nullptr;
        check(cudaMalloc(&memory, values.size() * sizeof(T)), "benchmark");
        data_ = static_cast<T*>(memory);
        check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyDefault),
              "benchmark");
    }
    DeviceValues(const DeviceValues&) = delete;
    DeviceValues& operator=(const DeviceValues&) = delete;
    ~DeviceValues() { cudaFree(data_); }
    const T* data() const { return data_; }

  private:
    T* data_;
};

/// Memory that the cases carve their caches out of.
struct Pools {
    const std::string tier;
    const HardwareProfile profile;
    Arena local = Arena::device("KV", int64_t{34} * kGiB);
    Arena remote = Arena::remote(tier, "remote KV", int64_t{2} * kGiB);
    Arena rows = Arena::device("activations", int64_t{3} * kGiB);
    AttentionMachine machine = cuda::current_attention_machine();
    std::byte *local_base, *remote_base, *rows_base;
    cudaStream_t stream = nullptr;

    explicit Pools(const std::string& remote_tier)
        : tier(remote_tier),
          profile(remote_profile(tier)),
          local_base(local.allocate(local.capacity_bytes())),
          remote_base(remote.allocate(remote.capacity_bytes())),
          rows_base(rows.allocate(rows.capacity_bytes())) {
        machine.remote_gbps = profile.remote_direct_gbps;
        machine.window_bytes = profile.window_bytes;
        check(cudaStreamCreate(&stream), "stream");
        fill_random(local_base, local.capacity_bytes() / 2, 1, 1.0f, stream);
        fill_random(remote_base, remote.capacity_bytes() / 2, 2, 1.0f, stream);
        fill_random(rows_base, rows.capacity_bytes() / 2, 3, 1.0f, stream);
        check(cudaStreamSynchronize(stream), "fill");
    }
};

class CaseRun {
  public:
    /// `slots` of the decode kernel's ring; 0: as chosen.
    CaseRun(Pools& pools, const AttentionBenchCase& c, int rounds, int slots)
        : pools_(pools),
          c_(c),
          rounds_(rounds),
          layout_{c.kv_heads, c.head_dim, DType::kBF16},
          sequence_pages_(ceil_div(c.tokens(), kPageTokens)),
          remote_pages_(std::llround(c.ratio * static_cast<double>(c.batch * sequence_pages_))),
          local_pages_(c.batch * sequence_pages_ - remote_pages_),
          lengths_(
              std::vector<int32_t>(static_cast<size_t>(c.batch), static_cast<int32_t>(c.tokens()))),
          starts_(query_starts()),
          table_(page_table()),
          shape_{.num_heads = c.heads,
                 .num_kv_heads = c.kv_heads,
                 .head_dim = c.head_dim,
                 .dtype = DType::kBF16,
                 .max_sequences = c.batch,
                 .max_pages = sequence_pages_,
                 .remote_pages = remote_pages_ > 0,
                 .copied_pages = c.kind == "prefill" && c.copies ? remote_pages_ : 0},
          config_(choose(shape_, pools.machine, slots)),
          workspace_(shape_, config_) {}

    Json row(const Json& peer) {
        const bool decode = c_.kind == "decode";
        if (decode) {
            plan_decode_attention(args(0), config_, workspace_, pools_.stream);
            check(cudaStreamSynchronize(pools_.stream), "plan");
        }
        const auto contestant = [&](bool programmatic) {
            return Contestant{
                .name = c_.kind,
                .operations = c_.operations(),
                .enqueue =
                    [this, decode, programmatic](int i, cudaStream_t stream) {
                        const bool early = programmatic && i > 0;
                        if (decode) {
                            decode_attention(args(i), config_, workspace_, stream, early);
                        } else {
                            prefill_attention(args(i), c_.len, config_, workspace_, stream, early);
                        }
                    },
                .finish = {}};
        };
        const std::vector<double> us =
            measure({contestant(false), contestant(true)}, pools_.stream, rounds_);
        const double remote = static_cast<double>(remote_pages_ * layout_.page_bytes());
        const double local = c_.kv_bytes() - remote;
        const double peer_us = peer.is_null() ? 0 : peer["us"].get<double>();
        const double light_speed = std::max({local / pools_.profile.local_gbps / 1e3,
                                             remote / pools_.machine.remote_gbps / 1e3,
                                             decode ? 0 : c_.flops() / kDensePeakTflops / 1e6});
        print(us, peer_us, peer, remote);
        return {{"section", c_.kind},
                {"batch", c_.batch},
                {"heads", c_.heads},
                {"kv_heads", c_.kv_heads},
                {"head_dim", c_.head_dim},
                {"len", c_.len},
                {"past", c_.past},
                {"dtype", "bf16"},
                {"ratio", c_.ratio},
                {"copies", c_.copies},
                {"tier", remote_pages_ > 0 ? pools_.tier : "local"},
                {"us", rounded(us[0])},
                {"chain_us", rounded(us[1])},
                {"gbps", rounded(c_.kv_bytes() / us[0] / 1e3)},
                {"chain_gbps", rounded(c_.kv_bytes() / us[1] / 1e3)},
                {"gbps_remote", rounded(remote / us[1] / 1e3)},
                {"tflops", decode ? 0 : rounded(c_.flops() / us[0] / 1e6)},
                {"light_speed_us", rounded(light_speed)},
                {"ref", peer.is_null() ? "" : "torch " + peer["backend"].get<std::string>()},
                {"ref_us", rounded(peer_us)},
                {"config", config_.to_string()}};
    }

  private:
    static AttentionConfig choose(const AttentionShape& shape, const AttentionMachine& machine,
                                  int slots) {
        AttentionConfig config = choose_attention_config(shape, machine);
        if (slots > 0) config.slots = slots;
        return config;
    }

    static double rounded(double value) {
        if (value == 0) return 0;
        const double unit = std::pow(10.0, std::floor(std::log10(value)) - 3);
        return std::round(value / unit) * unit;
    }

    void print(const std::vector<double>& us, double peer_us, const Json& peer,
               double remote) const {
        const bool decode = c_.kind == "decode";
        const auto rate = [&](double t) {
            return t == 0 ? 0 : decode ? c_.kv_bytes() / t / 1e3 : c_.flops() / t / 1e6;
        };
        std::printf(
            "%-7s B%-3d %2d/%-2d D%-3d L%-5d +%-5d r%-4.2f | %9.2f us %5.0f | chain %9.2f us "
            "%5.0f %s | link %4.1f | peer %9.2f us %5.0f x%.3f %s\n",
            c_.kind.c_str(), int(c_.batch), int(c_.heads), int(c_.kv_heads), int(c_.head_dim),
            int(c_.len), int(c_.past), c_.ratio, us[0], rate(us[0]), us[1], rate(us[1]),
            decode ? "GB/s" : "TFLOP/s", remote / us[1] / 1e3, peer_us, rate(peer_us),
            peer_us / us[0], peer.is_null() ? "" : peer["backend"].get<std::string>().c_str());
        std::fflush(stdout);
    }

    std::vector<int32_t> query_starts() const {
        std::vector<int32_t> starts;
        for (int64_t s = 0; s <= c_.batch; ++s) starts.push_back(static_cast<int32_t>(s * c_.len));
        return starts;
    }

    std::vector<int32_t> page_table() const {
        std::vector<int32_t> pages(static_cast<size_t>(c_.batch * sequence_pages_));
        std::iota(pages.begin(), pages.end(), 0);
        std::shuffle(pages.begin(), pages.end(), std::mt19937(5));
        return pages;
    }

    AttentionArgs args(int i) const {
        const auto cycle = [i](std::byte* base, int64_t capacity, int64_t bytes) {
            const int64_t sets = bytes == 0 ? 1 : std::max<int64_t>(1, capacity / bytes);
            return base + i % sets * bytes;
        };
        const int64_t width = c_.heads * c_.head_dim;
        const int64_t matrix =
            round_up(c_.batch * (c_.kind == "decode" ? 1 : c_.len) * width * 2, 1024);
        AttentionArgs args;
        args.batch = {.sequences = c_.batch,
                      .lengths = lengths_.data(),
                      .query_starts = c_.kind == "decode" ? nullptr : starts_.data(),
                      .pages = table_.data(),
                      .pages_stride = sequence_pages_};
        args.kv.layout = layout_;
        args.kv.local = cycle(pools_.local_base, pools_.local.capacity_bytes(),
                              local_pages_ * layout_.page_bytes());
        args.kv.remote = remote_pages_ == 0
                             ? nullptr
                             : cycle(pools_.remote_base, pools_.remote.capacity_bytes(),
                                     remote_pages_ * layout_.page_bytes());
        args.kv.num_local_pages = local_pages_;
        args.num_heads = c_.heads;
        args.scale = 1.0f / std::sqrt(static_cast<float>(c_.head_dim));
        // A layer's output is the next one's q, as far as dependencies go.
        args.q = pools_.rows_base + i % 2 * matrix;
        args.ldq = width;
        args.out = pools_.rows_base + (i + 1) % 2 * matrix;
        args.ldo = width;
        return args;
    }

    Pools& pools_;
    AttentionBenchCase c_;
    int rounds_;
    KvPageLayout layout_;
    int64_t sequence_pages_, remote_pages_, local_pages_;
    DeviceValues<int32_t> lengths_, starts_, table_;
    AttentionShape shape_;
    AttentionConfig config_;
    AttentionWorkspace workspace_;
};

bool same(const AttentionBenchCase& c, const Json& peer) {
    return peer["kind"] == c.kind && peer["batch"] == c.batch && peer["heads"] == c.heads &&
           peer["kv_heads"] == c.kv_heads && peer["head_dim"] == c.head_dim && peer["len"] == c.len;
}

Json peer_cases() {
    Json list = Json::array();
    for (const AttentionBenchCase& c : local_cases()) {
        if (c.past > 0) continue;
        list.push_back({{"kind", c.kind},
                        {"batch", c.batch},
                        {"heads", c.heads},
                        {"kv_heads", c.kv_heads},
                        {"head_dim", c.head_dim},
                        {"len", c.len},
                        {"sets", c.sets()},
                        {"operations", c.operations()}});
    }
    return list;
}

}  // namespace
}  // namespace dak::bench

int main(int argc, char** argv) {
    using namespace dak;
    CLI::App app{"Benchmark of split attention"};
    std::string remote = "host", json, commit = "unknown", peer_file, only;
    int rounds = 7, slots = 0;
    bool list = false;
    app.add_flag("--list", list, "Print the cases of the peer as JSON and end");
    app.add_option("--peer", peer_file, "Times of the peer, from sdpa_peer.py");
    app.add_option("--remote", remote, "The remote tier: host or peer:N");
    app.add_option("--only", only, "decode, prefill, or split: those with a remote tier");
    app.add_option("--slots", slots, "Of the decode kernel's ring instead of those chosen");
    app.add_option("--rounds", rounds, "Samples of each measurement");
    app.add_option("--json", json, "File for the results");
    app.add_option("--commit", commit, "What to record as the commit measured");
    CLI11_PARSE(app, argc, argv);

    try {
        if (list) {
            std::cout << bench::peer_cases().dump() << "\n";
            return 0;
        }
        Json peers = Json::array();
        if (!peer_file.empty()) std::ifstream(peer_file) >> peers;
        bench::Pools pools(remote);
        Json report = bench::report_head("attention", commit);
        report["remote"] = remote;
        std::vector<bench::AttentionBenchCase> cases;
        if (only != "split") cases = bench::local_cases();
        std::ranges::copy(bench::split_cases(remote), std::back_inserter(cases));
        for (const bench::AttentionBenchCase& c : cases) {
            if (!only.empty() && only != "split" && only != c.kind) continue;
            Json peer;
            for (const Json& candidate : peers) {
                if (c.ratio == 0 && c.past == 0 && bench::same(c, candidate)) peer = candidate;
            }
            report["rows"].push_back(bench::CaseRun(pools, c, rounds, slots).row(peer));
        }
        if (!json.empty()) bench::write_report(json, report);
    } catch (const std::exception& error) {
        std::cerr << "bench_attention: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
