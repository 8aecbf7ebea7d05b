#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/check.h"
#include "ops/cuda/gemm_product.h"
#include "ops/cuda/small_ops/small_ops.h"
#include "ops/cuda/split_gemm/split_gemm.h"

// A product that ends in a residual, a norm, and the product behind it: folded, against the norm's
// own kernel and an fp64 oracle.

namespace dak::cuda {
namespace {

struct FoldCase {
    int64_t tokens = 8, width = 256, inner = 128, rows = 192;
    DType dtype = DType::kBF16;
    NormKind kind = NormKind::kLayer;
    bool gated = false;
    float mean = 0;                ///< of the residual
    float assumed_error = 0.1f;    ///< of the assumed mean, in deviations
    float assumed_factor = 1.25f;  ///< of the assumed factor
    double remote = 0;             ///< share of both weights
    uint32_t seed = 1;

    std::string to_string() const {
        return fmt::format("N{} width {} inner {} rows {} {} {} gated {} mean {} remote {:.2f}",
                           tokens, width, inner, rows, name_of(dtype),
                           kind == NormKind::kLayer ? "layer" : "rms", gated, mean, remote);
    }
};

class FoldedNorms : public ::testing::Test {
  protected:
    void SetUp() override {
        int count = 0, major = 0;
        if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 ||
            cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
            major != 9) {
            GTEST_SKIP() << "needs a Hopper GPU (sm_90)";
        }
        machine_ = current_gemm_machine();
        workspace_.emplace(machine_);
        check(cudaStreamCreate(&stream_), "stream");
    }
    void TearDown() override {
        if (stream_ != nullptr) cudaStreamDestroy(stream_);
    }

    GemmMachine machine_;
    std::optional<GemmWorkspace> workspace_;
    cudaStream_t stream_ = nullptr;
};

double half_of(const std::vector<uint8_t>& bytes, int64_t index, DType dtype) {
    uint16_t bits;
    std::memcpy(&bits, bytes.data() + index * 2, 2);
    return dtype == DType::kBF16 ? to_float(BF16{bits}) : to_float(F16{bits});
}

/// Everything of one case on the GPU.
class Fold {
  public:
    Fold(const FoldCase& c, const GemmMachine& machine, const GemmWorkspace& workspace)
        : c_(c),
          machine_(machine),
          workspace_(workspace),
          first_(first_case(c), local_, host_, host_),
          second_(second_case(c), local_, host_, host_),
          weight_(random_vector(c.width, c.seed + 7, 1.0f, 0.3f)),
          bias_(random_vector(c.width, c.seed + 8, 0.0f, 0.3f)),
          residual_(static_cast<size_t>(c.tokens * stride())),
          device_weight_(weight_),
          device_bias_(bias_),
          device_residual_(residual_.size()),
          x_(residual_.size()),
          hidden_(residual_.size()),
          assumed_(static_cast<size_t>(c.tokens)),
          found_(static_cast<size_t>(c.tokens)),
          moments_(static_cast<size_t>(folded_norm_floats(c.width))),
          weight_sums_(weight_times(second_.args().weight, weight_, machine, workspace)),
          folded_bias_(weight_times(second_.args().weight, bias_, machine, workspace)) {
        std::mt19937 generator(c.seed + 9);
        std::normal_distribution<float> normal(c.mean, 2.0f);
        for (uint16_t& value : residual_) {
            // A few features are far larger than the others, as in trained models.
            const float sample = normal(generator) + (generator() % 97 == 0 ? 60.0f : 0.0f);
            value = c.dtype == DType::kBF16 ? from_float<BF16>(sample).bits
                                            : from_float<F16>(sample).bits;
        }
        device_residual_.upload(residual_);
        const std::vector<float>& bias = second_.bias();
        std::vector<float> sums = folded_bias_;
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += bias[i];
        device_folded_bias_.upload(sums);
        device_weight_sums_.upload(weight_sums_);
    }

