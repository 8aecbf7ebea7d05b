#include <cmath>
#include <cstdio>

#include "gemm_bench.h"

// Local weights: against cuBLAS shape by shape, and all configurations against each other.

namespace dak::bench {

using namespace dak::cuda;

namespace {

/// Every configuration worth considering, for choosing the rules of choose_gemm_config.
std::vector<GemmConfig> variants(const GemmShape& shape, const GemmMachine& machine) {
    std::vector<GemmConfig> out;
    GemmConfig base = choose_gemm_config(shape, machine);
    if (base.kernel == GemmKernel::kDecode) {
        const std::pair<int, int> rings[] = {{6, 3}, {8, 3}, {9, 4}, {10, 3}};
        for (const int row_tiles : {1, 2}) {
            const auto blocks = static_cast<int>(ceil_div(shape.weight.row_tiles(), row_tiles));
            for (const int cluster : {1, 2, 4}) {
                const int at_once = cluster == 2   ? machine.clusters_of_2
                                    : cluster == 4 ? machine.clusters_of_4
                                                   : blocks;
                if (blocks > at_once || (cluster > 1 && blocks * cluster < machine.sms / 3)) {
                    continue;
                }
                for (const auto& [weights, x] : rings) {
                    GemmConfig c = base;
                    c.row_tiles = row_tiles;
                    c.cluster = cluster;
                    c.local_workers = cluster > 1 ? blocks * cluster : machine.sms;
                    c.weight_slots = weights;
                    c.x_slots = x;
                    out.push_back(c);
                }
            }
        }
        return out;
    }
    for (const auto& [tokens, cluster] : {std::pair{128, 1}, {128, 2}, {256, 1}, {256, 2}}) {
        if (shape.tokens > 512 && tokens == 128) continue;
        GemmConfig c = base;
        c.tokens_per_tile = tokens;
        c.cluster = cluster;
        c.local_workers = cluster == 1 ? machine.sms : machine.clusters_of_2;
        const int tiles = row_blocks(shape, c).total * token_tiles(shape, c);
        c.evict_first = token_tiles(shape, c) == 1;
        const int remainder = tiles % c.local_workers;
        std::vector<int> streams = {0};
        if (remainder != 0) streams.push_back(std::min(tiles, remainder + c.local_workers));
        if (remainder != 0 && tiles > c.local_workers) streams.push_back(remainder);
        for (const int streamed : streams) {
            for (const int group : {8, 16}) {
                if (group == 16 && token_tiles(shape, c) == 1) continue;
                c.streamed_tiles = streamed;
                c.group = group;
                out.push_back(c);
            }
        }
    }
    return out;
}

}  // namespace

void bench_shapes(Bench& bench, const std::vector<int64_t>& tokens) {
    std::printf(
        "\n== shapes: us (programmatic | plain | cuBLAS), GB/s of weights, TFLOP/s, x cuBLAS\n");
    for (const int64_t n : tokens) {
        double log_ratio = 0, worst = 10;
        for (const Layer& layer : kShapes) {
            const int operations = operations_for(layer, n);
            const GemmConfig config = choose_gemm_config(shape_for(layer, n), bench.machine);
            const auto us =
                measure({repeated(bench, "dak", layer, 0, n, operations, config),
                         repeated(bench, "plain", layer, 0, n, operations, config, false),
                         repeated_cublas(bench, layer, n, operations)},
                        bench.stream, bench.rounds);
            const double bytes = static_cast<double>(layer.m * layer.k) * 2;
            const double flops = bytes * static_cast<double>(n);
            std::printf(
                "N%-5ld %5ldx%-5ld %8.2f | %8.2f | %8.2f us %5.0f GB/s %4.0f TF  x%.3f plain x%.3f "
                " %s\n",
                n, layer.m, layer.k, us[0], us[1], us[2], bytes / us[0] / 1e3, flops / us[0] / 1e6,
                us[2] / us[0], us[2] / us[1], config.to_string().c_str());
            std::fflush(stdout);
            log_ratio += std::log(us[2] / us[0]);
            worst = std::min(worst, us[2] / us[0]);
            for (int plain = 0; plain < 2; ++plain) {
                add_row(bench, {.section = plain != 0 ? "shapes-plain" : "shapes",
                                .m = layer.m,
                                .n = n,
                                .k = layer.k,
                                .us = us[static_cast<size_t>(plain)],
                                .local_bytes = bytes,
                                .ref = "cuBLAS",
                                .ref_us = us[2],
                                .config = config.to_string()});
            }
        }
        std::printf("N%-5ld geometric mean x%.3f worst x%.3f\n", n,
                    std::exp(log_ratio / static_cast<double>(kShapes.size())), worst);
    }
}

void bench_variants(Bench& bench, const std::vector<int64_t>& tokens) {
    std::printf("\n== variants: us of each\n");
    for (const int64_t n : tokens) {
        for (const Layer& layer : kShapes) {
            const int operations = operations_for(layer, n);
            const auto configs = variants(shape_for(layer, n), bench.machine);
            std::vector<Contestant> contestants = {repeated_cublas(bench, layer, n, operations)};
            for (const GemmConfig& config : configs) {
                contestants.push_back(
                    repeated(bench, config.to_string(), layer, 0, n, operations, config));
            }
            const auto us = measure(contestants, bench.stream, bench.rounds);
            std::printf("N%ld %ldx%ld cuBLAS %.2f:", n, layer.m, layer.k, us[0]);
            for (size_t i = 0; i < configs.size(); ++i) {
                const GemmConfig& c = configs[i];
                std::printf(" [%dx%d c%d w%dx%d s%d g%d %.2f]", c.tokens_per_tile, c.row_tiles,
                            c.cluster, c.weight_slots, c.x_slots, c.streamed_tiles, c.group,
                            us[i + 1]);
            }
            std::printf("\n");
            std::fflush(stdout);
        }
    }
}

}  // namespace dak::bench
