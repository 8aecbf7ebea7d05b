#pragma once

#include <cstdint>
#include <functional>

#include "memory/random_matrix.h"
#include "model/weights.h"

namespace dak {

/// Writes all atoms of one packed weight, in whatever tier they are.
using MatrixFiller = std::function<void(const RandomMatrix& matrix, const SplitTensor& tensor)>;

/// random_weights() whose packed weights are written by `fill`, one call each, in storage order: a
/// device makes them faster than they could be copied to it.
ModelWeights random_weights(const ModelConfig& config, const Placement& placement, uint64_t seed,
                            const LoadOptions& options, const MatrixFiller& fill);

}  // namespace dak
