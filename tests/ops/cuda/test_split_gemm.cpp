#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "ops/cuda/check.h"
#include "ops/cuda/gemm_product.h"
#include "ops/cuda/split_gemm/split_gemm.h"
#include "ops/cuda/staging.h"

namespace dak::cuda {
namespace {

bool has_hopper() {
    int count = 0, major = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0 &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
           major == 9;
}

class SplitGemm : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!has_hopper()) GTEST_SKIP() << "needs a Hopper GPU (sm_90)";
        machine_ = current_gemm_machine();
        workspace_.emplace(machine_);
        check(cudaStreamCreate(&stream_), "stream");
        poison_partials();
    }
    void TearDown() override {
        if (stream_ != nullptr) cudaStreamDestroy(stream_);
    }

    /// Runs the case twice with `config` over poisoned results and checks both.
    void expect_right(const Case& c, const std::vector<GemmConfig>& configs) {
        const int64_t bytes = PackedShape{c.rows, c.cols, c.dtype}.bytes();
        Arena local = Arena::device("local", bytes);
        Arena loopback = Arena::device("loopback", bytes);
        Arena host = Arena::pinned_host("host", bytes);
        Product product(c, local, host, loopback);
        for (const GemmConfig& config : configs) {
            SCOPED_TRACE(c.to_string() + " | " + config.to_string());
            std::vector<uint8_t> first;
            for (int run = 0; run < 2; ++run) {
                product.poison();
                split_gemm(product.args(), config, *workspace_, stream_);
                check(cudaStreamSynchronize(stream_), "split GEMM");
                if (run == 0) first = product.result();
            }
            EXPECT_EQ(product.verdict(stream_), "");
            EXPECT_TRUE(first == product.result()) << "two runs differ";
            EXPECT_TRUE(flags_are_clear());
        }
    }

    static GemmShape shape_of_case(const Case& c) {
        GemmShape shape;
        shape.tokens = c.tokens;
        shape.weight = {c.rows, c.cols, c.dtype};
        shape.gated = c.gated;
        shape.direct_remote_atoms = c.tier == RemoteTier::kStaged ? 0 : c.remote_atoms;
        return shape;
    }

    GemmConfig config_of(const Case& c, const GemmSwitches& switches = {}) const {
        return choose_gemm_config(shape_of_case(c), machine_, switches);
    }

    bool flags_are_clear() const {
        std::vector<uint32_t> flags(static_cast<size_t>(machine_.sms) * 2);
        check(cudaMemcpy(flags.data(), workspace_->flags(), flags.size() * 4, cudaMemcpyDefault),
              "flags");
        return std::all_of(flags.begin(), flags.end(), [](uint32_t flag) { return flag == 0; });
    }

    void poison_partials() const {
        const auto bytes = static_cast<size_t>(reinterpret_cast<std::byte*>(workspace_->flags()) -
                                               static_cast<std::byte*>(workspace_->partials()));
        check(cudaMemset(workspace_->partials(), kPoison, bytes), "poison");
    }

    GemmMachine machine_;
    std::optional<GemmWorkspace> workspace_;
    cudaStream_t stream_ = nullptr;
};

struct RandomCases {
    std::mt19937 generator;

    int64_t between(int64_t low, int64_t high) {
        return std::uniform_int_distribution<int64_t>(low, high)(generator);
    }
    bool one_in(int64_t n) { return between(1, n) == 1; }

    Case next(int64_t max_size) {
        constexpr int64_t kTokens[] = {1,   2,   7,   8,   9,   15,  16,  17,  31,
                                       32,  33,  48,  63,  64,  65,  96,  127, 128,
                                       129, 200, 255, 256, 257, 511, 512, 513};
        Case c;
        c.tokens = kTokens[between(0, std::size(kTokens) - 1)];
        c.rows = between(1, max_size);
        c.cols = between(1, max_size);
        if (one_in(3)) c.rows = round_up(c.rows, 64) + between(-1, 1);
        if (one_in(3)) c.cols = round_up(c.cols, 64) + between(-1, 1);
        c.dtype = one_in(2) ? DType::kF16 : DType::kBF16;
        c.activation = static_cast<Activation>(between(0, 4));
        c.gated = one_in(4);
        if (c.gated) c.rows = round_up(c.rows, 128);
        c.bias = one_in(2);
        c.residual = one_in(2);
        c.fp32_output = one_in(4);
        c.ldy_padding = one_in(2) ? 0 : between(1, 9);
        if (one_in(3)) {  // nothing but the product has its own way out
            c.activation = Activation::kNone;
            c.gated = c.bias = c.residual = false;
            c.scale = 1.0f;
            c.rows = round_up(c.rows, 8);
            c.ldy_padding = 0;
        }
        c.tier = static_cast<RemoteTier>(between(0, 2));
        const PackedShape shape{c.rows, c.cols, c.dtype};
        const int64_t splits[] = {0, shape.atoms(), std::min(shape.atoms(), shape.k_atoms()),
                                  between(0, shape.atoms()), between(0, shape.atoms())};
        c.remote_atoms = splits[between(0, 4)];
        c.seed = static_cast<uint32_t>(generator());
        return c;
    }
};

