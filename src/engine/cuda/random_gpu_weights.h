#pragma once

#include <cstdint>

#include "model/weights.h"

namespace dak {

/// random_weights(), the same values, made by the current GPU where they lie: at the rate of its
/// memory and, in the remote tier, of the link.
ModelWeights random_gpu_weights(const ModelConfig& config, const Placement& placement,
                                uint64_t seed, const TierMemory& memory);

}  // namespace dak
