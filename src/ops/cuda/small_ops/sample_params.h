#pragma once

#include "ops/cuda/small_ops/sample.h"

namespace dak::cuda {

inline constexpr int kSampleThreads = 512;
inline constexpr int kMaxSampleCluster = 8;  // the largest that every GPU with clusters runs

struct SampleParams {
    SampleArgs args;
    int slice = 0;  ///< tokens of the vocabulary per CTA, a multiple of 4; shared memory holds as
                    ///< many 32-bit words
};

/// For cudaLaunchKernelExC: (SampleParams); one cluster of at most kMaxSampleCluster CTAs a
/// sequence.
const void* sample_kernel();

}  // namespace dak::cuda
