#include "engine/cuda/random_gpu_weights.h"

#include "model/random_weights.h"
#include "ops/cuda/check.h"
#include "ops/cuda/small_ops/fill_random.h"

namespace dak {

ModelWeights random_gpu_weights(const ModelConfig& config, const Placement& placement,
                                uint64_t seed, const TierMemory& memory) {
    ModelWeights weights =
        random_weights(config, placement, seed, {.progress = false, .memory = memory},
                       [](const RandomMatrix& matrix, const SplitTensor& tensor) {
                           cuda::fill_random(matrix, tensor, nullptr);
                       });
    cuda::check(cudaDeviceSynchronize(), "making random weights");
    return weights;
}

}  // namespace dak
