#pragma once

#include "ops/cuda/small_ops/sample.h"

namespace dak::cuda {

inline constexpr int kSampleThreads = 512;
inline constexpr int kMaxSampleCluster = 8;  // the largest that every GPU with clusters runs

struct SampleParams {
    SampleArgs args;
    int slice = 0;    ///< tokens of the vocabulary per CTA, a multiple of 4
    int room = 0;     ///< tokens that a CTA can gather, a multiple of 4
    int at_once = 0;  ///< about how many sequences are drawn at the same time

    /// Of shared memory: a slice's logits, or logits and ids of gathered tokens.
    constexpr int words() const { return 2 * room; }
};

/// For cudaLaunchKernelExC: (SampleParams); one cluster of at most kMaxSampleCluster CTAs a
/// sequence.
const void* sample_kernel();

}  // namespace dak::cuda
