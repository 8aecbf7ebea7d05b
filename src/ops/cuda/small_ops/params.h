#pragma once

#include <cstdint>

#include "base/transformer.h"
#include "memory/random_matrix.h"

// What the host hands to the kernels by value. Elements of activations are 16 bits wide; a chunk is
// 16 bytes of them.

namespace dak::cuda {

inline constexpr int kChunkElements = 8;

/// A packed matrix of 16-bit elements in two tiers (memory/split_tensor.h), as the device sees it.
struct PackedView {
    uint8_t* remote = nullptr;
    uint8_t* local = nullptr;
    int64_t remote_atoms = 0;
    int k_atoms = 0;
    int rows = 0;

    static constexpr int kAtomBytes = 8192;

    constexpr uint8_t* atom(int64_t index) const {
        return index < remote_atoms ? remote + index * kAtomBytes
                                    : local + (index - remote_atoms) * kAtomBytes;
    }
    /// The 16-byte chunk `chunk` of a row.
    constexpr const uint8_t* chunk(int row, int chunk) const {
        const int offset = row % 64 * 128 + ((chunk ^ row) & 7) * 16;
        return atom(int64_t{row / 64} * k_atoms + chunk / 8) + offset;
    }
};

struct EmbedParams {
    PackedView table;
    PackedView positions = {};  ///< without rows: none
    const int32_t* tokens = nullptr;
    const int32_t* position_ids = nullptr;
    int position_offset = 0;
    int width = 0;
    void* out = nullptr;
    int64_t ldo = 0;
};

/// Of norm and gather_rows.
struct RowParams {
    const void* x = nullptr;
    int64_t ldx = 0;
    void* out = nullptr;
    int64_t ldo = 0;
    const int32_t* row_index = nullptr;
    int rows = 0;  ///< of out
    int width = 0;
    bool centred = false;  ///< LayerNorm
    float eps = 0;
    const float* weight = nullptr;
    const float* bias = nullptr;
    NormScale* scales = nullptr;
};

/// Pages of one layer's KV cache (memory/kv_page.h), as the device sees them.
struct KvView {
    uint8_t* local = nullptr;
    uint8_t* remote = nullptr;
    int64_t num_local_pages = 0;
    int64_t page_bytes = 0;
    int block_bytes = 0;  ///< of K or V of one head
    /// The last panel of a block may be narrower than the others.
    int last_panel = 0;
    int last_width = 0;  ///< its chunks per token
    int last_shift = 0;  ///< its tokens of equal swizzle, as a power of two
    int last_mask = 0;   ///< of its swizzle

    constexpr uint8_t* page(int64_t index) const {
        return index < num_local_pages ? local + index * page_bytes
                                       : remote + (index - num_local_pages) * page_bytes;
    }
    constexpr int chunk_offset(int token, int chunk) const {
        const int panel = chunk / 8;
        const bool last = panel == last_panel;
        const int width = last ? last_width : 8;
        const int swizzle = last ? token >> last_shift & last_mask : token & 7;
        return (panel * 64 * 8 + token * width + (chunk % 8 ^ swizzle)) * 16;
    }
};

struct RopeAppendParams {
    KvView kv;
    void* qkv = nullptr;
    int64_t ld = 0;
    int num_heads = 0;     ///< of q
    int num_kv_heads = 0;  ///< of k, and of v
    int first_head = 0;    ///< num_heads when nothing happens to q
    int head_dim = 0;
    int lanes_log2 = 0;  ///< threads that share a head: a power of two, one for 16 elements
    const int32_t* positions = nullptr;
    const int32_t* sequence_of = nullptr;
    const int32_t* pages = nullptr;
    int64_t pages_stride = 0;
    const float* frequencies = nullptr;
    int64_t frequencies_stride = 0;
    const float* q_norm = nullptr;
    const float* k_norm = nullptr;
    float norm_eps = 0;
};

struct FillParams {
    RandomMatrix matrix;
    PackedView tensor;
    int64_t atoms = 0;
    int cols = 0;
};

}  // namespace dak::cuda
