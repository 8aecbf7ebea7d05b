#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace dak::testing {

/// A paged KV cache as the oracle sees it: through a table of byte offsets, so that it knows
/// nothing of the kernels' own arithmetic. Device pointers.
struct CacheView {
    uint8_t* local = nullptr;
    uint8_t* remote = nullptr;
    int64_t num_local_pages = 0;
    int64_t page_bytes = 0, head_bytes = 0, block_bytes = 0;
    const int32_t* offsets = nullptr;  ///< [64][head_dim] of an element inside a K or V block
    int kv_heads = 0, head_dim = 0;
    bool fp16 = false;
};

struct SequenceView {
    const int32_t* lengths = nullptr;
    const int32_t* pages = nullptr;  ///< [sequences, stride]
    int64_t stride = 0;
    int sequences = 0;
};

/// Stores random keys and values, of standard deviation 1, for the tokens of every sequence from
/// `first[s]` on (a device array), up to its length. With `slow` the kernel lets its successor
/// start, waits for its predecessor and then some 50 us before it stores anything.
void fill_cache(const CacheView& cache, const SequenceView& sequences, const int32_t* first,
                uint32_t seed, bool slow, cudaStream_t stream);

struct ReferenceArgs {
    CacheView cache;
    SequenceView sequences;
    const void* q = nullptr;  ///< [rows, heads, head_dim], rows ldq elements apart
    int64_t ldq = 0;
    const int32_t* row_sequences = nullptr;  ///< [rows]
    const int32_t* row_positions = nullptr;  ///< [rows]
    int rows = 0, heads = 0, max_length = 0;
    double scale = 1, soft_cap = 0;
    int sliding_window = 0;
    double* out = nullptr;  ///< [rows, heads, head_dim]
};

/// Attention in fp64.
void reference_attention(const ReferenceArgs& args, cudaStream_t stream);

}  // namespace dak::testing