    /// [tokens, features] of the second product, after `configs` of either.
    std::vector<double> run(bool folded, const GemmConfig& first, const GemmConfig& second,
                            cudaStream_t stream) {
        x_.poison();
        hidden_.poison();
        moments_.poison();
        found_.poison();
        second_.poison();
        GemmArgs a = first_.args();
        a.y = x_.data();
        a.ldy = stride();
        a.epilogue.residual = device_residual_.data();
        a.epilogue.ld_residual = stride();
        GemmArgs b = second_.args();
        b.x = hidden_.data();
        b.ldx = stride();
        FoldedNorm norm{
            .kind = c_.kind,
            .eps = kEps,
            .width = c_.width,
            .weight = device_weight_.data(),
            .weight_sums = c_.kind == NormKind::kLayer ? device_weight_sums_.data() : nullptr,
            .assumed = assumed_.data(),
            .found = found_.data(),
            .scaled = hidden_.data(),
            .ld = stride(),
            .moments = moments_.data()};
        if (folded) {
            a.epilogue.norm_after = norm;
            b.epilogue.norm_before = norm;
            b.epilogue.bias = device_folded_bias_.data();
        }
        split_gemm(a, first, workspace_, stream);
        if (!folded) {
            cuda::norm({.kind = c_.kind,
                        .eps = kEps,
                        .weight = device_weight_.data(),
                        .bias = device_bias_.data(),
                        .x = x_.data(),
                        .ldx = stride(),
                        .out = hidden_.data(),
                        .ldo = stride(),
                        .rows = c_.tokens,
                        .width = c_.width,
                        .dtype = c_.dtype,
                        .scales = found_.data()},
                       stream);
        }
        split_gemm(b, second, workspace_, stream);
        check(cudaStreamSynchronize(stream), "products");
        const std::vector<uint8_t> bytes = second_.result();
        std::vector<double> values;
        for (int64_t n = 0; n < c_.tokens; ++n) {
            for (int64_t m = 0; m < features(); ++m) {
                values.push_back(half_of(bytes, n * b.ldy + m, c_.dtype));
            }
        }
        return values;
    }

    std::vector<uint16_t> x() const { return x_.download(); }
    std::vector<NormScale> found() const { return found_.download(); }

    /// Mean and factor of x, which run() has left.
    std::vector<NormScale> scales() const {
        const std::vector<uint16_t> x = x_.download();
        std::vector<NormScale> scales;
        for (int64_t n = 0; n < c_.tokens; ++n) {
            double mean = 0, squares = 0;
            for (int64_t k = 0; k < c_.width; ++k) mean += value(x, n, k);
            mean = c_.kind == NormKind::kLayer ? mean / static_cast<double>(c_.width) : 0;
            for (int64_t k = 0; k < c_.width; ++k) squares += std::pow(value(x, n, k) - mean, 2);
            const double factor = 1 / std::sqrt(squares / static_cast<double>(c_.width) + kEps);
            scales.push_back({static_cast<float>(mean), static_cast<float>(factor)});
        }
        return scales;
    }

    void assume(const std::vector<NormScale>& scales) {
        std::vector<NormScale> assumed = scales;
        for (NormScale& scale : assumed) {
            if (c_.kind == NormKind::kLayer) scale.mean += c_.assumed_error / scale.factor;
            scale.factor *= c_.assumed_factor;
        }
        assumed_.upload(assumed);
    }

    std::vector<double> oracle() const {
        const std::vector<uint16_t> x = x_.download();
        const std::vector<NormScale> scales = this->scales();
        const std::vector<float> w = second_.weights();
        std::vector<double> out;
        for (int64_t n = 0; n < c_.tokens; ++n) {
            std::vector<double> row;
            for (int64_t k = 0; k < c_.width; ++k) {
                const auto i = static_cast<size_t>(k);
                const NormScale s = scales[static_cast<size_t>(n)];
                row.push_back((value(x, n, k) - double{s.mean}) * double{s.factor} *
                                  double{weight_[i]} +
                              double{bias_[i]});
            }
            const auto linear = [&](int64_t m) {
                double sum = 0;
                for (int64_t k = 0; k < c_.width; ++k) {
                    sum += row[static_cast<size_t>(k)] *
                           double{w[static_cast<size_t>(m * c_.width + k)]};
                }
                return sum + double{second_.bias()[static_cast<size_t>(m)]};
            };
            for (int64_t m = 0; m < features(); ++m) {
                if (c_.gated) {
                    const int64_t gate = m / 64 * 128 + m % 64;
                    out.push_back(activated(linear(gate), Activation::kSilu) * linear(gate + 64));
                } else {
                    out.push_back(linear(m));
                }
            }
        }
        return out;
    }

    GemmShape first_shape() { return shape_of(first_.args()); }
    GemmShape second_shape() { return shape_of(second_.args()); }

