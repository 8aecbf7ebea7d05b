#include "engine/cuda/cuda_transformer.h"

#include <algorithm>
#include <cmath>

#include "ops/cuda/check.h"
#include "ops/cuda/small_ops/small_ops.h"
#include "ops/cuda/split_attention/generic_attention.h"
#include "ops/ops.h"

namespace dak::cuda {
namespace {

// Local copies that prefill keeps of a layer's remote pages while it runs: enough for thousands of
// tokens, little beside a model. The plan counts it among the workspaces.
constexpr int64_t kPrefillCopyBytes = 128 * kMiB;

constexpr int64_t kRowAlignment = 8;  // elements: 16 bytes, what TMA and wide loads ask for

int64_t stride_of(int64_t width) { return round_up(width, kRowAlignment); }

int64_t padded(int64_t bytes) { return round_up(bytes, Arena::kAlignment); }

int64_t qkv_width(const ModelConfig& config) { return config.q_size() + 2 * config.kv_size(); }

bool projects_embedding(const ModelConfig& config) {
    return config.embedding_size != config.hidden_size;
}

/// Widths of the activation matrices.
std::vector<int64_t> matrix_widths(const ModelConfig& config) {
    std::vector<int64_t> widths = {config.hidden_size, config.hidden_size, qkv_width(config),
                                   config.q_size(), config.intermediate_size};
    if (projects_embedding(config)) widths.push_back(config.embedding_size);
    return widths;
}

/// Of the model's vectors and the rotary frequencies, each padded to the arena's alignment.
int64_t vector_bytes(const ModelConfig& config) {
    constexpr int64_t kFloat = sizeof(float);
    int64_t bytes = config.rope ? padded(config.head_dim / 2 * kFloat) : 0;
    for (const int64_t size : vector_sizes(config)) bytes += padded(size * kFloat);
    return bytes;
}

/// Of what folded norms need of the weights behind them, and of their moments and scales.
int64_t folded_bytes(const ModelConfig& config) {
    constexpr int64_t kFloat = sizeof(float);
    int64_t bytes = padded(folded_norm_floats(config.hidden_size) * kFloat) +
                    2 * padded(kMaxFoldedTokens * int64_t{sizeof(NormScale)});
    for (const int64_t size : folded_vector_sizes(config)) bytes += padded(size * kFloat);
    return bytes;
}

int64_t logits_stride_of(const ModelConfig& config) { return stride_of(config.vocab_size); }

}  // namespace

std::vector<SplitTensor> streamed_weights(const ModelConfig& config, const ModelWeights& weights) {
    std::vector<SplitTensor> streamed;
    if (weights.project_in) streamed.push_back(weights.project_in->weight);
    for (const LayerWeights& layer : weights.layers) {
        for (const LayerStep step : config.layer_steps) {
            if (step == LayerStep::kQkv) streamed.push_back(layer.qkv.weight);
            if (step == LayerStep::kOutput) streamed.push_back(layer.output.weight);
            if (step == LayerStep::kUp) streamed.push_back(layer.up.weight);
            if (step == LayerStep::kDown) streamed.push_back(layer.down.weight);
        }
    }
    if (weights.project_out) streamed.push_back(weights.project_out->weight);
    streamed.push_back(weights.lm_head);
    return streamed;
}

int64_t CudaTransformer::bytes(const ModelConfig& config, const StepShape& most) {
    int64_t bytes = vector_bytes(config) + folded_bytes(config);
    for (const int64_t width : matrix_widths(config)) {
        bytes += padded(most.rows * stride_of(width) * size_of(config.dtype));
    }
    return bytes + padded(most.sequences * logits_stride_of(config) * int64_t{sizeof(float)});
}

CudaTransformer::CudaTransformer(const ModelConfig& config, const ModelWeights& weights,
                                 const KvCache& cache, const GemmMachine& machine,
                                 const StepLimits& limits,
                                 const std::optional<StagingSizes>& staging)
    : config_(config),
      weights_(weights),
      cache_(cache),
      machine_(machine),
      arena_(Arena::device("activations", bytes(config, limits.most))),
      residual_(matrix(limits.most.rows, config.hidden_size)),
      hidden_(matrix(limits.most.rows, config.hidden_size)),
      qkv_(matrix(limits.most.rows, qkv_width(config))),
      attention_out_(matrix(limits.most.rows, config.q_size())),
      mlp_(matrix(limits.most.rows, config.intermediate_size)),
      gemm_workspace_(machine) {
    if (projects_embedding(config)) embedded_ = matrix(limits.most.rows, config.embedding_size);
    logits_ = reinterpret_cast<float*>(
        arena_.allocate(limits.most.sequences * logits_stride_of(config) * int64_t{sizeof(float)}));
    upload_vectors();
    fold_norms();
    if (serves_heads(config.num_heads, config.num_kv_heads, config.head_dim)) {
        const AttentionShape shape{
            .num_heads = config.num_heads,
            .num_kv_heads = config.num_kv_heads,
            .head_dim = config.head_dim,
            .dtype = config.dtype,
            .max_sequences = limits.most.sequences,
            .max_pages = KvCache::pages_for(limits.max_tokens),
            .remote_pages = cache.num_remote_pages() > 0,
            .copied_pages = std::min(cache.num_remote_pages(),
                                     kPrefillCopyBytes / cache.layer(0).layout.page_bytes())};
        attention_config_ =
            choose_attention_config(shape, {.sms = machine.sms,
                                            .remote_gbps = machine.remote_gbps,
                                            .remote_latency_us = machine.remote_latency_us,
                                            .window_bytes = machine.window_bytes});
        attention_workspace_.emplace(shape, attention_config_,
                                     static_cast<int>(first_layers_of_windows().size()));
    }
    if (staging) stager_.emplace(streamed_weights(config, weights), *staging);
    // What was cleared above was cleared in another stream.
    check(cudaDeviceSynchronize(), "starting the engine");
}

int64_t CudaTransformer::logits_stride() const { return logits_stride_of(config_); }

CudaTransformer::Matrix CudaTransformer::matrix(int64_t rows, int64_t width) {
    const int64_t stride = stride_of(width);
    const int64_t bytes = rows * stride * size_of(config_.dtype);
    std::byte* data = arena_.allocate(bytes);
    // Rows of padding are computed with, though nobody looks at the result.
    check(cudaMemset(data, 0, static_cast<size_t>(bytes)), "activations");
    return {data, stride};
}

const float* CudaTransformer::upload(const std::vector<float>& values) {
    if (values.empty()) return nullptr;
    const size_t bytes = values.size() * sizeof(float);
    std::byte* place = arena_.allocate(static_cast<int64_t>(bytes));
    check(cudaMemcpy(place, values.data(), bytes, cudaMemcpyHostToDevice), "norms and biases");
    return reinterpret_cast<const float*>(place);
}

void CudaTransformer::upload_vectors() {
    const auto norm = [this](const NormWeights& weights) -> Vector {
        return {upload(weights.weight), upload(weights.bias)};
    };
    for (const LayerWeights& layer : weights_.layers) {
        layers_.push_back({.attention_norm = norm(layer.attention_norm),
                           .mlp_norm = norm(layer.mlp_norm),
                           .qk_norm_q = norm(layer.q_norm),
                           .qk_norm_k = norm(layer.k_norm),
                           .qkv_bias = upload(layer.qkv.bias),
                           .output_bias = upload(layer.output.bias),
                           .up_bias = upload(layer.up.bias),
                           .down_bias = upload(layer.down.bias)});
    }
    final_norm_ = norm(weights_.final_norm);
    if (weights_.project_in) project_in_bias_ = upload(weights_.project_in->bias);
    if (weights_.project_out) project_out_bias_ = upload(weights_.project_out->bias);
    if (config_.rope && config_.rope->scaling != RopeScaling::kDynamic) {
        frequencies_ = upload(ops::rope_frequencies(*config_.rope, config_.head_dim, 0));
    }
}

CudaTransformer::FoldedVectors CudaTransformer::fold(const NormWeights& norm,
                                                     const LinearWeights& linear,
                                                     const float* bias) {
    const auto width = static_cast<size_t>(config_.hidden_size);
    const auto times = [&](const std::vector<float>& vector) {
        return weight_times(linear.weight, vector, machine_, gemm_workspace_);
    };
    FoldedVectors folded{.bias = bias};
    if (config_.norm == NormKind::kLayer) {
        folded.weight_sums =
            upload(times(norm.weight.empty() ? std::vector(width, 1.0f) : norm.weight));
    }
    if (!norm.bias.empty()) {
        std::vector<float> sums = times(norm.bias);
        for (size_t i = 0; i < linear.bias.size(); ++i) sums[i] += linear.bias[i];
        folded.bias = upload(sums);
    }
    return folded;
}

/// Not in fp16: an element may outgrow its range beside the scale of the norm before.
bool CudaTransformer::folds_norms() const { return config_.dtype == DType::kBF16; }

void CudaTransformer::fold_norms() {
    if (!folds_norms()) return;
    constexpr int64_t kFloat = sizeof(float);
    moments_ =
        reinterpret_cast<float*>(arena_.allocate(folded_norm_floats(config_.hidden_size) * kFloat));
    for (NormScale*& scales : scales_) {
        scales = reinterpret_cast<NormScale*>(
            arena_.allocate(kMaxFoldedTokens * int64_t{sizeof(NormScale)}));
    }
    for (size_t i = 0; i < layers_.size(); ++i) {
        const LayerWeights& weights = weights_.layers[i];
        LayerVectors& vectors = layers_[i];
        if (config_.has_step(LayerStep::kAttentionNorm)) {
            vectors.qkv_folded = fold(weights.attention_norm, weights.qkv, vectors.qkv_bias);
        }
        if (config_.has_step(LayerStep::kMlpNorm)) {
            vectors.up_folded = fold(weights.mlp_norm, weights.up, vectors.up_bias);
        }
    }
}

void CudaTransformer::enqueue(const StepView& step, bool decode, int64_t max_query_tokens,
                              cudaStream_t stream) {
    step_ = step;
    decode_ = decode;
    max_query_tokens_ = max_query_tokens;
    next_product_ = 0;
    newest_scales_.reset();
    if (stager_) stager_->begin_step(stream);
    embed(step, stream);
    if (decode && attention_workspace_) plan_attention(stream);
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) run_layer(layer, stream);
    project_logits(step, stream);
    if (stager_) stager_->copy_ahead();
}

