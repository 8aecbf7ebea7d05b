#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "base/transformer.h"
#include "memory/split_tensor.h"
#include "ops/cuda/split_gemm/config.h"
#include "ops/cuda/split_gemm/folded_norm.h"

namespace dak::cuda {

/// What follows the product, in this order: the norm of its input, scale, bias (which holds W b),
/// activation, gate, residual. Pointers are device pointers.
struct GemmEpilogue {
    float scale = 1.0f;
    const float* bias = nullptr;  ///< [weight rows]; null: none
    Activation activation = Activation::kNone;
    /// The weight holds gate and up interleaved by 64-row tiles (gate first), each padded to whole
    /// tiles: y = activation(gate) * up.
    bool gated = false;
    const void* residual = nullptr;  ///< [tokens, out_features] of the weight's type; may be y
    int64_t ld_residual = 0;         ///< elements between its rows
    std::optional<FoldedNorm> norm_before = {};  ///< of x
    std::optional<FoldedNorm> norm_after = {};   ///< of y, which is then neither gated nor fp32
};

/// y[tokens, out_features] = epilogue(x[tokens, cols] weight[rows, cols]^T), accumulated in fp32.
struct GemmArgs {
    /// bf16 or fp16. Its remote part is pinned host memory or another GPU's memory, or with
    /// `staged` any memory of this GPU.
    SplitTensor weight;
    bool staged = false;
    const void* x = nullptr;  ///< the weight's type, 16-byte aligned; written by earlier kernels
    int64_t ldx = 0;          ///< elements between rows, a multiple of 8
    int64_t tokens = 0;
    void* y = nullptr;  ///< the weight's type, or fp32
    int64_t ldy = 0;
    int64_t out_features = 0;  ///< weight rows, or the width of one half (without padding) if gated
    bool fp32_output = false;
    GemmEpilogue epilogue;
};

GemmShape shape_of(const GemmArgs& args);

/// Device memory in which CTAs hand each other partial sums, about 17 MiB. Kernels of one stream
/// may share it, kernels that can run at the same time may not.
class GemmWorkspace {
  public:
    explicit GemmWorkspace(const GemmMachine& machine);
    GemmWorkspace(GemmWorkspace&& other) noexcept;
    GemmWorkspace& operator=(GemmWorkspace&&) = delete;
    ~GemmWorkspace();

    int ctas() const { return ctas_; }  ///< the most that one kernel may have
    void* partials() const { return memory_; }
    uint32_t* flags() const;

  private:
    void* memory_ = nullptr;
    int ctas_ = 0;
    int64_t flag_offset_ = 0;
};

/// The machine's part that the CUDA runtime knows (SMs, clusters at once) for the current device;
/// rates keep their defaults.
GemmMachine current_gemm_machine();

/// Enqueues the product. `config` must come from choose_gemm_config for shape_of(args), or be a
/// variation of it. With `programmatic`, it may start while the preceding kernel of the stream
/// still runs; that kernel must then be one that calls griddepcontrol.wait itself or be complete.
/// Can be captured. The same arguments and configuration give the same bits. Throws Error on
/// arguments that the kernels cannot take.
void split_gemm(const GemmArgs& args, const GemmConfig& config, const GemmWorkspace& workspace,
                cudaStream_t stream, bool programmatic = true);

/// W v, waited for: what a folded norm needs of a weight. Accurate as fp32 although the kernels
/// multiply 16-bit numbers.
std::vector<float> weight_times(const SplitTensor& weight, const std::vector<float>& vector,
                                const GemmMachine& machine, const GemmWorkspace& workspace);

}  // namespace dak::cuda