  private:
    static constexpr float kEps = 1e-5f;

    static Case first_case(const FoldCase& c) {
        Case first{.tokens = c.tokens, .rows = c.width, .cols = c.inner, .dtype = c.dtype};
        first.bias = true;
        first.scale = 1.0f;
        first.seed = c.seed;
        first.remote_atoms = remote_atoms(first, c.remote);
        return first;
    }
    static Case second_case(const FoldCase& c) {
        Case second{.tokens = c.tokens, .rows = c.rows, .cols = c.width, .dtype = c.dtype};
        second.bias = true;
        second.gated = c.gated;
        second.activation = c.gated ? Activation::kSilu : Activation::kNone;
        second.scale = 1.0f;
        second.seed = c.seed + 100;
        second.remote_atoms = remote_atoms(second, c.remote);
        return second;
    }
    static int64_t remote_atoms(const Case& c, double share) {
        const PackedShape shape{c.rows, c.cols, c.dtype};
        return std::llround(share * static_cast<double>(shape.atoms()));
    }
    static std::vector<float> random_vector(int64_t size, uint32_t seed, float mean,
                                            float deviation) {
        std::mt19937 generator(seed);
        std::normal_distribution<float> normal(mean, deviation);
        std::vector<float> values(static_cast<size_t>(size));
        for (float& value : values) value = normal(generator);
        return values;
    }
    int64_t stride() const { return round_up(c_.width, 8); }
    int64_t features() const { return c_.gated ? c_.rows / 2 - 5 : c_.rows; }
    double value(const std::vector<uint16_t>& x, int64_t n, int64_t k) const {
        const uint16_t bits = x[static_cast<size_t>(n * stride() + k)];
        return c_.dtype == DType::kBF16 ? to_float(BF16{bits}) : to_float(F16{bits});
    }

    FoldCase c_;
    const GemmMachine& machine_;
    const GemmWorkspace& workspace_;
    Arena local_ = Arena::device("local", 16 * kMiB);
    Arena host_ = Arena::pinned_host("host", 16 * kMiB);
    Product first_, second_;
    std::vector<float> weight_, bias_;
    std::vector<uint16_t> residual_;
    DeviceArray<float> device_weight_, device_bias_;
    DeviceArray<uint16_t> device_residual_, x_, hidden_;
    DeviceArray<NormScale> assumed_, found_;
    DeviceArray<float> moments_;
    std::vector<float> weight_sums_, folded_bias_;
    DeviceArray<float> device_weight_sums_{weight_sums_.size()};
    DeviceArray<float> device_folded_bias_{folded_bias_.size()};
};

double distance(const std::vector<double>& values, const std::vector<double>& reference) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < values.size(); ++i) {
        if (!std::isfinite(values[i])) return INFINITY;
        error += std::pow(values[i] - reference[i], 2);
        norm += std::pow(reference[i], 2);
    }
    return std::sqrt(error / norm);
}

