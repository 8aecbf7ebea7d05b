#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/sampling/sampling.h"

namespace dak::cuda {

/// So many probabilities of at most 2^44 add up inside 64 bits.
inline constexpr int64_t kMaxSampleVocab = int64_t{1} << 18;

/// One sequence's draw, as the device reads it.
struct SampleRequest {
    ops::Sampling sampling;
    int32_t row = -1;           ///< its row of the logits; negative: no draw, nothing is written
    int32_t prompt_length = 0;  ///< tokens of its history that are the prompt
    int32_t length = 0;         ///< tokens of its history
};

/// Why a draw gave no token.
enum class SampleStatus : int32_t {
    kDrawn = 0,
    kNan = 1,         ///< the logits hold NaN
    kImpossible = 2,  ///< every token has probability zero
};

/// Draws the next token of several sequences by the rules of ops::sample, which it follows to the
/// token except where the rounding of exp() decides; the number of the draw is
/// length - prompt_length. Greedy draws are exact. Pointers are device pointers; their contents may
/// change between replays of a captured graph.
struct SampleArgs {
    const float* logits = nullptr;  ///< [rows, vocab]; not changed
    int64_t ld = 0;                 ///< elements between rows, a multiple of 4
    int64_t vocab = 0;
    int64_t sequences = 0;
    const SampleRequest* requests = nullptr;  ///< [sequences]
    /// [sequences, history_stride] prompt, then output of each sequence; the drawn token is stored
    /// behind it. May be null when no request has penalties.
    int32_t* history = nullptr;
    int64_t history_stride = 0;
    int32_t* tokens = nullptr;       ///< [sequences]; -1 where none could be drawn
    SampleStatus* status = nullptr;  ///< [sequences]
};

/// Enqueues the draws as one kernel; can be captured. `programmatic` as in small_ops.h. Throws
/// Error on arguments that the kernel cannot take.
void sample(const SampleArgs& args, cudaStream_t stream, bool programmatic = true);

}  // namespace dak::cuda
