#include "engine/cuda/cuda_executor.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "engine/cuda/cuda_transformer.h"
#include "engine/cuda/step_inputs.h"
#include "ops/cuda/handles.h"
#include "ops/cuda/small_ops/sample.h"
#include "ops/cuda/small_ops/small_ops.h"
#include "ops/cuda/split_attention/params.h"

namespace dak::cuda {
namespace {

/// Batch sizes that have a graph: a step runs in the smallest that holds its sequences.
std::vector<int64_t> batch_buckets(int64_t max_batch) {
    std::vector<int64_t> buckets;
    for (int64_t size = 1; size < max_batch; size *= 2) {
        buckets.push_back(size);
        // From 32 sequences on a step's time depends on the batch.
        if (size >= 32 && size * 3 / 2 < max_batch) buckets.push_back(size * 3 / 2);
    }
    buckets.push_back(max_batch);
    return buckets;
}

std::string error_of(SampleStatus status) {
    switch (status) {
        case SampleStatus::kDrawn:
            return "";
        case SampleStatus::kNan:
            return "the model produced NaN logits; its weights are damaged or overflow their type";
        case SampleStatus::kImpossible:
            return "the model gave every token probability zero";
    }
    return "unknown sampling status";
}

/// Tokens and status of a step's draws, on the device and, once it is done, on the host.
class Draws {
  public:
    explicit Draws(int64_t sequences)
        : sequences_(sequences),
          device_(Arena::device("sampled tokens", bytes(sequences))),
          host_(Arena::pinned_host("sampled tokens", bytes(sequences))),
          device_base_(device_.allocate(bytes(sequences))),
          host_base_(host_.allocate(bytes(sequences))) {}

    static int64_t bytes(int64_t sequences) {
        return sequences * int64_t{sizeof(int32_t) + sizeof(SampleStatus)};
    }

    int32_t* device_tokens() const { return reinterpret_cast<int32_t*>(device_base_); }
    SampleStatus* device_status() const {
        return reinterpret_cast<SampleStatus*>(device_base_ + status_offset());
    }

    void download(cudaStream_t stream) const {
        check(cudaMemcpyAsync(host_base_, device_base_, static_cast<size_t>(bytes(sequences_)),
                              cudaMemcpyDeviceToHost, stream),
              "sampled tokens");
    }

    SampledToken operator[](size_t slot) const {
        const auto* tokens = reinterpret_cast<const int32_t*>(host_base_);
        const auto* status = reinterpret_cast<const SampleStatus*>(host_base_ + status_offset());
        return {tokens[slot], error_of(status[slot])};
    }

  private:
    int64_t status_offset() const { return sequences_ * int64_t{sizeof(int32_t)}; }

    int64_t sequences_;
    Arena device_;
    Arena host_;
    std::byte* device_base_;
    std::byte* host_base_;
};

StepLimits limits_of(const CudaExecutorOptions& options) {
    return {{std::max(options.max_step_tokens, options.max_batch), options.max_batch},
            options.max_tokens};
}

GemmMachine machine_of(const CudaExecutorOptions& options) {
    GemmMachine machine = current_gemm_machine();
    if (options.local_gbps > 0) machine.local_gbps = options.local_gbps;
    if (options.remote_gbps > 0) machine.remote_gbps = options.remote_gbps;
    if (options.window_bytes > 0) machine.window_bytes = options.window_bytes;
    return machine;
}

class CudaExecutor : public Executor {
  public:
    CudaExecutor(const ModelConfig& config, const ModelWeights& weights, KvCache& cache,
                 const CudaExecutorOptions& options)
        : vocab_size_(config.vocab_size),
          limits_(limits_of(options)),
          inputs_(config, limits_),
          transformer_(config, weights, cache, machine_of(options), limits_, options.staging),
          draws_(options.max_batch),
          buckets_(batch_buckets(options.max_batch)) {
        if (options.graphs) capture_graphs();
    }
    CudaExecutor(const CudaExecutor&) = delete;
    CudaExecutor& operator=(const CudaExecutor&) = delete;
    ~CudaExecutor() override { cudaStreamSynchronize(stream_); }