void CudaTransformer::join_copies(cudaStream_t stream) {
    if (stager_) stager_->join(stream);
}

void CudaTransformer::embed(const StepView& step, cudaStream_t stream) {
    const int64_t rows = step.shape.rows;
    EmbedArgs args{.table = weights_.embedding, .tokens = step.tokens, .count = rows};
    if (!projects_embedding(config_)) {
        args.positions = weights_.positions;
        args.position_ids = step.position_rows;
        args.out = residual_.data;
        args.ldo = residual_.stride;
        cuda::embed(args, stream, false);  // behind copies
        return;
    }
    args.out = embedded_.data;
    args.ldo = embedded_.stride;
    cuda::embed(args, stream, false);  // behind copies
    GemmEpilogue epilogue{.bias = project_in_bias_};
    if (weights_.positions) {
        cuda::embed({.table = *weights_.positions,
                     .tokens = step.position_rows,
                     .count = rows,
                     .out = residual_.data,
                     .ldo = residual_.stride},
                    stream);
        epilogue.residual = residual_.data;
        epilogue.ld_residual = residual_.stride;
    }
    linear(weights_.project_in->weight, embedded_, rows, residual_, config_.hidden_size, epilogue,
           false, stream);
}

void CudaTransformer::linear(const SplitTensor& weight, const Matrix& x, int64_t rows,
                             const Matrix& y, int64_t out_features, const GemmEpilogue& epilogue,
                             bool fp32_output, cudaStream_t stream) {
    const size_t product = next_product_++;
    const GemmArgs args{.weight = stager_ ? stager_->before(product, stream) : weight,
                        .staged = stager_.has_value(),
                        .x = x.data,
                        .ldx = x.stride,
                        .tokens = rows,
                        .y = y.data,
                        .ldy = y.stride,
                        .out_features = out_features,
                        .fp32_output = fp32_output,
                        .epilogue = epilogue};
    split_gemm(args, choose_gemm_config(shape_of(args), machine_), gemm_workspace_, stream);
    if (stager_) stager_->after(product, stream);
}

