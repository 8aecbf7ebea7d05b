#include "model/random_weights.h"

#include <cmath>
#include <utility>

#include "base/random.h"
#include "model/weight_builder.h"

namespace dak {

namespace {

/// Standard deviation of random biases, and of norm scales around 1: enough to show when dropped.
constexpr float kVectorDeviation = 0.02f;

template <typename T>
void fill_row(uint32_t row_hash, float deviation, T* row, int64_t cols) {
    for (int64_t col = 0; col < cols; ++col) {
        row[col] = from_float<T>(deviation * bell_value(row_hash, static_cast<uint32_t>(col)));
    }
}

class VectorMaker {
  public:
    explicit VectorMaker(uint64_t seed) : hash_(combine_hash(~uint32_t{0}, seed)) {}

    std::vector<float> operator()(bool wanted, int64_t size, float mean) {
        std::vector<float> values(wanted ? static_cast<size_t>(size) : 0);
        fill_row(combine_hash(hash_, ++count_), kVectorDeviation, values.data(),
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

/// What weight number `index` of weight_specs() holds.
RandomMatrix random_matrix(const ModelConfig& config, const WeightSpec& spec, size_t index,
                           uint64_t seed) {
    const bool interleaved = is_interleaved(config, spec);
    return {.hash = combine_hash(combine_hash(0, seed), index),
            // Keeps activations at the scale of their inputs.
            .deviation = static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.shape.cols))),
            .rows = interleaved ? config.intermediate_size : spec.shape.rows,
            .parts = interleaved ? 2 : 1};
}

}  // namespace

ModelWeights random_weights(const ModelConfig& config, const Placement& placement, uint64_t seed,
                            const LoadOptions& options) {
    const std::vector<WeightSpec> specs = weight_specs(config);
    const auto fill = [&](size_t weight, int64_t tile, std::byte* rows, std::vector<std::byte>&) {
        const RandomMatrix matrix = random_matrix(config, specs[weight], weight, seed);
        const int64_t cols = specs[weight].shape.cols;
        const uint32_t tile_hash = matrix.tile_hash(tile);
        visit_dtype(config.dtype, [&](auto element) {
            auto* row = reinterpret_cast<decltype(element)*>(rows);
            for (int64_t i = 0; i < matrix.tile_rows(tile); ++i, row += cols) {
                fill_row(matrix.row_hash(tile_hash, i), matrix.deviation, row, cols);
            }
        });
    };
    return build_weights(config, placement, options, "Making weights", random_vectors(config, seed),
                         fill);
}

ModelWeights random_weights(const ModelConfig& config, const Placement& placement, uint64_t seed,
                            const LoadOptions& options, const MatrixFiller& fill) {
    const std::vector<WeightSpec> specs = weight_specs(config);
    ReservedWeights reserved =
        reserve_weights(config, placement, options.memory, random_vectors(config, seed));
    for (size_t i = 0; i < specs.size(); ++i) {
        fill(random_matrix(config, specs[i], i, seed), reserved.tensors[i]);
    }
    return std::move(reserved.weights);
}

}  // namespace dak
