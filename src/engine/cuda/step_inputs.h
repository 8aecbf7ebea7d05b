#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "engine/executor.h"
#include "memory/arena.h"
#include "ops/cuda/small_ops/sample.h"

namespace dak::cuda {

/// How many tokens and sequences a step has room for. Rows and slots beyond those in use are
/// padding.
struct StepShape {
    int64_t rows = 0;       ///< new tokens
    int64_t sequences = 0;  ///< slots
};

/// Everything that changes from step to step, as device pointers. A captured graph reads the same
/// addresses each time.
struct StepView {
    StepShape shape;
    const int32_t* tokens = nullptr;         ///< [rows]; padding: -1
    const int32_t* positions = nullptr;      ///< [rows]
    const int32_t* position_rows = nullptr;  ///< [rows] of the table of learned positions
    const int32_t* sequence_of = nullptr;    ///< [rows] slot of the row's sequence; padding: -1
    const int32_t* lengths = nullptr;        ///< [sequences] new tokens included; empty slot: 0
    const int32_t* query_starts = nullptr;   ///< [sequences + 1] first row of each slot
    const int32_t* last_rows = nullptr;      ///< [sequences] row to draw from; -1: none
    const int32_t* pages = nullptr;          ///< [sequences, pages_stride]
    int64_t pages_stride = 0;
    const SampleRequest* requests = nullptr;  ///< [sequences]
    int32_t* history = nullptr;               ///< [sequences, history_stride]
    int64_t history_stride = 0;
    const float* frequencies =
        nullptr;  ///< [sequences, head_dim / 2]; dynamic rope only, else null
};

struct StepLimits {
    StepShape most;
    int64_t max_tokens = 0;  ///< of one sequence, prompt and output
};

/// Collects a step's inputs in pinned host memory and brings them to the device in one copy.
class StepInputs {
  public:
    /// `config` must outlive the object.
    StepInputs(const ModelConfig& config, const StepLimits& limits);

    /// Device bytes that the constructor takes.
    static int64_t bytes(const ModelConfig& config, const StepLimits& limits);

    /// Writes the host's side for a step of this shape. Chunk i goes to slot i; the draws belong to
    /// the chunks that want a token, in their order.
    void fill(const StepShape& shape, std::span<const SequenceChunk> chunks,
              std::span<const Draw> draws);

    /// Enqueues the copy of what fill() wrote for this shape. Can be captured.
    void upload(const StepShape& shape, cudaStream_t stream) const;

    /// Enqueues the copy of the histories of the same draws, if any of them looks at its history.
    /// Not for capture: few do.
    void upload_history(std::span<const SequenceChunk> chunks, std::span<const Draw> draws,
                        cudaStream_t stream) const;

    StepView view(const StepShape& shape) const;

  private:
    /// Byte offsets of a step's arrays; the same in both memories.
    struct Layout {
        int64_t tokens, positions, position_rows, sequence_of, lengths, query_starts, last_rows,
            pages, requests, frequencies, end;
    };
    static Layout layout(const ModelConfig& config, const StepShape& shape, int64_t pages_stride);

    template <typename T>
    std::span<T> host(int64_t offset, int64_t count) const {
        return {reinterpret_cast<T*>(host_base_ + offset), static_cast<size_t>(count)};
    }

    const ModelConfig& config_;
    StepLimits limits_;
    int64_t pages_stride_;
    Arena device_;
    Arena host_;
    std::byte* device_base_;
    std::byte* host_base_;
    int32_t* device_history_;
    int32_t* host_history_;
};

}  // namespace dak::cuda
