#pragma once

#include "ops/cuda/small_ops/params.h"

// Entry points of the compiled kernels, for cudaLaunchKernelExC. Each takes its parameters as one
// struct. Element is __nv_bfloat16 or __half.

namespace dak::cuda {

/// (EmbedParams); grid (tokens, chunks of a row / kCopyThreads).
inline constexpr int kCopyThreads = 256;
template <typename Element>
const void* embed_kernel();

/// (RowParams); grid (rows, chunks of a row / kCopyThreads).
const void* gather_rows_kernel();

/// (RowParams); CTAs of any number share the rows, each of at most kNormThreads threads that hold
/// `chunks` (1 or 2) of a row's chunks; null for other counts.
inline constexpr int kNormThreads = 1024;
template <typename Element>
const void* norm_kernel(int chunks);

/// (RopeAppendParams); grid (tokens, any): the CTAs of a token share its heads. `chunk_pairs`:
/// halves of a head are whole chunks.
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kRopeThreads = kMaxHeadDim / 2;
template <typename Element>
const void* rope_append_kernel(bool chunk_pairs);

/// (FillParams); any grid.
inline constexpr int kFillThreads = 256;
template <typename Element>
const void* fill_random_kernel();

}  // namespace dak::cuda
