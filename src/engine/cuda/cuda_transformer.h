#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/cuda/step_inputs.h"
#include "engine/cuda/weight_stager.h"
#include "engine/kv_cache.h"
#include "memory/arena.h"
#include "model/config.h"
#include "model/weights.h"
#include "ops/cuda/split_attention/split_attention.h"
#include "ops/cuda/split_gemm/split_gemm.h"

namespace dak::cuda {

/// The weights that a step reads in full, in the order of their products.
std::vector<SplitTensor> streamed_weights(const ModelConfig& config, const ModelWeights& weights);

/// Runs the layers of a model on the current GPU, as its description lists them. Takes all its
/// memory when it is made.
class CudaTransformer {
  public:
    /// The arguments must outlive the object. With `staging` remote weights come through a ring of
    /// that size, otherwise they are read in place.
    CudaTransformer(const ModelConfig& config, const ModelWeights& weights, const KvCache& cache,
                    const GemmMachine& machine, const StepLimits& limits,
                    const std::optional<StagingSizes>& staging);

    /// Device bytes that the constructor takes.
    static int64_t bytes(const ModelConfig& config, const StepShape& most);

    /// Enqueues a forward pass over the step's rows. With `decode` every slot has one row, its own;
    /// otherwise the slots have up to `max_query_tokens`. Can be captured.
    void enqueue(const StepView& step, bool decode, int64_t max_query_tokens, cudaStream_t stream);

    /// Joins the copies that enqueue() began for the next pass into `stream`: after everything that
    /// this pass's results need.
    void join_copies(cudaStream_t stream);

    /// Of the slots' last rows after enqueue(), [sequences, logits_stride()], device memory.
    const float* logits() const { return logits_; }
    int64_t logits_stride() const;

  private:
    struct Vector {
        const float* weight = nullptr;
        const float* bias = nullptr;
    };
    /// What a product needs to do the norm before it: W g and W b + bias.
    struct FoldedVectors {
        const float* weight_sums = nullptr;
        const float* bias = nullptr;
    };
    struct LayerVectors {
        Vector attention_norm, mlp_norm, qk_norm_q, qk_norm_k;
        const float* qkv_bias = nullptr;
        const float* output_bias = nullptr;
        const float* up_bias = nullptr;
        const float* down_bias = nullptr;
        FoldedVectors qkv_folded = {}, up_folded = {};
    };
    /// A row-major matrix of activations; rows `stride` elements apart.
    struct Matrix {
        void* data = nullptr;
        int64_t stride = 0;
    };

    void upload_vectors();
    FoldedVectors fold(const NormWeights& norm, const LinearWeights& linear, const float* bias);
    bool folds_norms() const;
    void fold_norms();
    const float* upload(const std::vector<float>& values);
    Matrix matrix(int64_t rows, int64_t width);

    void embed(const StepView& step, cudaStream_t stream);
    void run_layer(int64_t layer, cudaStream_t stream);
    void run_attention(int64_t layer, bool qk_norm, bool rope, cudaStream_t stream);
    void project_logits(const StepView& step, cudaStream_t stream);
    void linear(const SplitTensor& weight, const Matrix& x, int64_t rows, const Matrix& y,
                int64_t out_features, const GemmEpilogue& epilogue, bool fp32_output,
                cudaStream_t stream);
    void normalise(const Vector& norm, const Matrix& x, const Matrix& out, cudaStream_t stream);
    std::optional<FoldedNorm> fold_next_norm(int64_t layer, size_t step) const;
    GemmEpilogue behind_norm(const FoldedVectors& folded, const float* bias);
    int64_t sliding_window(int64_t layer) const;
    std::vector<int64_t> first_layers_of_windows() const;
    void plan_attention(cudaStream_t stream);
    AttentionArgs attention_args(int64_t layer) const;

    const ModelConfig& config_;
    const ModelWeights& weights_;
    const KvCache& cache_;
    GemmMachine machine_;

    Arena arena_;
    std::vector<LayerVectors> layers_;
    Vector final_norm_;
    const float* project_in_bias_ = nullptr;
    const float* project_out_bias_ = nullptr;
    const float* frequencies_ = nullptr;  ///< [head_dim / 2], where they do not depend on length

    Matrix residual_;       ///< x [rows, hidden_size]
    Matrix hidden_;         ///< normalised x [rows, hidden_size]
    Matrix qkv_;            ///< [rows, q_size + 2 kv_size]
    Matrix attention_out_;  ///< [rows, q_size]
    Matrix mlp_;            ///< [rows, intermediate_size]
    Matrix embedded_;       ///< [rows, embedding_size], where that is not hidden_size
    float* logits_ = nullptr;
    float* moments_ = nullptr;   ///< of residual_, for a folded norm
    NormScale* scales_[2] = {};  ///< [kMaxFoldedTokens] of the newest norm and of the one before

    GemmWorkspace gemm_workspace_;
    /// Of the fast kernels; nothing for head sizes that they do not serve.
    AttentionConfig attention_config_;
    std::optional<AttentionWorkspace> attention_workspace_;

    std::optional<WeightStager> stager_;
    size_t next_product_ = 0;  ///< of the pass being enqueued, in the order of streamed_weights()
    std::optional<size_t> newest_scales_;  ///< of `scales_`, in the pass being enqueued
    std::optional<FoldedNorm> folded_;     ///< the norm that hidden_ is prepared for

    StepView step_;  ///< of the pass being enqueued
    bool decode_ = false;
    int64_t max_query_tokens_ = 0;
};

}  // namespace dak::cuda