void CudaTransformer::normalise(const Vector& vector, const Matrix& x, const Matrix& out,
                                cudaStream_t stream) {
    const bool starts_folding = folds_norms() && step_.shape.rows <= kMaxFoldedTokens;
    if (starts_folding) newest_scales_ = 0;
    norm({.kind = config_.norm,
          .eps = static_cast<float>(config_.norm_eps),
          .weight = vector.weight,
          .bias = vector.bias,
          .x = x.data,
          .ldx = x.stride,
          .out = out.data,
          .ldo = out.stride,
          .rows = step_.shape.rows,
          .width = config_.hidden_size,
          .dtype = config_.dtype,
          .scales = starts_folding ? scales_[0] : nullptr},
         stream);
}

/// The norm after step `step` of a layer, where the product of that step can prepare it.
std::optional<FoldedNorm> CudaTransformer::fold_next_norm(int64_t layer, size_t step) const {
    if (!newest_scales_) return {};
    const bool last = step + 1 == config_.layer_steps.size();
    if (last && layer + 1 == config_.num_layers) return {};
    const LayerStep next = config_.layer_steps[last ? 0 : step + 1];
    if (next != LayerStep::kAttentionNorm && next != LayerStep::kMlpNorm) return {};
    const LayerVectors& vectors = layers_[static_cast<size_t>(last ? layer + 1 : layer)];
    const Vector& norm =
        next == LayerStep::kAttentionNorm ? vectors.attention_norm : vectors.mlp_norm;
    return FoldedNorm{.kind = config_.norm,
                      .eps = static_cast<float>(config_.norm_eps),
                      .width = config_.hidden_size,
                      .weight = norm.weight,
                      .assumed = scales_[*newest_scales_],
                      .found = scales_[1 - *newest_scales_],
                      .scaled = hidden_.data,
                      .ld = hidden_.stride,
                      .moments = moments_};
}

