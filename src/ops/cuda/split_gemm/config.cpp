#include "ops/cuda/split_gemm/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "ops/cuda/split_gemm/kernel_plan.h"

namespace dak::cuda {
namespace {

constexpr int64_t kDecodeMaxTokens = 64;  // above, one warpgroup's accumulators no longer do
// Two kernels overlap under programmatic launch, each with its own remote bytes in flight.
constexpr int kOverlappingKernels = 2;
// Fewer atoms than this per worker cost more to hand over than to stream.
constexpr int kMinUnits = 4;
constexpr int kMinPrefillUnits = 16;
constexpr int64_t kMaxStreamedAtoms = 128;   // K = 8,192
constexpr int64_t kMinSharedAtoms = 24'000;  // about 200 MB, 50 us
constexpr int kRemoteSlots = 4;
constexpr int kFewestRemoteWorkers = 2;  // that a window must hold with whole rings
constexpr int kManyRemoteWorkers = 8;
// An idle remote CTA of the decode kernel costs under 1% of the SMs, a late one the whole step.
constexpr double kDecodeSpare = 2.5;

/// How many workers fit the window when each has `slots` reads of 16 KiB in flight (of a cluster
/// that multicasts, each CTA reads its part of them).
int workers_in_window(const GemmMachine& machine, int slots) {
    const int64_t bytes = int64_t{kOverlappingKernels} * slots * kSlotBytes;
    return std::max(1, static_cast<int>(machine.window_bytes / bytes));
}

/// Remote workers for `spare` times the rate at which both tiers end together, within the window.
int remote_workers(const GemmShape& shape, const GemmMachine& machine, int slots, double spare) {
    if (shape.direct_remote_atoms == 0) return 0;
    const double remote = static_cast<double>(shape.direct_remote_atoms * kAtomBytes);
    const double local = static_cast<double>(shape.weight.bytes()) - remote;
    const double flops = 2.0 * static_cast<double>(shape.tokens) *
                         static_cast<double>(shape.weight.rows * shape.weight.cols);
    const double local_s =
        std::max(local / (machine.local_gbps * 1e9), flops / (machine.tflops * 1e12));
    const double needed_gbps = std::min(machine.remote_gbps, remote / local_s / 1e9);
    const double cta_gbps =
        static_cast<double>(slots * kSlotBytes) / machine.remote_latency_us / 1e3;
    return std::min(static_cast<int>(spare * needed_gbps / cta_gbps) + 1,
                    workers_in_window(machine, slots));
}

int clusters_at_once(const GemmMachine& machine, int cluster) {
    return cluster == 1   ? machine.sms
           : cluster == 2 ? machine.clusters_of_2
                          : machine.clusters_of_4;
}

/// The largest cluster whose CTAs can split every block's K and still all run at once.
int split_k(int64_t blocks, int64_t k_atoms, const GemmMachine& machine) {
    int best = 1;
    for (const int cluster : {2, 4}) {
        const int64_t part = round_up(ceil_div(k_atoms, cluster), kPrefillAlignment);
        const bool all_have_work = (cluster - 1) * part < k_atoms;
        if (all_have_work && blocks <= clusters_at_once(machine, cluster)) best = cluster;
    }
    return best;
}

struct Rings {
    int weight_slots, x_slots;
};

/// Ring depths, from sweeps of all shapes and of layer chains. 6 x 16 KiB in flight per SM is what
/// HBM needs; an x slot must be asked for ~2 us before its use. Kernels of one chain need alike
/// sizes: a cluster that needs a whole SM's shared memory behind CTAs that share one waits long.
/// More than half of an SM's shared memory, so that no two CTAs of a kernel ever share an SM:
/// behind kernels of other kinds SMs come free at different times, and the first would get two
/// CTAs, the last none (17% of a step). Of remote workers the least, so that the next kernel's come
/// early.
Rings decode_rings(int tokens_per_tile, bool direct) {
    if (direct && tokens_per_tile <= 16) return {7, 3};
    return tokens_per_tile == 8 ? Rings{10, 5} : tokens_per_tile == 64 ? Rings{6, 5} : Rings{6, 6};
}

GemmConfig decode_config(const GemmShape& shape, const GemmMachine& machine,
                         const GemmSwitches& switches) {
    GemmConfig config;
    config.kernel = GemmKernel::kDecode;
    config.tokens_per_tile = shape.tokens <= 8    ? 8
                             : shape.tokens <= 16 ? 16
                             : shape.tokens <= 32 ? 32
                                                  : 64;
    const bool direct = shape.direct_remote_atoms > 0;
    const int64_t tiles = shape.weight.row_tiles();
    const int64_t k_atoms = shape.weight.k_atoms();
    config.alignment = switches.align_waves ? kSlotAtoms : static_cast<int>(k_atoms);
    config.row_tiles = shape.gated ? 2 : 1;
    // At 64 tokens x costs as much to read from L2 as w: two row blocks share it, when the product
    // is long enough to win back what the cluster costs at its start. A pair of row blocks can be
    // of two tiers, so not with direct access.
    const bool share_x = shape.tokens > 32 && !direct && tiles * k_atoms >= kMinSharedAtoms;
    if (share_x && switches.multicast && switches.align_waves) {
        config.cluster = 2;
        config.cluster_use = ClusterUse::kX;
    }
    const int64_t blocks = row_blocks(shape, config).total;
    const int split = split_k(blocks, k_atoms, machine);
    // With at most half as many blocks as SMs, clusters split K and meet in shared memory: 8%
    // faster at 64 row tiles than partial sums through L2.
    const bool split_blocks =
        !direct && switches.align_waves && split > 1 && config.cluster_use == ClusterUse::kNone;
    if (split_blocks) {
        config.cluster = split;
        config.cluster_use = ClusterUse::kSplitK;
    }
    const Rings rings = decode_rings(config.tokens_per_tile, direct);
    config.weight_slots = rings.weight_slots;
    config.x_slots = rings.x_slots;
    config.remote_slots = config.weight_slots;
    if (split_blocks) {
        config.local_workers = static_cast<int>(blocks) * split;
        return config;
    }
    const int64_t units = blocks * k_atoms;
    const int remote =
        remote_units(shape.direct_remote_atoms, static_cast<int>(k_atoms), config.row_tiles);
    const int64_t most_remote = std::max<int64_t>(1, remote / kMinUnits);
    if (direct) {
        int wanted = machine.sms / 2;
        if (switches.window) {
            // Few workers with a whole ring of reads each leave the most SMs to HBM.
            if (workers_in_window(machine, config.remote_slots) < kFewestRemoteWorkers) {
                config.remote_slots = kRemoteSlots;
            }
            wanted = remote_workers(shape, machine, config.remote_slots, kDecodeSpare);
        }
        config.remote_workers = static_cast<int>(std::min<int64_t>(most_remote, wanted));
        // The first CTAs of a launch come to lie on SMs far apart; so many remote ones leave the
        // local ones less of HBM there than side by side (3% at 7% of a peer's memory).
        config.remote_last = config.remote_workers >= kManyRemoteWorkers;
    }
    const int64_t local = units - remote;
    config.local_workers = static_cast<int>(
        std::min<int64_t>(clusters_at_once(machine, config.cluster) - config.remote_workers,
                          ceil_div(local, int64_t{kMinUnits})));
    return config;
}

/// A prefill tile shape and the time of one of its k steps on a busy GPU, measured (us).
struct PrefillCandidate {
    int tokens_per_tile;
    int cluster;
    ClusterUse cluster_use;
    double step_us;
};

constexpr std::array<PrefillCandidate, 6> kPrefillCandidates = {{
    {128, 1, ClusterUse::kNone, 0.382},
    {128, 2, ClusterUse::kSplitK, 0.400},
    {128, 2, ClusterUse::kWeights, 0.323},
    {256, 1, ClusterUse::kNone, 0.613},
    {256, 2, ClusterUse::kWeights, 0.645},
    {256, 4, ClusterUse::kWeights, 0.68},
}};

/// Reads in flight of a remote worker of the prefill kernel: all that its ring can hold where the
/// window has room for as many workers as the remote share of the maths needs.
int prefill_remote_slots(const GemmMachine& machine, int workers_for_maths, int stages) {
    constexpr int kLeastSlots = 2;
    constexpr int kFewestWorkers = 8;  // with two slots each they reach a PCIe link's rate
    return std::clamp(workers_in_window(machine, 1) / std::max(workers_for_maths, kFewestWorkers),
                      kLeastSlots, stages);
}

GemmConfig prefill_candidate(const GemmShape& shape, const GemmMachine& machine,
                             const GemmSwitches& switches, const PrefillCandidate& candidate,
                             bool streamed) {
    GemmConfig config;
    config.kernel = GemmKernel::kPrefill;
    config.tokens_per_tile = candidate.tokens_per_tile;
    config.row_tiles = 2;
    config.cluster = candidate.cluster;
    config.cluster_use = candidate.cluster_use;
    config.alignment =
        switches.align_waves ? kPrefillAlignment : static_cast<int>(shape.weight.k_atoms());
    const int groups = token_tiles(shape, config);
    config.evict_first = groups == 1;
    config.group = groups == 1 ? 8 : 16;
    const RowBlocks blocks = row_blocks(shape, config);
    const int total = clusters_at_once(machine, candidate.cluster);
    if (blocks.remote > 0) {
        // Enough also for their share of the maths; every worker beyond takes maths from the rest,
        // so that one read each is all there is to spare.
        const int by_maths = static_cast<int>(int64_t{total} * blocks.remote / blocks.total);
        const int slots = config.remote_slots =
            switches.window
                ? prefill_remote_slots(machine, by_maths, prefill_stages(candidate.tokens_per_tile))
                : 4;
        const double spare = slots / (slots - 1.0);
        const int wanted = switches.window
                               ? std::max(remote_workers(shape, machine, slots, spare),
                                          std::min(by_maths, workers_in_window(machine, slots)))
                               : total / 2;
        const int64_t units = int64_t{blocks.remote} * groups * shape.weight.k_atoms();
        const auto most = static_cast<int>(std::max<int64_t>(units / kMinPrefillUnits, 1));
        config.remote_workers = std::min({wanted, total - 1, most});
    }
    const int local_tiles = (blocks.total - blocks.remote) * groups;
    const int64_t local_units = int64_t{local_tiles} * shape.weight.k_atoms();
    config.local_workers = static_cast<int>(
        std::clamp<int64_t>(local_units / kMinPrefillUnits, 1, total - config.remote_workers));
    if (config.cluster_use == ClusterUse::kSplitK) {
        config.local_workers = local_tiles * config.cluster;
        config.streamed_tiles = local_tiles;
        return config;
    }
    // The remainder of the last wave, and one wave with it, is cut evenly.
    const int remainder = local_tiles % config.local_workers;
    if (streamed && remainder != 0) {
        config.streamed_tiles = std::min(local_tiles, remainder + config.local_workers);
    }
    return config;
}

/// The time in us that reading the weight from HBM takes.
double bytes_time(const GemmShape& shape, const GemmMachine& machine) {
    return static_cast<double>(shape.weight.bytes()) / machine.local_gbps / 1e3;
}

/// Model of a candidate's time in us after its start, for comparison only. Its constants, and those
/// of the other candidates, are a fit to the times of all at N = 128 to 1024 over 13 shapes, of
/// which it picks the best or one within 2%.
double prefill_time(const GemmShape& shape, const GemmMachine& machine, const GemmConfig& config,
                    double step_us) {
    constexpr double kTileUs = 1.35;  // of results on their way out, per 128 tokens
    constexpr double kStreamFactor = 1.11;
    constexpr double kHandOverUs = 2.57;  // per 128 tokens
    constexpr double kContributorUs = 0.4;
    constexpr double kMeetUs = 1.5;  // of partial sums in shared memory, per 128 tokens
    const RowBlocks blocks = row_blocks(shape, config);
    const int local_tiles = (blocks.total - blocks.remote) * token_tiles(shape, config);
    const auto k_steps = static_cast<double>(shape.weight.k_atoms());
    const double width = config.tokens_per_tile / 128.0;
    const double waves = static_cast<double>(local_tiles) / config.local_workers;
    double compute;
    if (config.cluster_use == ClusterUse::kSplitK) {
        compute = k_steps / config.cluster * step_us + (kTileUs + kMeetUs) * width;
    } else if (config.streamed_tiles > 0) {
        compute =
            waves * (k_steps * step_us * kStreamFactor + kTileUs * width) + kHandOverUs * width;
        if (waves < 1 && waves > 0) compute += kContributorUs * width / waves;
    } else {
        compute = std::ceil(waves) * (k_steps * step_us + kTileUs * width);
    }
    return std::max(compute, bytes_time(shape, machine));
}

/// A tile of the wide kernel and the time of one of its k steps on a busy GPU, measured (us).
struct WideCandidate {
    int tokens_per_tile, rows_per_tile;
    double step_us;
};

constexpr std::array<WideCandidate, 7> kWideCandidates = {{
    {64, 64, 0.130},
    {64, 96, 0.170},
    {128, 64, 0.218},
    {128, 96, 0.254},
    {128, 112, 0.301},
    {128, 168, 0.454},
    {128, 192, 0.521},
}};

GemmConfig wide_config(const GemmShape& shape, const GemmMachine& machine,
                       const WideCandidate& candidate) {
    GemmConfig config;
    config.kernel = GemmKernel::kWide;
    config.tokens_per_tile = candidate.tokens_per_tile;
    config.rows_per_tile = candidate.rows_per_tile;
    config.cluster = kWideCluster;
    config.cluster_use = ClusterUse::kWeights;
    config.evict_first = token_tiles(shape, config) == 1;
    config.group = 1;
    const int tiles = row_blocks(shape, config).total * token_tiles(shape, config);
    config.local_workers = std::min(tiles, clusters_at_once(machine, kWideCluster));
    return config;
}

double wide_time(const GemmShape& shape, const GemmMachine& machine, const GemmConfig& config,
                 double step_us) {
    constexpr double kTileUs = 1.0;
    const int tiles = row_blocks(shape, config).total * token_tiles(shape, config);
    const auto waves = static_cast<double>(ceil_div(tiles, config.local_workers));
    return std::max(waves * (static_cast<double>(shape.weight.k_atoms()) * step_us + kTileUs),
                    bytes_time(shape, machine));
}

bool can_split_tiles(const GemmShape& shape, const GemmMachine& machine,
                     const GemmSwitches& switches, const GemmConfig& config) {
    const int tiles = row_blocks(shape, config).total * token_tiles(shape, config);
    return shape.direct_remote_atoms == 0 && switches.align_waves &&
           split_k(tiles, shape.weight.k_atoms(), machine) >= config.cluster;
}

GemmConfig prefill_config(const GemmShape& shape, const GemmMachine& machine,
                          const GemmSwitches& switches) {
    GemmConfig best;
    // Remote bytes that SMs read must cross the link as few times as can be; then time decides.
    int best_crossings = std::numeric_limits<int>::max();
    double best_time = std::numeric_limits<double>::infinity();
    for (const PrefillCandidate& candidate : kPrefillCandidates) {
        if (!switches.multicast && candidate.cluster > 1) continue;
        for (const bool streamed : {false, true}) {
            const GemmConfig config =
                prefill_candidate(shape, machine, switches, candidate, streamed);
            if (config.cluster_use == ClusterUse::kSplitK &&
                (streamed || !can_split_tiles(shape, machine, switches, config))) {
                continue;
            }
            const int tiles = token_tiles(shape, config);
            // Workers at different places of a long K find neither operand in L2.
            const bool too_long = tiles > 1 && shape.weight.k_atoms() > kMaxStreamedAtoms;
            if (streamed && (too_long || !switches.align_waves)) continue;
            const double time = prefill_time(shape, machine, config, candidate.step_us);
            const int crossings = config.remote_workers > 0 ? tiles : 1;
            if (std::tie(crossings, time) < std::tie(best_crossings, best_time)) {
                best = config;
                best_crossings = crossings;
                best_time = time;
            }
        }
    }
    if (shape.gated || shape.direct_remote_atoms > 0 || !switches.multicast) return best;
    for (const WideCandidate& candidate : kWideCandidates) {
        const GemmConfig config = wide_config(shape, machine, candidate);
        const double time = wide_time(shape, machine, config, candidate.step_us);
        if (time < best_time) {
            best = config;
            best_time = time;
        }
    }
    return best;
}

}  // namespace

int64_t GemmConfig::remote_bytes_in_flight() const {
    return int64_t{remote_workers} * remote_slots * kSlotBytes;
}

std::string GemmConfig::to_string() const {
    const std::string remote = remote_workers > 0 ? fmt::format("{} remote ({} in flight) + ",
                                                                remote_workers, remote_slots)
                                                  : std::string();
    const char* uses[] = {"", ", K split over ", ", w shared by ", ", x shared by "};
    const std::string shared =
        cluster_use == ClusterUse::kNone
            ? ""
            : fmt::format("{}{}", uses[static_cast<int>(cluster_use)], cluster);
    if (kernel == GemmKernel::kDecode) {
        return fmt::format("decode {} tokens x {} rows, {}{} workers{}, rings {}+{}{}",
                           tokens_per_tile, row_tiles * 64, remote, local_workers, shared,
                           weight_slots, x_slots, alignment == kSlotAtoms ? "" : ", whole tiles");
    }
    if (kernel == GemmKernel::kWide) {
        return fmt::format("wide {} tokens x {} rows, {} workers{}", tokens_per_tile, rows_per_tile,
                           local_workers, shared);
    }
    return fmt::format("prefill {} tokens x {} rows, {}{} workers{}, {} streamed tiles",
                       tokens_per_tile, row_tiles * 64, remote, local_workers, shared,
                       streamed_tiles);
}

int token_tiles(const GemmShape& shape, const GemmConfig& config) {
    const int per_cluster = config.cluster_use == ClusterUse::kWeights ? config.cluster : 1;
    return static_cast<int>(ceil_div(shape.tokens, int64_t{config.tokens_per_tile} * per_cluster));
}

RowBlocks row_blocks(const GemmShape& shape, const GemmConfig& config) {
    if (config.kernel == GemmKernel::kWide) {
        return {static_cast<int>(ceil_div(shape.weight.rows, int64_t{config.rows_per_tile})), 0};
    }
    const int row_tiles =
        config.row_tiles * (config.cluster_use == ClusterUse::kX ? config.cluster : 1);
    const int64_t block_atoms = shape.weight.k_atoms() * row_tiles;
    return {static_cast<int>(ceil_div(shape.weight.row_tiles(), row_tiles)),
            static_cast<int>(ceil_div(shape.direct_remote_atoms, block_atoms))};
}

WorkLine work_line(const GemmShape& shape, const GemmConfig& config) {
    const auto k_atoms = static_cast<int>(shape.weight.k_atoms());
    const RowBlocks blocks = row_blocks(shape, config);
    if (config.kernel == GemmKernel::kDecode) {
        if (config.cluster_use == ClusterUse::kSplitK) {
            return WorkLine::of_split_blocks(k_atoms, blocks.total, config.cluster,
                                             config.alignment);
        }
        const int remote = remote_units(shape.direct_remote_atoms, k_atoms, config.row_tiles);
        return {k_atoms,         blocks.total, remote, config.remote_workers, config.local_workers,
                config.alignment};
    }
    const int remote_tiles = blocks.remote * token_tiles(shape, config);
    if (config.cluster_use == ClusterUse::kSplitK) {
        return WorkLine::of_split_blocks(k_atoms, config.streamed_tiles, config.cluster,
                                         config.alignment);
    }
    return {k_atoms,
            remote_tiles + config.streamed_tiles,
            remote_tiles * k_atoms,
            config.remote_workers,
            config.local_workers,
            config.alignment};
}

GemmConfig choose_gemm_config(const GemmShape& shape, const GemmMachine& machine,
                              const GemmSwitches& switches) {
    require(shape.tokens > 0, "split GEMM of no tokens");
    require(shape.weight.atoms() > 0, "split GEMM with an empty weight");
    require(shape.weight.dtype != DType::kF32, "split GEMM computes bf16 and fp16 weights, not {}",
            name_of(shape.weight.dtype));
    GemmConfig config = shape.tokens <= kDecodeMaxTokens ? decode_config(shape, machine, switches)
                                                         : prefill_config(shape, machine, switches);
    config.early_weights = switches.early_weights;
    return config;
}

}  // namespace dak::cuda
