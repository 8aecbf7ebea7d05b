#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "ops/cuda/split_gemm/config.h"

namespace dak::cuda {
namespace {

struct RandomShape {
    std::mt19937 generator;

    int64_t between(int64_t low, int64_t high) {
        return std::uniform_int_distribution<int64_t>(low, high)(generator);
    }

    GemmShape next() {
        GemmShape shape;
        // Small shapes are where divisions degenerate; large ones are what models have.
        const bool small = between(0, 2) != 0;
        shape.weight.rows = between(1, small ? 700 : 30000);
        shape.weight.cols = between(1, small ? 700 : 29000);
        shape.weight.dtype = between(0, 1) != 0 ? DType::kBF16 : DType::kF16;
        const int64_t tokens[] = {1, 8, 9, 64, 65, 128, 129, 256, 257, 1000, 4096};
        shape.tokens = tokens[between(0, 10)];
        shape.gated = between(0, 3) == 0;
        if (shape.gated) shape.weight.rows = round_up(shape.weight.rows, 2 * kAtomRows);
        const int64_t atoms = shape.weight.atoms();
        const int64_t splits[] = {0, atoms, std::min(atoms, shape.weight.k_atoms()),
                                  between(0, atoms), between(0, atoms / 20)};
        shape.direct_remote_atoms = splits[between(0, 4)];
        return shape;
    }
};

/// An H200 that reads a peer's memory.
GemmMachine nvlink_machine() {
    GemmMachine machine;
    machine.remote_gbps = 370;
    machine.window_bytes = 4 * kMiB;
    return machine;
}

void expect_line_covered_once(const WorkLine& line) {
    ASSERT_EQ(line.begin(0), 0);
    ASSERT_EQ(line.begin(line.workers()), line.units());
    for (int w = 0; w < line.workers(); ++w) {
        ASSERT_LE(line.begin(w), line.begin(w + 1));
        const int cut = line.split() > 1 ? line.begin(w) % line.k_atoms() : line.begin(w);
        ASSERT_TRUE(cut % line.alignment() == 0 || cut == line.remote_units() ||
                    cut == line.units());
        // One tier per worker.
        if (line.is_remote(w)) {
            ASSERT_LE(line.begin(w + 1), line.remote_units());
        } else {
            ASSERT_GE(line.begin(w), line.remote_units());
        }
    }
}

/// Walks every worker's segments as the kernels do and checks the hand-over of partial sums.
void expect_blocks_summed_once(const WorkLine& line) {
    std::vector<int> units_of_block(static_cast<size_t>(line.blocks()), 0);
    std::map<int, std::vector<int>> contributors;
    for (int w = 0; w < line.workers(); ++w) {
        const int end = line.begin(w + 1);
        bool first = true;
        for (int unit = line.begin(w); unit < end;) {
            const Segment s = line.segment(unit, end, w);
            ASSERT_GT(s.length(), 0);
            units_of_block[static_cast<size_t>(s.block)] += s.length();
            contributors[s.block].push_back(w);
            // Only a worker's first segment may belong to another head, or it would need a second
            // slot for partial sums.
            if (!first) {
                ASSERT_EQ(s.head, w);
            }
            ASSERT_LE(s.head, w);
            ASSERT_GE(s.last, w);
            first = false;
            unit += s.length();
        }
    }
    for (int block = 0; block < line.blocks(); ++block) {
        ASSERT_EQ(units_of_block[static_cast<size_t>(block)], line.k_atoms());
        const std::vector<int>& workers = contributors[block];
        const int start = block * line.k_atoms();
        ASSERT_EQ(line.owner(start), workers.front());
        ASSERT_EQ(line.owner(start + line.k_atoms() - 1), workers.back());
        for (int w = workers.front(); w <= workers.back(); ++w) {
            const bool empty = line.begin(w) == line.begin(w + 1);
            ASSERT_EQ(std::count(workers.begin(), workers.end(), w), empty ? 0 : 1);
        }
    }
}

TEST(GemmPlan, EveryUnitIsComputedOnceByOneTier) {
    RandomShape shapes{std::mt19937(1)};
    for (int i = 0; i < 4000; ++i) {
        const GemmShape shape = shapes.next();
        GemmSwitches switches;
        switches.align_waves = i % 5 != 0;
        switches.window = i % 7 != 0;
        switches.multicast = i % 3 != 0;
        const GemmConfig config =
            choose_gemm_config(shape, i % 2 == 0 ? GemmMachine{} : nvlink_machine(), switches);
        SCOPED_TRACE(config.to_string());
        const WorkLine line = work_line(shape, config);
        ASSERT_NO_FATAL_FAILURE(expect_line_covered_once(line));
        ASSERT_NO_FATAL_FAILURE(expect_blocks_summed_once(line));
    }
}

TEST(GemmPlan, RemoteUnitsAreThoseThatHoldRemoteAtoms) {
    for (const int row_tiles : {1, 2}) {
        const int k_atoms = 7, blocks = 5;
        for (int64_t remote = 0; remote <= int64_t{k_atoms} * blocks * row_tiles; ++remote) {
            const int prefix = remote_units(remote, k_atoms, row_tiles);
            for (int unit = 0; unit < blocks * k_atoms; ++unit) {
                bool holds_remote = false;
                for (int tile = 0; tile < row_tiles; ++tile) {
                    const int64_t atom =
                        int64_t{unit / k_atoms * row_tiles + tile} * k_atoms + unit % k_atoms;
                    holds_remote |= atom < remote;
                }
                ASSERT_EQ(holds_remote, unit < prefix) << remote << " " << unit;
            }
        }
    }
}

TEST(GemmPlan, RemoteBytesInFlightFitTheWindowOfTwoKernels) {
    RandomShape shapes{std::mt19937(2)};
    GemmMachine machine;
    for (int i = 0; i < 3000; ++i) {
        if (i % 2 == 1) machine = nvlink_machine();
        machine.window_bytes = shapes.between(1, i % 2 == 1 ? 64 : 16) * 128 * kKiB;
        const GemmConfig config = choose_gemm_config(shapes.next(), machine);
        // One worker with its least reads is what any window must allow.
        const int64_t least = config.remote_workers == 1 ? config.remote_bytes_in_flight() : 0;
        ASSERT_LE(config.remote_bytes_in_flight(), std::max(least, machine.window_bytes / 2))
            << config.to_string();
    }
}

TEST(GemmPlan, GridsAreResidentAtOnce) {
    RandomShape shapes{std::mt19937(3)};
    for (int i = 0; i < 3000; ++i) {
        const GemmMachine machine = i % 2 == 0 ? GemmMachine{} : nvlink_machine();
        const GemmConfig config = choose_gemm_config(shapes.next(), machine);
        ASSERT_GE(config.workers(), 1);
        ASSERT_LE(config.ctas(), machine.sms) << config.to_string();
        if (config.cluster == 4) {
            ASSERT_LE(config.ctas(), 4 * machine.clusters_of_4);
        }
    }
}

GemmConfig large_product(int64_t tokens, double ratio, const GemmMachine& machine) {
    GemmShape shape;
    shape.tokens = tokens;
    shape.weight = {28672, 7168, DType::kBF16};
    shape.direct_remote_atoms =
        static_cast<int64_t>(ratio * static_cast<double>(shape.weight.atoms()));
    return choose_gemm_config(shape, machine);
}

TEST(GemmPlan, DecodeHasTheReadsInFlightThatALinkNeeds) {
    // Past the turning point, where the link is the bound: 1 MiB for NVLink, 128 KiB for PCIe, and
    // not so many SMs that HBM starves.
    const GemmConfig nvlink = large_product(8, 0.1, nvlink_machine());
    EXPECT_GE(nvlink.remote_bytes_in_flight(), kMiB) << nvlink.to_string();
    EXPECT_LE(nvlink.remote_workers, 32) << nvlink.to_string();
    const GemmConfig pcie = large_product(8, 0.1, GemmMachine{});
    EXPECT_GE(pcie.remote_bytes_in_flight(), 128 * kKiB) << pcie.to_string();
    EXPECT_LE(pcie.remote_workers, 8) << pcie.to_string();
    // A small share needs a few CTAs only.
    EXPECT_LE(large_product(8, 0.02, nvlink_machine()).remote_workers, 8);
}

TEST(GemmPlan, PrefillOverAWideLinkDividesTheMathsLikeTheWeights) {
    for (const int64_t tokens : {512, 1024}) {
        for (const double ratio : {0.1, 0.3, 0.5, 0.8}) {
            const GemmConfig config = large_product(tokens, ratio, nvlink_machine());
            const double share = static_cast<double>(config.remote_workers) / config.workers();
            EXPECT_NEAR(share, ratio, 0.05) << config.to_string();
        }
    }
}

TEST(GemmPlan, DivisorsDivideAsDivisionDoes) {
    constexpr int kMost = std::numeric_limits<int>::max();
    RandomShape random{std::mt19937(8)};
    for (int i = 0; i < 200'000; ++i) {
        const int64_t bits = random.between(0, 30);
        const auto divisor =
            static_cast<int>(i < 2000 ? i + 1 : random.between(1, (int64_t{2} << bits) - 1));
        const Divisor by(divisor);
        const int multiple = static_cast<int>(random.between(0, kMost / divisor)) * divisor;
        for (const int number : {0, 1, multiple, std::max(0, multiple - 1), divisor,
                                 static_cast<int>(random.between(0, kMost)), kMost}) {
            ASSERT_EQ(by.quotient(number), number / divisor) << number << " / " << divisor;
        }
    }
}

TEST(GemmPlan, WorkersOfATierGetEqualShares) {
    GemmShape shape;
    shape.tokens = 8;
    shape.weight = {28672, 7168, DType::kBF16};
    shape.direct_remote_atoms = shape.weight.atoms() / 100;
    const GemmConfig config = choose_gemm_config(shape, GemmMachine{});
    const WorkLine line = work_line(shape, config);
    for (int w = 1; w < line.local_workers(); ++w) {
        const int worker = line.remote_workers() + w;
        const int mine = line.begin(worker + 1) - line.begin(worker);
        const int first = line.begin(line.remote_workers() + 1) - line.begin(line.remote_workers());
        EXPECT_NEAR(mine, first, 2 * config.alignment);
    }
}

TEST(GemmPlan, TileOrderVisitsEveryTileOnce) {
    for (const int row_blocks : {1, 7, 8, 9, 56}) {
        for (const int token_tiles : {1, 3, 16}) {
            const TileOrder order{row_blocks, token_tiles, 8};
            std::map<std::pair<int, int>, int> seen;
            for (int tile = 0; tile < order.tiles(); ++tile) {
                ++seen[{order.row_block(tile), order.token_tile(tile)}];
            }
            ASSERT_EQ(static_cast<int>(seen.size()), row_blocks * token_tiles);
            for (const auto& [place, count] : seen) {
                ASSERT_LT(place.first, row_blocks);
                ASSERT_LT(place.second, token_tiles);
                ASSERT_EQ(count, 1);
            }
        }
    }
}

TEST(GemmPlan, RemoteBytesCrossOnceUpToOneClusterOfTokens) {
    for (const int64_t tokens : {1, 64, 65, 128, 200, 256}) {
        GemmShape shape;
        shape.tokens = tokens;
        shape.weight = {7168, 7168, DType::kBF16};
        shape.direct_remote_atoms = shape.weight.atoms() / 20;
        const GemmConfig config = choose_gemm_config(shape, GemmMachine{});
        if (config.kernel == GemmKernel::kPrefill) {
            EXPECT_EQ(token_tiles(shape, config), 1) << config.to_string();
        }
    }
}

TEST(GemmPlan, WideTilesFillWholeWaves) {
    // Row blocks of 128 would be 96 and 112 tiles of 256 tokens for 132 SMs.
    for (const auto& [rows, cols] : {std::pair(12288, 4096), std::pair(7168, 7168)}) {
        GemmShape shape;
        shape.tokens = 256;
        shape.weight = {rows, cols, DType::kBF16};
        const GemmConfig config = choose_gemm_config(shape, GemmMachine{});
        ASSERT_EQ(config.kernel, GemmKernel::kWide) << config.to_string();
        EXPECT_EQ(row_blocks(shape, config).total, 64);
        EXPECT_EQ(config.ctas(), 128);
    }
}

TEST(GemmPlan, WideTilesNeitherReadRemoteAtomsNorHoldGateAndUp) {
    RandomShape shapes{std::mt19937(4)};
    int wide = 0;
    for (int i = 0; i < 3000; ++i) {
        const GemmShape shape = shapes.next();
        const GemmConfig config = choose_gemm_config(shape, GemmMachine{});
        if (config.kernel != GemmKernel::kWide) continue;
        ++wide;
        ASSERT_EQ(shape.direct_remote_atoms, 0);
        ASSERT_FALSE(shape.gated);
        ASSERT_EQ(config.streamed_tiles, 0);
        ASSERT_EQ(config.remote_workers, 0);
        ASSERT_GE(row_blocks(shape, config).total * config.rows_per_tile, shape.weight.rows);
        ASSERT_GE(token_tiles(shape, config) * config.tokens_per_tile * config.cluster,
                  shape.tokens);
    }
    EXPECT_GT(wide, 100);
}

TEST(GemmPlan, RefusesWhatItCannotCompute) {
    GemmShape shape;
    shape.tokens = 1;
    shape.weight = {64, 64, DType::kF32};
    EXPECT_THROW(choose_gemm_config(shape, GemmMachine{}), Error);
    shape.weight = {0, 64, DType::kBF16};
    EXPECT_THROW(choose_gemm_config(shape, GemmMachine{}), Error);
    shape.weight = {64, 64, DType::kBF16};
    shape.tokens = 0;
    EXPECT_THROW(choose_gemm_config(shape, GemmMachine{}), Error);
}

}  // namespace
}  // namespace dak::cuda