TEST_F(SplitGemm, RandomShapesAndSplitsMatchTheOracle) {
    RandomCases cases{std::mt19937(20)};
    for (int i = 0; i < 400 && !HasFailure(); ++i) {
        const Case c = cases.next(1500);
        expect_right(c, {config_of(c)});
    }
}

TEST_F(SplitGemm, SmallShapesMatchTheOracle) {
    RandomCases cases{std::mt19937(21)};
    for (int i = 0; i < 60 && !HasFailure(); ++i) {
        const Case c = cases.next(200);
        expect_right(c, {config_of(c)});
    }
}

TEST_F(SplitGemm, EveryMechanismMayBeOff) {
    RandomCases cases{std::mt19937(22)};
    for (int i = 0; i < 60 && !HasFailure(); ++i) {
        const Case c = cases.next(1500);
        std::vector<GemmConfig> configs;
        for (int off = 0; off < 4; ++off) {
            GemmSwitches switches;
            if (off == 0) switches.window = false;
            if (off == 1) switches.multicast = false;
            if (off == 2) switches.align_waves = false;
            if (off == 3) switches.early_weights = false;
            configs.push_back(config_of(c, switches));
        }
        expect_right(c, configs);
    }
}

TEST_F(SplitGemm, AnyWindowAndNumberOfWorkers) {
    RandomCases cases{std::mt19937(23)};
    for (int i = 0; i < 60 && !HasFailure(); ++i) {
        Case c = cases.next(1500);
        if (c.tier == RemoteTier::kStaged) c.tier = RemoteTier::kLoopback;
        c.remote_atoms = std::max<int64_t>(c.remote_atoms, 1);
        std::vector<GemmConfig> configs;
        for (const int slots : {1, 2, 3}) {
            GemmConfig config = config_of(c);
            config.remote_slots = slots;
            configs.push_back(config);
            if (config.kernel == GemmKernel::kPrefill) continue;
            config.remote_workers = slots * 5;
            config.local_workers = std::min(machine_.sms - 15, config.local_workers);
            configs.push_back(config);
        }
        expect_right(c, configs);
    }
}

TEST_F(SplitGemm, DecodeVariantsAgree) {
    RandomCases cases{std::mt19937(24)};
    for (int i = 0; i < 40 && !HasFailure(); ++i) {
        Case c = cases.next(1500);
        c.tokens = std::min<int64_t>(c.tokens, 64);
        c.tier = RemoteTier::kStaged;
        const GemmShape shape = shape_of_case(c);
        const auto k_atoms = static_cast<int>(shape.weight.k_atoms());
        std::vector<GemmConfig> configs;
        for (const int row_tiles : {1, 2}) {
            if (c.gated && row_tiles == 1) continue;
            GemmConfig config = config_of(c);
            config.row_tiles = row_tiles;
            config.cluster = 1;
            config.cluster_use = ClusterUse::kNone;
            config.local_workers =
                std::min(machine_.sms, row_blocks(shape, config).total * k_atoms);
            configs.push_back(config);
            config.weight_slots = 2;
            config.x_slots = 2;
            configs.push_back(config);
            config.cluster = 2;
            config.cluster_use = ClusterUse::kX;
            config.local_workers =
                std::min(machine_.clusters_of_2, row_blocks(shape, config).total * k_atoms);
            configs.push_back(config);
            config.weight_slots = 6;
            config.x_slots = 3;
            configs.push_back(config);
            config.cluster_use = ClusterUse::kSplitK;
            for (const int cluster : {2, 4}) {
                config.cluster = cluster;
                const int blocks = row_blocks(shape, config).total;
                const int at_once = cluster == 2 ? machine_.clusters_of_2 : machine_.clusters_of_4;
                if ((cluster - 1) * round_up(ceil_div(k_atoms, cluster), 2) >= k_atoms ||
                    blocks > at_once) {
                    continue;
                }
                config.local_workers = blocks * cluster;
                configs.push_back(config);
            }
        }
        expect_right(c, configs);
    }
}

