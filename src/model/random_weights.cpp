#include <cmath>
#include <utility>

#include "model/weight_builder.h"

namespace dak {

namespace {

/// Standard deviation of random biases, and of norm scales around 1: enough to show when dropped.
constexpr float kVectorDeviation = 0.02f;

/// Mixes the bits of a 32-bit counter (the finaliser of MurmurHash3).
constexpr uint32_t mix(uint32_t value) {
    value ^= value >> 16;
    value *= 0x85ebca6bu;
    value ^= value >> 13;
    value *= 0xc2b2ae35u;
    return value ^ value >> 16;
}

constexpr uint32_t combine(uint32_t hash, uint64_t value) {
    hash = mix(hash ^ static_cast<uint32_t>(value));
    return mix(hash ^ static_cast<uint32_t>(value >> 32));
}

/// A bell-shaped value of mean 0 and deviation 1 that depends only on its place, so that the order
/// of generation does not matter: the sum of the four bytes of a hash.
float random_value(uint32_t row_hash, uint32_t col) {
    constexpr float kMean = 4 * 127.5f;
    constexpr float kDeviation = 147.8f;  // sqrt(4 * (256^2 - 1) / 12)
    const uint32_t bits = mix(row_hash + col * 0x9e3779b9u);
    const uint32_t pairs = (bits & 0x00ff00ffu) + (bits >> 8 & 0x00ff00ffu);
    return (static_cast<float>(static_cast<int32_t>((pairs & 0xffffu) + (pairs >> 16))) - kMean) /
           kDeviation;
}

template <typename T>
void fill_row(uint32_t row_hash, float deviation, T* row, int64_t cols) {
    for (int64_t col = 0; col < cols; ++col) {
        row[col] = from_float<T>(deviation * random_value(row_hash, static_cast<uint32_t>(col)));
    }
}

class VectorMaker {
  public:
    explicit VectorMaker(uint64_t seed) : hash_(combine(~uint32_t{0}, seed)) {}

    std::vector<float> operator()(bool wanted, int64_t size, float mean) {
        std::vector<float> values(wanted ? static_cast<size_t>(size) : 0);
        fill_row(combine(hash_, ++count_), kVectorDeviation, values.data(),
                 static_cast<int64_t>(values.size()));
        for (float& value : values) value += mean;
        return values;
    }

  private:
    uint32_t hash_;
    uint64_t count_ = 0;
};

ModelVectors random_vectors(const ModelConfig& config, uint64_t seed) {
    VectorMaker make(seed);
    const auto norm = [&] {
        NormWeights weights;
        weights.weight = make(config.norm_scale, config.hidden_size, 1.0f);
        weights.bias = make(config.norm_bias, config.hidden_size, 0.0f);
        return weights;
    };
    const bool qk_norm = config.has_step(LayerStep::kQkNorm);
    ModelVectors vectors;
    for (int64_t i = 0; i < config.num_layers; ++i) {
        LayerWeights layer;
        layer.attention_norm = norm();
        layer.mlp_norm = norm();
        layer.q_norm.weight = make(qk_norm, config.head_dim, 1.0f);
        layer.k_norm.weight = make(qk_norm, config.head_dim, 1.0f);
        layer.qkv.bias = make(config.qkv_bias, config.q_size() + 2 * config.kv_size(), 0.0f);
        layer.output.bias = make(config.output_bias, config.hidden_size, 0.0f);
        layer.up.bias = make(config.mlp_bias, config.intermediate_size, 0.0f);
        if (config.gated_mlp) {
            layer.up.bias = interleave_bias(make(config.mlp_bias, config.intermediate_size, 0.0f),
                                            layer.up.bias);
        }
        layer.down.bias = make(config.mlp_bias, config.hidden_size, 0.0f);
        vectors.layers.push_back(std::move(layer));
    }
    if (config.final_norm) vectors.final_norm = norm();
    return vectors;
}

}  // namespace

ModelWeights random_weights(const ModelConfig& config, const Placement& placement, uint64_t seed,
                            const LoadOptions& options) {
    const std::vector<WeightSpec> specs = weight_specs(config);
    const uint32_t hash = combine(0, seed);
    const auto fill = [&](size_t weight, int64_t tile, std::byte* rows, std::vector<std::byte>&) {
        const WeightSpec& spec = specs[weight];
        const int64_t cols = spec.shape.cols;
        // Keeps activations at the scale of their inputs.
        const auto deviation = static_cast<float>(1.0 / std::sqrt(static_cast<double>(cols)));
        const uint32_t tile_hash = combine(combine(hash, weight), static_cast<uint64_t>(tile));
        const int64_t count = tile_rows(config, spec, tile).count;
        visit_dtype(config.dtype, [&](auto element) {
            auto* row = reinterpret_cast<decltype(element)*>(rows);
            for (int64_t i = 0; i < count; ++i, row += cols) {
                fill_row(combine(tile_hash, static_cast<uint64_t>(i)), deviation, row, cols);
            }
        });
    };
    return build_weights(config, placement, options, "Making weights", random_vectors(config, seed),
                         fill);
}

}  // namespace dak