/// For the product that reads what a norm gave, or does the norm itself when that is folded.
GemmEpilogue CudaTransformer::behind_norm(const FoldedVectors& folded, const float* bias) {
    if (!folded_) return {.bias = bias};
    FoldedNorm norm = *folded_;
    norm.weight_sums = folded.weight_sums;
    folded_.reset();
    newest_scales_ = 1 - *newest_scales_;
    return {.bias = folded.bias, .norm_before = norm};
}

void CudaTransformer::run_layer(int64_t layer, cudaStream_t stream) {
    const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    const LayerVectors& vectors = layers_[static_cast<size_t>(layer)];
    const int64_t rows = step_.shape.rows;
    const auto add_to_residual = [&](const LinearWeights& weight, const float* bias,
                                     const Matrix& x, size_t step) {
        folded_ = fold_next_norm(layer, step);
        linear(weight.weight, x, rows, residual_, config_.hidden_size,
               {.bias = bias,
                .residual = residual_.data,
                .ld_residual = residual_.stride,
                .norm_after = folded_},
               false, stream);
    };
    Matrix input = residual_;
    bool qk_norm = false;
    bool rope = false;
    for (size_t i = 0; i < config_.layer_steps.size(); ++i) {
        switch (config_.layer_steps[i]) {
            case LayerStep::kAttentionNorm:
                if (!folded_) normalise(vectors.attention_norm, residual_, hidden_, stream);
                input = hidden_;
                break;
            case LayerStep::kQkv:
                linear(weights.qkv.weight, input, rows, qkv_, qkv_width(config_),
                       behind_norm(vectors.qkv_folded, vectors.qkv_bias), false, stream);
                break;
            case LayerStep::kQkNorm:
                qk_norm = true;  // done where keys are stored, as the rotation
                break;
            case LayerStep::kRope:
                rope = true;
                break;
            case LayerStep::kAttention:
                run_attention(layer, qk_norm, rope, stream);
                break;
            case LayerStep::kOutput:
                add_to_residual(weights.output, vectors.output_bias, attention_out_, i);
                input = residual_;
                break;
            case LayerStep::kPostAttentionNorm:
                normalise(vectors.attention_norm, residual_, residual_, stream);
                break;
            case LayerStep::kMlpNorm:
                if (!folded_) normalise(vectors.mlp_norm, residual_, hidden_, stream);
                input = hidden_;
                break;
            case LayerStep::kUp: {
                GemmEpilogue epilogue = behind_norm(vectors.up_folded, vectors.up_bias);
                epilogue.activation = config_.activation;
                epilogue.gated = config_.gated_mlp;
                linear(weights.up.weight, input, rows, mlp_, config_.intermediate_size, epilogue,
                       false, stream);
                break;
            }
            case LayerStep::kDown:
                add_to_residual(weights.down, vectors.down_bias, mlp_, i);
                input = residual_;
                break;
            case LayerStep::kPostMlpNorm:
                normalise(vectors.mlp_norm, residual_, residual_, stream);
                break;
        }
    }
}

