#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/check.h"
#include "ops/cuda/device_array.h"
#include "ops/cuda/reference.h"
#include "ops/cuda/split_gemm/split_gemm.h"

// One split GEMM with operands on the GPU, poisoned surroundings and an fp64 oracle.

namespace dak::cuda {

inline constexpr int64_t kGuardRows = 1;  // rows past the end of y that must stay as they were

enum class RemoteTier { kHost, kLoopback, kStaged };

struct Case {
    int64_t tokens = 1, rows = 64, cols = 64;
    DType dtype = DType::kBF16;
    int64_t remote_atoms = 0;
    RemoteTier tier = RemoteTier::kHost;
    Activation activation = Activation::kNone;
    bool gated = false, bias = false, residual = false, fp32_output = false;
    int64_t ldy_padding = 0;
    float scale = 0.75f;
    uint32_t seed = 1;

    std::string to_string() const {
        return fmt::format(
            "N{} M{} K{} {} remote {} tier {} activation {} gated {} bias {} residual {} fp32 {} "
            "ldy +{}",
            tokens, rows, cols, name_of(dtype), remote_atoms, static_cast<int>(tier),
            static_cast<int>(activation), gated, bias, residual, fp32_output, ldy_padding);
    }
};

inline double activated(double x, Activation activation) {
    switch (activation) {
        case Activation::kNone:
            return x;
        case Activation::kRelu:
            return std::max(x, 0.0);
        case Activation::kGelu:
            return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
        case Activation::kGeluTanh:
            return 0.5 * x *
                   (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
        case Activation::kSilu:
            return x / (1 + std::exp(-x));
    }
    return x;
}

/// One product with all its operands on the GPU and its oracle.
class Product {
  public:
    Product(const Case& c, Arena& local, Arena& host, Arena& loopback)
        : c_(c),
          shape_{c.rows, c.cols, c.dtype},
          features_(c.gated ? c.rows / 2 - 5 : c.rows),
          ldx_(round_up(c.cols, 8)),
          ldy_(features_ + c.ldy_padding),
          x_(random_values(c.tokens * ldx_, c.seed, 1.0)),
          w_(random_values(c.rows * c.cols, c.seed + 1, 1.0 / std::sqrt(double(c.cols)))),
          bias_(static_cast<size_t>(c.rows)),
          residual_(random_values(c.tokens * features_, c.seed + 2, 1.0)),
          device_x_(x_),
          device_bias_(static_cast<size_t>(c.rows)),
          device_residual_(residual_),
          y_(static_cast<size_t>((c.tokens + kGuardRows) * ldy_ * (c.fp32_output ? 4 : 2))) {
        std::mt19937 generator(c.seed + 3);
        std::normal_distribution<float> normal;
        for (float& value : bias_) value = normal(generator);
        device_bias_.upload(bias_);
        // Padding columns of x are never to be read.
        poison_padding();
        pack(local, c.tier == RemoteTier::kHost ? host : loopback);
    }

    GemmArgs args() {
        GemmArgs args;
        args.weight = weight_;
        args.staged = c_.tier == RemoteTier::kStaged;
        args.x = device_x_.data();
        args.ldx = ldx_;
        args.tokens = c_.tokens;
        args.y = y_.data();
        args.ldy = ldy_;
        args.out_features = features_;
        args.fp32_output = c_.fp32_output;
        args.epilogue.bias = c_.bias ? device_bias_.data() : nullptr;
        args.epilogue.activation = c_.activation;
        args.epilogue.gated = c_.gated;
        args.epilogue.scale = c_.scale;
        args.epilogue.residual = c_.residual ? device_residual_.data() : nullptr;
        args.epilogue.ld_residual = features_;
        return args;
    }

    /// Row-major, as stored.
    std::vector<float> weights() const {
        std::vector<float> values;
        for (const uint16_t bits : w_) values.push_back(widened(bits));
        return values;
    }
    const std::vector<float>& bias() const { return bias_; }

    void poison() { y_.poison(); }
    std::vector<uint8_t> result() const { return y_.download(); }

    /// Empty when the result is right; otherwise what is wrong with it.
    std::string verdict(cudaStream_t stream) const {
        const std::vector<double> expected = oracle(stream);
        const std::vector<uint8_t> bytes = y_.download();
        double error = 0, norm = 0, worst = 0;
        for (int64_t n = 0; n < c_.tokens; ++n) {
            for (int64_t m = 0; m < features_; ++m) {
                const double value = element(bytes, n * ldy_ + m);
                const double reference = expected[static_cast<size_t>(n * features_ + m)];
                if (!std::isfinite(value)) {
                    return fmt::format("y[{}, {}] is {}, not {}", n, m, value, reference);
                }
                error += (value - reference) * (value - reference);
                norm += reference * reference;
                worst = std::max(worst, std::abs(value - reference) / (1 + std::abs(reference)));
            }
        }
        for (int64_t n = 0; n < c_.tokens + kGuardRows; ++n) {
            for (int64_t m = n < c_.tokens ? features_ : 0; m < ldy_; ++m) {
                if (!std::isnan(element(bytes, n * ldy_ + m))) {
                    return fmt::format("y[{}, {}] outside the result was written", n, m);
                }
            }
        }
        // Half an ulp of the output type relative to each value, plus fp32 rounding of the sum.
        const double ulp = c_.fp32_output             ? 1e-6
                           : c_.dtype == DType::kBF16 ? 1.0 / 256
                                                      : 1.0 / 2048;
        const double relative = std::sqrt(error / std::max(norm, 1e-30));
        if (relative > 0.5 * ulp + 2e-5 || worst > ulp + 1e-4) {
            return fmt::format("error {:.2e} of the norm, worst {:.2e}", relative, worst);
        }
        return {};
    }

  private:
    uint16_t rounded(float value) const {
        return c_.dtype == DType::kBF16 ? from_float<BF16>(value).bits
                                        : from_float<F16>(value).bits;
    }
    float widened(uint16_t bits) const {
        return c_.dtype == DType::kBF16 ? to_float(BF16{bits}) : to_float(F16{bits});
    }
    double element(const std::vector<uint8_t>& bytes, int64_t index) const {
        if (c_.fp32_output) {
            float value;
            std::memcpy(&value, bytes.data() + index * 4, 4);
            return value;
        }
        uint16_t bits;
        std::memcpy(&bits, bytes.data() + index * 2, 2);
        return widened(bits);
    }
    std::vector<uint16_t> random_values(int64_t count, uint32_t seed, double scale) const {
        std::mt19937 generator(seed);
        std::vector<uint16_t> values(static_cast<size_t>(count));
        for (uint16_t& value : values) {
            const double uniform = static_cast<double>(generator()) / 4294967296.0 - 0.5;
            value = rounded(static_cast<float>(uniform * 3.4641 * scale));
        }
        return values;
    }
    void poison_padding() {
        for (int64_t n = 0; n < c_.tokens; ++n) {
            for (int64_t k = c_.cols; k < ldx_; ++k) x_[static_cast<size_t>(n * ldx_ + k)] = 0xffff;
        }
        device_x_.upload(x_);
    }
    void pack(Arena& local, Arena& remote) {
        std::vector<std::byte> packed(static_cast<size_t>(shape_.bytes()));
        const auto* from = reinterpret_cast<const std::byte*>(w_.data());
        for (int64_t atom = 0; atom < shape_.atoms(); ++atom) {
            const int64_t row = atom / shape_.k_atoms() * kAtomRows;
            const int64_t col = atom % shape_.k_atoms() * 64;
            pack_atoms(
                from + (row * c_.cols + col) * 2, c_.cols * 2, std::min(kAtomRows, c_.rows - row),
                std::min(kAtomRowBytes, (c_.cols - col) * 2), packed.data() + atom * kAtomBytes);
        }
        weight_ = allocate_split(shape_, c_.remote_atoms, local, remote);
        const auto remote_bytes = static_cast<size_t>(weight_.remote_bytes());
        check(cudaMemcpy(weight_.remote, packed.data(), remote_bytes, cudaMemcpyDefault), "pack");
        check(cudaMemcpy(weight_.local, packed.data() + remote_bytes, packed.size() - remote_bytes,
                         cudaMemcpyDefault),
              "pack");
        if (weight_.remote_bytes() == 0) weight_.remote = nullptr;
        if (weight_.local_bytes() == 0) weight_.local = nullptr;
    }
    std::vector<double> oracle(cudaStream_t stream) const {
        DeviceArray<uint16_t> w(w_);
        DeviceArray<double> product(static_cast<size_t>(c_.tokens * c_.rows));
        testing::reference_product(c_.dtype == DType::kF16, w.data(), device_x_.data(), ldx_,
                                   static_cast<int>(c_.rows), static_cast<int>(c_.cols),
                                   static_cast<int>(c_.tokens), product.data(), stream);
        check(cudaStreamSynchronize(stream), "oracle");
        const std::vector<double> sums = product.download();
        std::vector<double> out(static_cast<size_t>(c_.tokens * features_));
        const auto linear = [&](int64_t n, int64_t row) {
            const double sum = c_.scale * sums[static_cast<size_t>(n * c_.rows + row)];
            return c_.bias ? sum + bias_[static_cast<size_t>(row)] : sum;
        };
        for (int64_t n = 0; n < c_.tokens; ++n) {
            for (int64_t m = 0; m < features_; ++m) {
                double value;
                if (c_.gated) {
                    const int64_t gate = m / 64 * 128 + m % 64;
                    value = activated(linear(n, gate), c_.activation) * linear(n, gate + 64);
                } else {
                    value = activated(linear(n, m), c_.activation);
                }
                if (c_.residual) {
                    value += widened(residual_[static_cast<size_t>(n * features_ + m)]);
                }
                out[static_cast<size_t>(n * features_ + m)] = value;
            }
        }
        return out;
    }

    Case c_;
    PackedShape shape_;
    int64_t features_, ldx_, ldy_;
    std::vector<uint16_t> x_, w_;
    std::vector<float> bias_;
    std::vector<uint16_t> residual_;
    DeviceArray<uint16_t> device_x_;
    DeviceArray<float> device_bias_;
    DeviceArray<uint16_t> device_residual_;
    DeviceArray<uint8_t> y_;
    SplitTensor weight_;
};

}  // namespace dak::cuda