    std::vector<SampledToken> step(std::span<const SequenceChunk> chunks,
                                   std::span<const Draw> draws) override {
        StepShape shape{0, static_cast<int64_t>(chunks.size())};
        int64_t most = 0;
        for (const SequenceChunk& chunk : chunks) {
            const auto count = static_cast<int64_t>(chunk.tokens.size());
            shape.rows += count;
            most = std::max(most, count);
        }
        require(shape.rows <= limits_.most.rows && shape.sequences <= limits_.most.sequences,
                "a step of {} tokens and {} sequences exceeds the engine's {} and {}", shape.rows,
                shape.sequences, limits_.most.rows, limits_.most.sequences);
        const bool decode = most == 1;
        if (decode) shape.rows = shape.sequences = bucket_of(shape.sequences);

        require(!failed_, "an earlier step failed on the GPU; the engine must be started again");
        failed_ = true;  // until this one is done
        inputs_.fill(shape, chunks, draws);
        inputs_.upload_history(chunks, draws, stream_);
        const auto graph = graphs_.find(shape.sequences);
        if (decode && graph != graphs_.end()) {
            graph->second.launch(stream_);
        } else {
            enqueue(shape, decode, most);
        }
        check(cudaEventRecord(done_, stream_), "engine step");
        check(cudaEventSynchronize(done_), "engine step");
        failed_ = false;

        std::vector<SampledToken> tokens;
        for (size_t slot = 0; slot < chunks.size(); ++slot) {
            if (chunks[slot].wants_token) tokens.push_back(draws_[slot]);
        }
        return tokens;
    }

  private:
    int64_t bucket_of(int64_t sequences) const {
        return *std::ranges::lower_bound(buckets_, sequences);
    }

    void enqueue(const StepShape& shape, bool decode, int64_t max_query_tokens) {
        inputs_.upload(shape, stream_);
        const StepView step = inputs_.view(shape);
        transformer_.enqueue(step, decode, max_query_tokens, stream_);
        sample({.logits = transformer_.logits(),
                .ld = transformer_.logits_stride(),
                .vocab = vocab_size_,
                .sequences = shape.sequences,
                .requests = step.requests,
                .history = step.history,
                .history_stride = step.history_stride,
                .tokens = draws_.device_tokens(),
                .status = draws_.device_status()},
               stream_);
        draws_.download(stream_);
        transformer_.join_copies(stream_);
    }

    void capture_graphs() {
        for (const int64_t size : buckets_) {
            graphs_.emplace(size, Graph(stream_, [&] { enqueue({size, size}, true, 1); }));
        }
        check(cudaStreamSynchronize(stream_), "graph capture");
    }

    int64_t vocab_size_;
    StepLimits limits_;
    Stream stream_;
    StepInputs inputs_;
    CudaTransformer transformer_;
    Draws draws_;
    std::vector<int64_t> buckets_;
    std::map<int64_t, Graph> graphs_;
    Event done_;
    bool failed_ = false;
};

}  // namespace
}  // namespace dak::cuda

namespace dak {

std::unique_ptr<Executor> make_cuda_executor(const ModelConfig& config, const ModelWeights& weights,
                                             KvCache& cache, const CudaExecutorOptions& options) {
    return std::make_unique<cuda::CudaExecutor>(config, weights, cache, options);
}

void require_cuda_support(const ModelConfig& config, const CudaExecutorOptions& options) {
    require(
        config.dtype == DType::kBF16 || config.dtype == DType::kF16,
        "the GPU computes in bf16 or fp16, but the weights are {}; add --dtype bf16, or --device "
        "cpu",
        name_of(config.dtype));
    require(options.max_batch <= cuda::kMaxSequences,
            "the GPU runs up to {} sequences at once, not {}", cuda::kMaxSequences,
            options.max_batch);
    require(config.head_dim <= cuda::kMaxRopeHeadDim && config.head_dim % 2 == 0,
            "attention heads of {} elements: the GPU has kernels for even sizes up to {}; use "
            "--device cpu",
            config.head_dim, cuda::kMaxRopeHeadDim);
    require(config.hidden_size <= cuda::kMaxNormWidth,
            "a hidden state of {} elements: the GPU has kernels for up to {}; use --device cpu",
            config.hidden_size, cuda::kMaxNormWidth);
    require(config.vocab_size <= cuda::kMaxSampleVocab,
            "a vocabulary of {}: the GPU draws from up to {}; use --device cpu", config.vocab_size,
            cuda::kMaxSampleVocab);
}

int64_t cuda_executor_bytes(const ModelConfig& config, const CudaExecutorOptions& options) {
    const cuda::StepLimits limits = cuda::limits_of(options);
    return cuda::StepInputs::bytes(config, limits) +
           cuda::CudaTransformer::bytes(config, limits.most) +
           cuda::Draws::bytes(options.max_batch);
}

}  // namespace dak
