#pragma once

#include <cstdint>
#include <string>

#include "base/units.h"
#include "memory/packing.h"
#include "ops/cuda/split_gemm/schedule.h"

// How a split GEMM is run: chosen on the host from shape, split and machine, by arithmetic alone.

namespace dak::cuda {

/// The rates and limits that the choice depends on; the defaults are an H200 on PCIe 5 x16.
struct GemmMachine {
    int sms = 132;
    int clusters_of_2 = 66;             ///< that run at once with a whole SM's shared memory each
    int clusters_of_4 = 30;             ///< one GPC in two cannot place its last SMs
    double local_gbps = 4740;           ///< B_g
    double remote_gbps = 51.4;          ///< B_h, read by SMs
    double remote_latency_us = 2;       ///< of one 16 KiB read on a busy link
    int64_t window_bytes = 512 * kKiB;  ///< remote bytes in flight that leave B_g untouched
    double tflops = 700;                ///< sustained, dense 16-bit
};

/// One product: [tokens, cols] x [rows, cols]^T.
struct GemmShape {
    int64_t tokens = 0;
    PackedShape weight;
    bool gated = false;  ///< gate and up interleaved by row tile
    /// Atoms that SMs read over the link. Zero also for a staged weight, whose copy is local.
    int64_t direct_remote_atoms = 0;
};

/// Mechanisms that a benchmark may turn off to show what they are worth.
struct GemmSwitches {
    bool window = true;         ///< cap on remote bytes in flight
    bool multicast = true;      ///< one load of a weight serves a cluster's token tiles
    bool align_waves = true;    ///< equal bytes per CTA instead of whole tiles
    bool early_weights = true;  ///< weights stream before the preceding kernel has finished
};

enum class GemmKernel : uint8_t {
    kDecode,
    kPrefill,
    kWide,  ///< prefill with any number of weight rows per tile: local weights, whole tiles
};

/// What the CTAs of a cluster do together.
enum class ClusterUse : uint8_t {
    kNone,
    kSplitK,   ///< each has a part of K of one row block or tile; sums meet in shared memory
    kWeights,  ///< prefill, wide: one row block, neighbouring token tiles; w is multicast
    kX,        ///< decode: neighbouring row blocks; x is multicast
};

struct GemmConfig {
    GemmKernel kernel = GemmKernel::kDecode;
    int tokens_per_tile = 8;
    int row_tiles = 1;      ///< 64-row tiles of a row block
    int rows_per_tile = 0;  ///< wide: weight rows of a row block
    int cluster = 1;        ///< CTAs of a cluster
    ClusterUse cluster_use = ClusterUse::kNone;
    int remote_workers = 0;    ///< CTAs (decode) or clusters (prefill) that read the remote tier
    bool remote_last = false;  ///< decode: they are the last of the launch, not the first
    int local_workers = 0;
    int alignment = 1;       ///< of cuts along K, in atoms
    int remote_slots = 0;    ///< 16 KiB reads in flight per remote worker
    int weight_slots = 0;    ///< decode: ring of 16 KiB slots
    int x_slots = 0;         ///< decode
    int streamed_tiles = 0;  ///< prefill: local tiles cut evenly among the workers, not dealt whole
    int group = 8;           ///< prefill: row blocks that run side by side
    bool evict_first = false;  ///< prefill: weights are read once only
    bool early_weights = true;

    int workers() const { return remote_workers + local_workers; }
    /// CTAs that compute one worker's segments together.
    int ctas_per_worker() const { return cluster_use == ClusterUse::kSplitK ? 1 : cluster; }
    int ctas() const { return workers() * ctas_per_worker(); }
    /// Remote bytes in flight, whole GPU, one kernel.
    int64_t remote_bytes_in_flight() const;

    /// "decode 8 tokens x 1 row tile, 4 remote (4 slots) + 128 local CTAs, ring 6 + 3, stream"
    std::string to_string() const;
};

/// Throws Error when the shape has no tokens or no weight, or a type the kernels do not compute.
GemmConfig choose_gemm_config(const GemmShape& shape, const GemmMachine& machine,
                              const GemmSwitches& switches = {});

/// Row blocks of the weight (groups of neighbouring ones where these share x) and how many of them,
/// counted from the first, hold remote atoms.
struct RowBlocks {
    int total = 0;
    int remote = 0;
};
RowBlocks row_blocks(const GemmShape& shape, const GemmConfig& config);

/// The division of the work that a configuration means. Prefill: the line has all remote tiles and
/// the streamed local ones.
WorkLine work_line(const GemmShape& shape, const GemmConfig& config);

/// Prefill: token tiles of a cluster.
int token_tiles(const GemmShape& shape, const GemmConfig& config);

}  // namespace dak::cuda