int64_t CudaTransformer::sliding_window(int64_t layer) const {
    const auto& windows = config_.sliding_window;
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)].value_or(0);
}

/// One layer for each sliding window that layers have: they share a decode step's work list.
std::vector<int64_t> CudaTransformer::first_layers_of_windows() const {
    std::vector<int64_t> layers;
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
        const auto same = [&](int64_t other) {
            return sliding_window(other) == sliding_window(layer);
        };
        if (std::ranges::none_of(layers, same)) layers.push_back(layer);
    }
    return layers;
}

void CudaTransformer::plan_attention(cudaStream_t stream) {
    for (const int64_t layer : first_layers_of_windows()) {
        plan_decode_attention(attention_args(layer), attention_config_, *attention_workspace_,
                              stream);
    }
}

AttentionArgs CudaTransformer::attention_args(int64_t layer) const {
    return {.batch = {.sequences = step_.shape.sequences,
                      .lengths = step_.lengths,
                      .query_starts = decode_ ? nullptr : step_.query_starts,
                      .pages = step_.pages,
                      .pages_stride = step_.pages_stride},
            .kv = cache_.layer(layer),
            .num_heads = config_.num_heads,
            .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
            .sliding_window = sliding_window(layer),
            .q = qkv_.data,
            .ldq = qkv_.stride,
            .out = attention_out_.data,
            .ldo = attention_out_.stride};
}

void CudaTransformer::run_attention(int64_t layer, bool qk_norm, bool rope, cudaStream_t stream) {
    const LayerVectors& vectors = layers_[static_cast<size_t>(layer)];
    RopeAppendArgs args{.qkv = qkv_.data,
                        .ld = qkv_.stride,
                        .tokens = step_.shape.rows,
                        .num_heads = config_.num_heads,
                        .kv = cache_.layer(layer),
                        .positions = step_.positions,
                        .sequence_of = step_.sequence_of,
                        .pages = step_.pages,
                        .pages_stride = step_.pages_stride,
                        .norm_eps = static_cast<float>(config_.norm_eps)};
    if (rope) {
        args.frequencies = step_.frequencies != nullptr ? step_.frequencies : frequencies_;
        args.frequencies_stride = step_.frequencies != nullptr ? config_.head_dim / 2 : 0;
    }
    if (qk_norm) {
        args.q_norm = vectors.qk_norm_q.weight;
        args.k_norm = vectors.qk_norm_k.weight;
    }
    rope_append(args, stream);
    const AttentionArgs attention = attention_args(layer);
    if (!attention_workspace_) {
        generic_attention(attention, step_.shape.rows, stream);
    } else if (decode_) {
        decode_attention(attention, attention_config_, *attention_workspace_, stream);
    } else {
        prefill_attention(attention, max_query_tokens_, attention_config_, *attention_workspace_,
                          stream);
    }
}

void CudaTransformer::project_logits(const StepView& step, cudaStream_t stream) {
    const int64_t rows = step.shape.sequences;
    const NormArgs args{.kind = config_.norm,
                        .eps = static_cast<float>(config_.norm_eps),
                        .weight = final_norm_.weight,
                        .bias = final_norm_.bias,
                        .x = residual_.data,
                        .ldx = residual_.stride,
                        .out = hidden_.data,
                        .ldo = hidden_.stride,
                        .rows = rows,
                        .width = config_.hidden_size,
                        .dtype = config_.dtype,
                        .row_index = step.last_rows};
    if (config_.final_norm) {
        norm(args, stream);
    } else {
        gather_rows(args, stream);
    }
    Matrix input = hidden_;
    if (weights_.project_out) {
        linear(weights_.project_out->weight, input, rows, embedded_, config_.embedding_size,
               {.bias = project_out_bias_}, false, stream);
        input = embedded_;
    }
    linear(weights_.lm_head, input, rows, {logits_, logits_stride()}, config_.vocab_size, {}, true,
           stream);
}

}  // namespace dak::cuda