TEST_F(SplitGemm, WideTilesOfEveryWidth) {
    RandomCases cases{std::mt19937(27)};
    for (int i = 0; i < 40 && !HasFailure(); ++i) {
        Case c = cases.next(1500);
        c.gated = false;
        c.tier = RemoteTier::kStaged;
        std::vector<GemmConfig> configs;
        const std::pair<int, int> tiles[] = {{64, 64},   {64, 96},   {128, 96},
                                             {128, 112}, {128, 168}, {128, 192}};
        for (const auto& [tokens, rows] : tiles) {
            GemmConfig config;
            config.kernel = GemmKernel::kWide;
            config.tokens_per_tile = tokens;
            config.rows_per_tile = rows;
            config.cluster = 2;
            config.cluster_use = ClusterUse::kWeights;
            config.early_weights = rows != 112;
            for (const int workers : {1, machine_.clusters_of_2}) {
                config.local_workers = workers;
                configs.push_back(config);
            }
        }
        expect_right(c, configs);
    }
}

TEST_F(SplitGemm, PrefillVariantsAgree) {
    RandomCases cases{std::mt19937(25)};
    const std::tuple<int, int, ClusterUse> tiles[] = {
        {128, 1, ClusterUse::kNone},   {128, 2, ClusterUse::kWeights},
        {128, 2, ClusterUse::kSplitK}, {256, 2, ClusterUse::kSplitK},
        {256, 1, ClusterUse::kNone},   {256, 2, ClusterUse::kWeights},
        {256, 4, ClusterUse::kWeights}};
    for (int i = 0; i < 40 && !HasFailure(); ++i) {
        Case c = cases.next(1500);
        c.tokens += 64;
        c.remote_atoms = 0;
        std::vector<GemmConfig> configs;
        for (const auto& [tokens, cluster, use] : tiles) {
            GemmConfig config;
            config.kernel = GemmKernel::kPrefill;
            config.row_tiles = 2;
            config.alignment = 4;
            config.tokens_per_tile = tokens;
            config.cluster = cluster;
            config.cluster_use = use;
            config.local_workers = cluster == 1   ? machine_.sms
                                   : cluster == 2 ? machine_.clusters_of_2
                                                  : machine_.clusters_of_4;
            const GemmShape shape = shape_of_case(c);
            const int count = row_blocks(shape, config).total * token_tiles(shape, config);
            if (use == ClusterUse::kSplitK) {
                const auto k_atoms = static_cast<int>(shape.weight.k_atoms());
                if (count > machine_.clusters_of_2 ||
                    round_up(ceil_div(k_atoms, 2), 4) >= k_atoms) {
                    continue;
                }
                config.streamed_tiles = count;
                config.local_workers = count * 2;
                config.alignment = 4;
                configs.push_back(config);
                continue;
            }
            for (const int streamed : {0, count, count / 2}) {
                config.streamed_tiles = streamed;
                configs.push_back(config);
            }
        }
        expect_right(c, configs);
    }
}

TEST_F(SplitGemm, LargeProductsWrapTheRingManyTimes) {
    for (const int64_t tokens : {8, 64, 128, 512}) {
        Case c;
        c.tokens = tokens;
        c.rows = 4096 + 64;
        c.cols = 4096 + 8;
        c.residual = true;
        c.tier = RemoteTier::kLoopback;
        c.remote_atoms = 977;
        expect_right(c, {config_of(c)});
    }
}

