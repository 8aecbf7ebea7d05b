#include <cmath>
#include <cstdio>

#include "gemm_bench.h"
#include "ops/cuda/split_gemm/kernel_plan.h"

// Local weights: against cuBLAS shape by shape, and all configurations against each other.

namespace dak::bench {

using namespace dak::cuda;

namespace {

constexpr int64_t kDecodeTokens = 64;  // at most; above, products are bound by maths

/// Every configuration worth considering, for choosing the rules of choose_gemm_config.
std::vector<GemmConfig> decode_variants(const GemmShape& shape, const GemmMachine& machine) {
    std::vector<GemmConfig> out;
    const bool wide = shape.tokens > 32;
    const std::vector<std::pair<int, int>> rings =
        wide ? std::vector<std::pair<int, int>>{{4, 3}, {6, 5}, {6, 6}, {7, 6}}
             : std::vector<std::pair<int, int>>{{5, 3}, {6, 3}, {6, 6}, {6, 9}, {8, 5}, {8, 8}};
    for (const int row_tiles : {1, 2}) {
        if (row_tiles == 2 && !shape.gated) continue;
        for (const ClusterUse use : {ClusterUse::kNone, ClusterUse::kSplitK, ClusterUse::kX}) {
            for (const auto& [weights, x] : rings) {
                GemmConfig c = choose_gemm_config(shape, machine);
                c.row_tiles = row_tiles;
                c.cluster_use = use;
                c.cluster = use == ClusterUse::kNone ? 1 : 2;
                const int blocks = row_blocks(shape, c).total;
                if (use == ClusterUse::kSplitK &&
                    (blocks > machine.clusters_of_2 || blocks * 3 < machine.sms)) {
                    continue;
                }
                if (use == ClusterUse::kX && !wide) continue;
                c.local_workers = use == ClusterUse::kNone     ? machine.sms
                                  : use == ClusterUse::kSplitK ? blocks * 2
                                                               : machine.clusters_of_2;
                c.weight_slots = weights;
                c.x_slots = x;
                out.push_back(c);
            }
        }
    }
    return out;
}

std::vector<GemmConfig> prefill_variants(const GemmShape& shape, const GemmMachine& machine) {
    std::vector<GemmConfig> out;
    const std::pair<int, ClusterUse> tiles[] = {
        {128, ClusterUse::kNone},   {128, ClusterUse::kWeights}, {128, ClusterUse::kSplitK},
        {256, ClusterUse::kSplitK}, {256, ClusterUse::kNone},    {256, ClusterUse::kWeights}};
    for (const auto& [tokens, use] : tiles) {
        if (shape.tokens > 512 && tokens == 128) continue;
        GemmConfig c = choose_gemm_config(shape, machine);
        c.kernel = GemmKernel::kPrefill;
        c.row_tiles = kPrefillRowTiles;
        c.alignment = kPrefillAlignment;
        c.tokens_per_tile = tokens;
        c.cluster_use = use;
        c.cluster = use == ClusterUse::kNone ? 1 : 2;
        if (shape.tokens <= tokens / 2 * (use == ClusterUse::kWeights ? 2 : 1)) continue;
        c.local_workers = c.cluster == 1 ? machine.sms : machine.clusters_of_2;
        const int count = row_blocks(shape, c).total * token_tiles(shape, c);
        c.evict_first = token_tiles(shape, c) == 1;
        c.group = c.evict_first ? 8 : 16;
        if (use == ClusterUse::kSplitK) {
            c.streamed_tiles = count;
            c.local_workers = count * 2;
            if (count <= machine.clusters_of_2) out.push_back(c);
            continue;
        }
        const int remainder = count % c.local_workers;
        for (const int streamed : {0, std::min(count, remainder + c.local_workers)}) {
            if (streamed != 0 && remainder == 0) continue;
            c.streamed_tiles = streamed;
            out.push_back(c);
        }
    }
    return out;
}

/// Wide tiles, but for those that leave more than a fifth of the SMs idle.
std::vector<GemmConfig> wide_variants(const GemmShape& shape, const GemmMachine& machine) {
    std::vector<GemmConfig> out;
    if (shape.gated) return out;
    const std::pair<int, int> tiles[] = {{64, 64},   {64, 96},   {128, 64}, {128, 96},
                                         {128, 112}, {128, 168}, {128, 192}};
    for (const auto& [tokens, rows] : tiles) {
        GemmConfig c;
        c.kernel = GemmKernel::kWide;
        c.tokens_per_tile = tokens;
        c.rows_per_tile = rows;
        c.cluster = kWideCluster;
        c.cluster_use = ClusterUse::kWeights;
        c.evict_first = token_tiles(shape, c) == 1;
        c.group = 1;
        const int count = row_blocks(shape, c).total * token_tiles(shape, c);
        c.local_workers = std::min(count, machine.clusters_of_2);
        const int waves = (count + c.local_workers - 1) / c.local_workers;
        if (count * 5 >= waves * machine.clusters_of_2 * 4) out.push_back(c);
    }
    return out;
}

std::vector<GemmConfig> variants(const GemmShape& shape, const GemmMachine& machine) {
    if (shape.tokens <= kDecodeTokens) return decode_variants(shape, machine);
    std::vector<GemmConfig> out = prefill_variants(shape, machine);
    const std::vector<GemmConfig> wide = wide_variants(shape, machine);
    out.insert(out.end(), wide.begin(), wide.end());
    return out;
}

std::string brief(const GemmConfig& c) {
    if (c.kernel == GemmKernel::kWide) {
        return fmt::format("wide {}x{}", c.tokens_per_tile, c.rows_per_tile);
    }
    const auto use = static_cast<int>(c.cluster_use);
    return c.kernel == GemmKernel::kDecode
               ? fmt::format("{}x{} u{} w{}x{}", c.tokens_per_tile, c.row_tiles, use,
                             c.weight_slots, c.x_slots)
               : fmt::format("{} u{} s{} g{}", c.tokens_per_tile, use, c.streamed_tiles, c.group);
}

}  // namespace

void bench_shapes(Bench& bench, const std::vector<int64_t>& tokens) {
    std::printf(
        "\n== shapes: us (programmatic | plain | cuBLAS), GB/s of weights, TFLOP/s, x cuBLAS\n");
    for (const int64_t n : tokens) {
        double log_ratio = 0, worst = 10;
        for (const Layer& layer : kShapes) {
            const int operations = operations_for(bench, layer, n);
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
            const int operations = operations_for(bench, layer, n);
            const GemmShape shape = shape_for(layer, n);
            const std::vector<GemmConfig> configs = variants(shape, bench.machine);
            std::vector<Contestant> contestants = {repeated_cublas(bench, layer, n, operations)};
            for (const GemmConfig& config : configs) {
                contestants.push_back(
                    repeated(bench, config.to_string(), layer, 0, n, operations, config));
            }
            const auto us = measure(contestants, bench.stream, bench.rounds);
            std::printf("N%ld %ldx%ld cuBLAS %.2f:", n, layer.m, layer.k, us[0]);
            for (size_t i = 0; i < configs.size(); ++i) {
                std::printf(" [%s %.2f]", brief(configs[i]).c_str(), us[i + 1]);
            }
            std::printf("\n");
            std::fflush(stdout);
        }
    }
}

}  // namespace dak::bench
