#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>

#include "gemm_bench.h"
#include "memory/tier.h"
#include "ops/cuda/staging.h"

// Weights in two tiers: chains of a model's layers, the window, congestion, alignment, multicast,
// amplification.

namespace dak::bench {

using namespace dak::cuda;

namespace {

enum class Transport { kDirect, kStaged };

struct Chain {
    Contestant contestant;
    double bytes = 0, remote_bytes = 0;
};

/// The linear layers of a model one after the other, each reading what the one before wrote.
Chain chain_of(Bench& bench, const Model& model, int64_t tokens, double ratio, Transport transport,
               const GemmSwitches& switches = {},
               const std::function<void(GemmConfig&)>& vary = nullptr) {
    auto products = std::make_shared<std::vector<GemmArgs>>();
    auto configs = std::make_shared<std::vector<GemmConfig>>();
    Chain chain;
    int64_t largest = 0;
    for (int i = 0; i < model.layers; ++i) {
        for (const Layer& layer : model.shapes) {
            const int parity = static_cast<int>(products->size() % 2);
            GemmArgs args = bench.product(layer, ratio, tokens, 0);
            args.staged = transport == Transport::kStaged;
            args.x = bench.activations[parity];
            args.y = bench.activations[1 - parity];
            // Rows are as long as the previous product made them; the first k columns are read.
            args.ldx = products->empty() ? layer.k : products->back().ldy;
            GemmConfig config = choose_gemm_config(shape_of(args), bench.machine, switches);
            if (vary) vary(config);
            chain.bytes += static_cast<double>(args.weight.shape.bytes());
            chain.remote_bytes += static_cast<double>(args.weight.remote_bytes());
            largest = std::max(largest, args.weight.remote_bytes());
            products->push_back(args);
            configs->push_back(config);
        }
    }
    chain.contestant.name = model.name;
    chain.contestant.operations = static_cast<int>(products->size());
    if (transport == Transport::kDirect || largest == 0) {
        chain.contestant.enqueue = [&bench, products, configs](int i, cudaStream_t stream) {
            const auto index = static_cast<size_t>(i);
            split_gemm((*products)[index], (*configs)[index], bench.workspace, stream);
        };
        return chain;
    }
    auto ring = std::make_shared<StagingRing>(largest, 4);
    chain.contestant.enqueue = [&bench, products, configs, ring](int i, cudaStream_t stream) {
        const auto index = static_cast<size_t>(i);
        if (i == 0) ring->begin(stream);
        GemmArgs args = (*products)[index];
        args.weight = ring->stage(args.weight, stream);
        split_gemm(args, (*configs)[index], bench.workspace, stream);
        ring->release(stream);
    };
    chain.contestant.finish = [ring](cudaStream_t stream) { ring->end(stream); };
    return chain;
}

/// Adds a chain's row: bytes and time are those of the whole chain.
void report_chain(Bench& bench, const std::string& section, const Chain& chain, int64_t tokens,
                  double ratio, const std::string& tier, double us_per_operation,
                  const std::string& config) {
    const double us = us_per_operation * chain.contestant.operations;
    add_row(bench,
            {.section = section,
             .n = tokens,
             .ratio = ratio,
             .tier = tier,
             .us = us,
             .local_bytes = chain.bytes - chain.remote_bytes,
             .remote_bytes = chain.remote_bytes,
             .link_bytes = chain.remote_bytes,
             .config = std::string(chain.contestant.name) + (config.empty() ? "" : ", ") + config});
    std::printf("%-10s N%-4ld r %6.2f%% %-14s %9.1f us  EB %5.0f GB/s  link %5.1f GB/s  %s\n",
                chain.contestant.name.c_str(), tokens, ratio * 100, tier.c_str(), us,
                chain.bytes / us / 1e3, chain.remote_bytes / us / 1e3, config.c_str());
    std::fflush(stdout);
}

/// The row of one product with `ratio` of its weight remote, every remote byte read once.
Row split_row(const std::string& section, Layer layer, int64_t tokens, double ratio,
              const std::string& tier, double us, const std::string& config) {
    const double remote = remote_bytes(layer, ratio);
    return {.section = section,
            .m = layer.m,
            .n = tokens,
            .k = layer.k,
            .ratio = ratio,
            .tier = tier,
            .us = us,
            .local_bytes = weight_bytes(layer) - remote,
            .remote_bytes = remote,
            .link_bytes = remote,
            .config = config};
}

/// What to vary on a link, around the ratio at which both tiers end together: 1.1% over PCIe, 7%
/// over NVLink.
struct Sweep {
    std::vector<double> splits, window, congestion, workers;
    double aligned;
    std::vector<int> window_ctas, worker_counts;
};

const Sweep& sweep_of(const Bench& bench) {
    static const Sweep host = {
        .splits = {0.0, 0.0025, 0.005, 0.0075, 0.01, 0.0105, 0.0125, 0.015, 0.02, 0.05, 0.1},
        .window = {0.01, 0.02},
        .congestion = {0.005, 0.01, 0.02},
        .workers = {0.0075, 0.01, 0.0125, 0.02},
        .aligned = 0.01,
        .window_ctas = {1, 2, 4, 8, 16, 32},
        .worker_counts = {1, 2, 3, 4, 6, 8, 12}};
    static const Sweep peer = {
        .splits = {0.0, 0.02, 0.04, 0.06, 0.07, 0.08, 0.10, 0.15, 0.2, 0.3, 0.5, 1.0},
        .window = {0.07, 0.1},
        .congestion = {0.02, 0.05, 0.07, 0.1},
        .workers = {0.05, 0.07, 0.08, 0.10},
        .aligned = 0.07,
        .window_ctas = {4, 8, 16, 24, 32, 48},
        .worker_counts = {8, 12, 16, 20, 24, 32, 48}};
    return peer_of(bench.remote) ? peer : host;
}

/// A share that makes every transport link-bound, so that time tells the bytes; nothing where the
/// maths of so many tokens takes longer than the link needs for all of the weight.
std::optional<double> link_bound_share(const Bench& bench, int64_t tokens) {
    if (!peer_of(bench.remote)) return tokens <= 256 ? 0.2 : tokens <= 1024 ? 0.3 : 0.6;
    if (tokens > 1024) return {};
    return tokens <= 256 ? 0.4 : tokens <= 512 ? 0.7 : 1.0;
}

}  // namespace

void bench_chains(Bench& bench, const std::vector<int64_t>& tokens) {
    std::printf("\n== chains, everything local\n");
    for (const Model& model : kModels) {
        for (const int64_t n : tokens) {
            const Chain chain = chain_of(bench, model, n, 0, Transport::kDirect);
            const auto us = measure({chain.contestant}, bench.stream, bench.rounds);
            report_chain(bench, "chains", chain, n, 0, "local", us[0], "");
        }
    }
}

void bench_chain_variants(Bench& bench, const std::vector<int64_t>& tokens) {
    std::printf("\n== chains with other rings, and without clusters that split K: GB/s\n");
    for (const Model& model : kModels) {
        for (const int64_t n : tokens) {
            std::printf("%-10s N%-3ld", model.name, n);
            for (const bool split_k : {true, false}) {
                std::vector<Contestant> contestants;
                const std::pair<int, int> rings[] = {{0, 0}, {4, 3}, {5, 3}, {6, 3},
                                                     {8, 3}, {6, 6}, {8, 5}, {9, 4}};
                double bytes = 0;
                for (const auto& [weights, x] : rings) {
                    const auto vary = [&](GemmConfig& c) {
                        if (weights > 0 && c.cluster_use != ClusterUse::kSplitK) {
                            c.weight_slots = weights;
                            c.x_slots = x;
                        }
                        if (!split_k && c.cluster_use == ClusterUse::kSplitK) {
                            c.cluster_use = ClusterUse::kNone;
                            c.cluster = 1;
                            c.local_workers = bench.machine.sms;
                        }
                    };
                    const Chain chain = chain_of(bench, model, n, 0, Transport::kDirect, {}, vary);
                    bytes = chain.bytes;
                    contestants.push_back(chain.contestant);
                }
                const auto us = measure(contestants, bench.stream, 3);
                std::printf(split_k ? " split K:" : " | no split:");
                for (size_t i = 0; i < us.size(); ++i) {
                    std::printf(" %d+%d %.0f", rings[i].first, rings[i].second,
                                bytes / (us[i] * contestants[i].operations) / 1e3);
                }
            }
            std::printf("\n");
            std::fflush(stdout);
        }
    }
}

void bench_splits(Bench& bench) {
    std::printf("\n== chains, split between the tiers; transports\n");
    const Model& model = kModels[0];
    for (const double ratio : sweep_of(bench).splits) {
        const Chain direct = chain_of(bench, model, 8, ratio, Transport::kDirect);
        const Chain staged = chain_of(bench, model, 8, ratio, Transport::kStaged);
        const auto us = measure({direct.contestant, staged.contestant}, bench.stream,
                                ratio >= 0.05 ? 3 : bench.rounds);
        report_chain(bench, "splits", direct, 8, ratio, bench.remote + " direct", us[0], "");
        report_chain(bench, "splits", staged, 8, ratio, bench.remote + " staged", us[1], "");
    }
}

void bench_window(Bench& bench) {
    std::printf("\n== window: remote CTAs x reads of 16 KiB in flight, 28672x7168, N=8\n");
    const Layer layer{28672, 7168};
    for (const double ratio : sweep_of(bench).window) {
        std::vector<GemmConfig> configs;
        std::vector<Contestant> contestants;
        const int operations = operations_for(bench, layer, 8, ratio);
        for (const int ctas : sweep_of(bench).window_ctas) {
            for (int slots = 1; slots <= 6; ++slots) {
                GemmConfig config = choose_gemm_config(shape_for(layer, 8, ratio), bench.machine);
                config.remote_workers = ctas;
                config.local_workers = bench.machine.sms - ctas;
                config.remote_slots = slots;
                configs.push_back(config);
                contestants.push_back(
                    repeated(bench, "window", layer, ratio, 8, operations, config));
            }
        }
        const auto us = measure(contestants, bench.stream, 3);
        for (size_t i = 0; i < configs.size(); ++i) {
            if (i % 6 == 0)
                std::printf("r %.1f%% %2d CTAs:", ratio * 100, configs[i].remote_workers);
            std::printf("  %d: %7.1f us %5.0f GB/s", configs[i].remote_slots, us[i],
                        weight_bytes(layer) / us[i] / 1e3);
            if (i % 6 == 5) std::printf("\n");
            add_row(bench, split_row("window", layer, 8, ratio, bench.remote + " direct", us[i],
                                     configs[i].to_string()));
        }
    }
}

void bench_congestion(Bench& bench) {
    std::printf("\n== congestion: window on and off, OPT-30B chain, N=8\n");
    for (const double ratio : sweep_of(bench).congestion) {
        for (const bool on : {true, false}) {
            GemmSwitches switches;
            switches.window = on;
            const Chain chain = chain_of(bench, kModels[0], 8, ratio, Transport::kDirect, switches);
            const auto us = measure({chain.contestant}, bench.stream, 3);
            report_chain(bench, "congestion", chain, 8, ratio, bench.remote + " direct", us[0],
                         on ? "window on" : "window off");
        }
    }
    std::printf("\n== the same by matrix, where both tiers end together: GB/s, on | off\n");
    const double ratio =
        bench.machine.remote_gbps / (bench.machine.remote_gbps + bench.machine.local_gbps);
    const Layer layers[] = {{7168, 7168}, {28672, 7168}, {7168, 28672},
                            {4096, 4096}, {16384, 4096}, {4096, 16384}};
    for (const Layer& layer : layers) {
        const int operations = operations_for(bench, layer, 8, ratio);
        std::vector<Contestant> contestants;
        std::vector<GemmConfig> configs;
        for (const bool on : {true, false}) {
            GemmSwitches switches;
            switches.window = on;
            configs.push_back(
                choose_gemm_config(shape_for(layer, 8, ratio), bench.machine, switches));
            contestants.push_back(
                repeated(bench, "congestion", layer, ratio, 8, operations, configs.back()));
        }
        const auto us = measure(contestants, bench.stream, 3);
        std::printf("%5ldx%-5ld %5.0f | %5.0f  x%.2f\n", layer.m, layer.k,
                    weight_bytes(layer) / us[0] / 1e3, weight_bytes(layer) / us[1] / 1e3,
                    us[1] / us[0]);
        std::fflush(stdout);
        for (size_t i = 0; i < configs.size(); ++i) {
            add_row(bench,
                    split_row("congestion-shapes", layer, 8, ratio, bench.remote + " direct", us[i],
                              fmt::format("window {}, {}", i == 0 ? "on" : "off",
                                          configs[i].to_string())));
        }
    }
}

void bench_remote_workers(Bench& bench) {
    std::printf("\n== remote workers x reads of 16 KiB in flight, OPT-30B chain, N=8: GB/s\n");
    const std::vector<int> slots = {2, 3, 4, 5, 6, 7};
    for (const double ratio : sweep_of(bench).workers) {
        std::vector<Chain> chains = {chain_of(bench, kModels[0], 8, ratio, Transport::kDirect)};
        std::vector<std::string> names = {"own choice"};
        for (const int workers : sweep_of(bench).worker_counts) {
            for (const int reads : slots) {
                const auto vary = [&](GemmConfig& c) {
                    c.remote_workers = workers;
                    c.remote_slots = std::min(reads, c.weight_slots);
                    c.local_workers = bench.machine.sms - workers;
                };
                chains.push_back(
                    chain_of(bench, kModels[0], 8, ratio, Transport::kDirect, {}, vary));
                names.push_back(fmt::format("{} workers x {}", workers, reads));
            }
        }
        std::vector<Contestant> contestants;
        for (const Chain& chain : chains) contestants.push_back(chain.contestant);
        const auto us = measure(contestants, bench.stream, 5);
        for (size_t i = 0; i < chains.size(); ++i) {
            report_chain(bench, "remote-workers", chains[i], 8, ratio, bench.remote + " direct",
                         us[i], names[i]);
        }
    }
}

void bench_alignment(Bench& bench) {
    std::printf("\n== wave alignment and early weights on and off, chains, N=8\n");
    for (const Model& model : {kModels[0], kModels[1]}) {
        for (const double ratio : {0.0, sweep_of(bench).aligned}) {
            for (int off = 0; off < 3; ++off) {
                GemmSwitches switches;
                switches.align_waves = off != 1;
                switches.early_weights = off != 2;
                const char* names[] = {"all on", "alignment off", "early weights off"};
                const Chain chain = chain_of(bench, model, 8, ratio, Transport::kDirect, switches);
                const auto us = measure({chain.contestant}, bench.stream, bench.rounds);
                report_chain(bench, "alignment", chain, 8, ratio,
                             ratio > 0 ? bench.remote + " direct" : "local", us[0], names[off]);
            }
        }
    }
}

void bench_multicast(Bench& bench) {
    std::printf("\n== multicast off | on | staged, 7168x7168: us\n");
    const Layer layer{7168, 7168};
    for (const int64_t n : {512, 1024}) {
        for (const double ratio : {0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0}) {
            const int operations = operations_for(bench, layer, n, ratio);
            std::vector<std::string> tiers;
            std::vector<std::string> configs;
            std::vector<Contestant> contestants;
            for (const bool multicast : {false, true}) {
                GemmSwitches switches;
                switches.multicast = multicast;
                const GemmConfig config =
                    choose_gemm_config(shape_for(layer, n, ratio), bench.machine, switches);
                tiers.push_back(bench.remote + (multicast ? " direct, multicast" : " direct"));
                configs.push_back(config.to_string());
                contestants.push_back(
                    repeated(bench, tiers.back(), layer, ratio, n, operations, config));
            }
            if (ratio > 0) {
                tiers.push_back(bench.remote + " staged");
                configs.emplace_back();
                contestants.push_back(repeated_staged(bench, layer, ratio, n, 32));
            }
            const auto us = measure(contestants, bench.stream, 3);
            std::printf("N%-5ld r %3.0f%%", n, ratio * 100);
            for (size_t i = 0; i < us.size(); ++i) {
                std::printf("%s %8.1f", i > 0 ? " |" : "", us[i]);
                Row row = split_row("multicast", layer, n, ratio, tiers[i], us[i], configs[i]);
                row.link_bytes = 0;  // not known
                add_row(bench, row);
            }
            std::printf("  x%.2f\n", us[0] / us[1]);
            std::fflush(stdout);
        }
    }
}

void bench_amplification(Bench& bench, const std::vector<int64_t>& tokens) {
    std::printf("\n== amplification: link bytes / offloaded bytes, 28672x7168\n");
    const Layer layer{28672, 7168};
    for (const int64_t n : tokens) {
        const auto share = link_bound_share(bench, n);
        if (!share) continue;
        const double ratio = *share;
        const int operations = 2;
        std::vector<std::string> names;
        std::vector<Contestant> contestants;
        std::vector<GemmConfig> configs;
        for (const bool multicast : {false, true}) {
            GemmSwitches switches;
            switches.multicast = multicast;
            const GemmConfig config =
                choose_gemm_config(shape_for(layer, n, ratio), bench.machine, switches);
            if (multicast && config.cluster == 1) continue;
            names.push_back(multicast ? "direct, multicast" : "direct");
            configs.push_back(config);
            contestants.push_back(
                repeated(bench, names.back(), layer, ratio, n, operations, config));
        }
        names.emplace_back("staged");
        contestants.push_back(repeated_staged(bench, layer, ratio, n, 32));
        const auto us = measure(contestants, bench.stream, 2);
        const double remote = remote_bytes(layer, ratio);
        for (size_t i = 0; i < names.size(); ++i) {
            const bool staged = i >= configs.size();
            const double rate = staged ? bench.staged_gbps : bench.machine.remote_gbps;
            const double link = us[i] * rate * 1e3;
            std::printf(
                "N%-5ld r %2.0f%% %-18s %9.0f us  link-bound at %5.1f GB/s would be %.3fx  %s\n", n,
                ratio * 100, names[i].c_str(), us[i], rate, link / remote,
                staged ? "" : configs[i].to_string().c_str());
            std::fflush(stdout);
            Row row = split_row("amplification", layer, n, ratio, bench.remote + " " + names[i],
                                us[i], staged ? "" : configs[i].to_string());
            row.link_bytes = link;
            add_row(bench, row);
        }
    }
}

void bench_zero_copy(Bench& bench) {
    std::printf(
        "\n== zero copy: cuBLAS on remote weights in place, 7168x7168, against the split GEMM\n");
    const Layer layer{7168, 7168};
    for (const int64_t n : {8, 256, 512, 4096}) {
        const GemmConfig config = choose_gemm_config(shape_for(layer, n, 1.0), bench.machine);
        const auto us = measure(
            {repeated(bench, "direct", layer, 1.0, n, 2, config),
             repeated_staged(bench, layer, 1.0, n, 8), repeated_cublas(bench, layer, n, 2, true)},
            bench.stream, 2);
        std::printf(
            "N%-5ld direct %9.0f us  staged %9.0f us  cuBLAS %9.0f us (%.1f GB/s of weights)\n", n,
            us[0], us[1], us[2], weight_bytes(layer) / us[2] / 1e3);
        for (size_t i = 0; i < 2; ++i) {
            const bool staged = i == 1;
            Row row = split_row("zero-copy", layer, n, 1,
                                bench.remote + (staged ? " staged" : " direct"), us[i], "");
            row.link_bytes = us[i] * 1e3 * (staged ? bench.staged_gbps : bench.machine.remote_gbps);
            row.ref = "cuBLAS on remote weights in place";
            row.ref_us = us[2];
            add_row(bench, row);
        }
    }
}

}  // namespace dak::bench