TEST_F(FoldedNorms, AreAsExactAsTheirOwnKernel) {
    std::mt19937 generator(31);
    const auto pick = [&generator](std::initializer_list<int64_t> values) {
        return values.begin()[generator() % values.size()];
    };
    for (int i = 0; i < 60 && !HasFailure(); ++i) {
        FoldCase c;
        c.tokens = pick({1, 2, 3, 7, 8, 9, 15, 16});
        c.width = pick({64, 65, 72, 100, 128, 576, 1000, 1024, 1100});
        c.inner = pick({64, 200, 512, 1500});
        c.rows = pick({64, 100, 192, 640, 1300});
        c.dtype = pick({0, 1}) == 0 ? DType::kBF16 : DType::kF16;
        c.kind = pick({0, 1}) == 0 ? NormKind::kLayer : NormKind::kRms;
        c.gated = pick({0, 0, 1}) == 1;
        if (c.gated) c.rows = round_up(c.rows, 128);
        c.mean = static_cast<float>(pick({0, 0, 3, -40}));
        c.remote = static_cast<double>(pick({0, 0, 30, 100})) / 100;
        c.seed = static_cast<uint32_t>(generator() % 100'000);
        SCOPED_TRACE(c.to_string());

        Fold fold(c, machine_, *workspace_);
        const GemmConfig first = choose_gemm_config(fold.first_shape(), machine_);
        const GemmConfig second = choose_gemm_config(fold.second_shape(), machine_);
        const std::vector<double> apart = fold.run(false, first, second, stream_);
        const std::vector<uint16_t> x = fold.x();
        fold.assume(fold.scales());
        const std::vector<double> folded = fold.run(true, first, second, stream_);
        EXPECT_TRUE(x == fold.x()) << "the residual stream differs";

        const std::vector<NormScale> scales = fold.scales(), found = fold.found();
        for (size_t n = 0; n < scales.size(); ++n) {
            EXPECT_NEAR(found[n].mean, scales[n].mean, 1e-4 * (1 + std::abs(c.mean)));
            EXPECT_NEAR(found[n].factor / scales[n].factor, 1, 1e-4);
        }
        const std::vector<double> reference = fold.oracle();
        EXPECT_LT(distance(folded, reference), 1.2 * distance(apart, reference) + 1e-4);
        EXPECT_TRUE(folded == fold.run(true, first, second, stream_)) << "two runs differ";
    }
}

TEST_F(FoldedNorms, WorkWithEveryUseOfClusters) {
    for (const int64_t tokens : {8, 12, 16}) {
        FoldCase c{.tokens = tokens, .width = 1024, .inner = 1024, .rows = 1024};
        SCOPED_TRACE(c.to_string());
        Fold fold(c, machine_, *workspace_);
        GemmConfig config = choose_gemm_config(fold.first_shape(), machine_);
        config.weight_slots = 4;
        config.x_slots = 3;
        config.row_tiles = 1;
        const std::vector<double> apart = fold.run(false, config, config, stream_);
        fold.assume(fold.scales());
        const double distance_apart = distance(apart, fold.oracle());
        for (const ClusterUse use : {ClusterUse::kNone, ClusterUse::kSplitK, ClusterUse::kX}) {
            for (const int row_tiles : {1, 2}) {
                config.row_tiles = row_tiles;
                config.cluster_use = use;
                config.cluster = use == ClusterUse::kNone ? 1 : 2;
                const int blocks = row_blocks(fold.first_shape(), config).total;
                config.local_workers = use == ClusterUse::kSplitK ? blocks * 2
                                       : use == ClusterUse::kX    ? machine_.clusters_of_2
                                                                  : machine_.sms;
                SCOPED_TRACE(config.to_string());
                const std::vector<double> folded = fold.run(true, config, config, stream_);
                EXPECT_LT(distance(folded, fold.oracle()), 1.2 * distance_apart + 1e-4);
            }
        }
    }
}

TEST_F(FoldedNorms, WeightTimesVectorIsAsExactAsFp32) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
        Arena local = Arena::device("local", kMiB);
        Arena host = Arena::pinned_host("host", kMiB);
        Case c{.tokens = 1, .rows = 300, .cols = 500, .dtype = dtype, .remote_atoms = 17};
        Product product(c, local, host, host);
        std::mt19937 generator(5);
        std::normal_distribution<float> normal(1.0f, 0.4f);
        std::vector<float> vector(500);
        for (float& value : vector) value = normal(generator);
        const std::vector<float> found =
            weight_times(product.args().weight, vector, machine_, *workspace_);
        const std::vector<float> w = product.weights();
        for (size_t m = 0; m < 300; ++m) {
            double sum = 0;
            for (size_t k = 0; k < 500; ++k) sum += double{w[m * 500 + k]} * double{vector[k]};
            EXPECT_NEAR(found[m], sum, 2e-6 * 500 / 10);
        }
    }
}

TEST_F(FoldedNorms, RefuseWhatTheyCannotServe) {
    FoldCase c;
    Fold fold(c, machine_, *workspace_);
    Arena local = Arena::device("local", kMiB);
    Case wide{.tokens = 17};
    Product product(wide, local, local, local);
    GemmArgs args = product.args();
    args.epilogue.norm_after = FoldedNorm{.width = args.out_features};
    EXPECT_THROW(
        split_gemm(args, choose_gemm_config(shape_of(args), machine_), *workspace_, stream_),
        Error);
    args = product.args();
    args.tokens = 8;
    args.epilogue.norm_before = FoldedNorm{.width = 64, .scaled = args.y};
    EXPECT_THROW(
        split_gemm(args, choose_gemm_config(shape_of(args), machine_), *workspace_, stream_),
        Error);
}

}  // namespace
}  // namespace dak::cuda
