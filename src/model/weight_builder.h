#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "model/weights.h"

// What loading a checkpoint and making random weights have in common.

namespace dak {

/// The matrix rows that row tile `tile` of a weight holds: 64, or fewer where it ends. Interleaved
/// weights end twice: tile 2t holds rows of gate, tile 2t + 1 the same rows of up.
struct TileRows {
    int64_t begin;  ///< row of the weight; interleaved: of gate or up
    int64_t count;
};
bool is_interleaved(const ModelConfig& config, const WeightSpec& spec);
TileRows tile_rows(const ModelConfig& config, const WeightSpec& spec, int64_t tile);

/// Writes the rows of one row tile to `rows`: row-major, without padding, in config.dtype.
/// `scratch` is memory for its own use that it may grow. Called from several threads at once.
using TileFiller = std::function<void(size_t weight, int64_t tile, std::byte* rows,
                                      std::vector<std::byte>& scratch)>;

/// The norms and biases of a model. The packed weights in `layers` are still empty.
struct ModelVectors {
    std::vector<LayerWeights> layers;
    NormWeights final_norm;
};

/// Weights whose arenas are reserved but not filled.
struct ReservedWeights {
    ModelWeights weights;
    std::vector<SplitTensor> tensors{};  ///< parallel to weight_specs(config)
};
ReservedWeights reserve_weights(const ModelConfig& config, const Placement& placement,
                                const TierMemory& memory, ModelVectors vectors);

/// Reserves the arenas and packs every weight from what `fill` writes; `weight` counts in
/// weight_specs(config). Errors thrown by `fill` are passed on.
ModelWeights build_weights(const ModelConfig& config, const Placement& placement,
                           const LoadOptions& options, std::string title, ModelVectors vectors,
                           const TileFiller& fill);

/// Puts a bias of `intermediate_size` of gate and of up in the padded row order of a gated up.
std::vector<float> interleave_bias(const std::vector<float>& gate, const std::vector<float>& up);

}  // namespace dak