TEST_F(SplitGemm, StagedThroughTheRingMatchesTheOracle) {
    Arena local = Arena::device("local", 96 * kMiB);
    Arena loopback = Arena::device("loopback", kMiB);
    StagingRing ring(8 * kMiB, 2);
    std::vector<std::unique_ptr<Product>> products;
    Arena host = Arena::pinned_host("host", 96 * kMiB);
    for (uint32_t i = 0; i < 6; ++i) {
        Case c;
        c.tokens = i % 2 == 0 ? 300 : 8;
        c.rows = 1024;
        c.cols = 1024;
        c.remote_atoms = 100 + 7 * i;
        c.seed = i;
        products.push_back(std::make_unique<Product>(c, local, host, loopback));
        products.back()->poison();
    }
    ring.begin(stream_);
    for (const auto& product : products) {
        GemmArgs args = product->args();
        args.staged = true;
        args.weight = ring.stage(args.weight, stream_);
        split_gemm(args, choose_gemm_config(shape_of(args), machine_), *workspace_, stream_);
        ring.release(stream_);
    }
    ring.end(stream_);
    for (const auto& product : products) EXPECT_EQ(product->verdict(stream_), "");
}

/// A dependent chain of split products, each reading what the one before wrote.
class Chain {
  public:
    Chain(int64_t tokens, const GemmMachine& machine) : machine_(machine) {
        Case c;
        c.tokens = tokens;
        c.rows = c.cols = 1024;
        c.tier = RemoteTier::kHost;
        for (uint32_t i = 0; i < 4; ++i) {
            c.seed = 10 + i;
            c.remote_atoms = 13 * i;
            products_.push_back(std::make_unique<Product>(c, local_, host_, local_));
        }
    }
    void enqueue(const GemmWorkspace& workspace, cudaStream_t stream) {
        for (size_t i = 0; i < products_.size(); ++i) {
            GemmArgs args = products_[i]->args();
            if (i > 0) args.x = products_[i - 1]->args().y;
            split_gemm(args, choose_gemm_config(shape_of(args), machine_), workspace, stream);
        }
    }
    void poison() {
        for (const auto& product : products_) product->poison();
    }
    std::vector<uint8_t> result() const { return products_.back()->result(); }

  private:
    GemmMachine machine_;
    Arena local_ = Arena::device("local", 64 * kMiB);
    Arena host_ = Arena::pinned_host("host", 64 * kMiB);
    std::vector<std::unique_ptr<Product>> products_;
};

TEST_F(SplitGemm, GraphReplayedTenThousandTimesGivesTheSameBits) {
    for (const int64_t tokens : {8, 200}) {
        Chain chain(tokens, machine_);
        chain.poison();
        chain.enqueue(*workspace_, stream_);
        check(cudaStreamSynchronize(stream_), "eager");
        const std::vector<uint8_t> eager = chain.result();

        cudaGraph_t graph = nullptr;
        cudaGraphExec_t executable = nullptr;
        check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "capture");
        chain.enqueue(*workspace_, stream_);
        check(cudaStreamEndCapture(stream_, &graph), "capture");
        check(cudaGraphInstantiate(&executable, graph, 0), "graph");
        for (int round = 0; round < 100; ++round) {
            chain.poison();
            for (int i = 0; i < 100; ++i) check(cudaGraphLaunch(executable, stream_), "replay");
            check(cudaStreamSynchronize(stream_), "replay");
            ASSERT_TRUE(chain.result() == eager) << "round " << round;
        }
        EXPECT_TRUE(flags_are_clear());
        cudaGraphExecDestroy(executable);
        cudaGraphDestroy(graph);
    }
}

TEST_F(SplitGemm, RefusesWhatTheKernelsCannotTake) {
    Arena local = Arena::device("local", kMiB);
    Arena remote = Arena::device("remote", kMiB);
    Case c;
    Product product(c, local, remote, remote);
    const GemmConfig config = config_of(c);
    GemmArgs args = product.args();
    args.ldx = 65;
    EXPECT_THROW(split_gemm(args, config, *workspace_, stream_), Error);
    args = product.args();
    args.out_features = 65;
    EXPECT_THROW(split_gemm(args, config, *workspace_, stream_), Error);
    args = product.args();
    args.ldy = 3;
    EXPECT_THROW(split_gemm(args, config, *workspace_, stream_), Error);
    GemmConfig impossible = config;
    impossible.local_workers = 1000;
    EXPECT_THROW(split_gemm(product.args(), impossible, *workspace_, stream_), Error);
    impossible = config;
    impossible.tokens_per_tile = 24;
    EXPECT_THROW(split_gemm(product.args(), impossible, *workspace_, stream_), Error);
}

}  // namespace
}  // namespace dak::cuda
