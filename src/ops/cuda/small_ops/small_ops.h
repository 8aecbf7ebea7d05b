#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>

#include "base/transformer.h"
#include "memory/kv_page.h"
#include "memory/split_tensor.h"

// What stands between the matrix products and attention. Activations are bf16 or fp16, rows 16-byte
// aligned and a multiple of 8 elements apart; vectors (norm scales, biases, frequencies) are fp32.
// All pointers are device pointers.
//
// Every function enqueues one kernel and can be captured; what the arrays hold may change between
// replays, sizes may not. With `programmatic` the kernel may start while the preceding kernel of
// the stream still runs, which must then be one that calls griddepcontrol.wait itself or be
// complete. The same input gives the same bits. Each throws Error on arguments that the kernel
// cannot take.

namespace dak::cuda {

/// out[t, :] = table[tokens[t], :] (+ positions[position_ids[t] + position_offset, :]).
/// A token outside the table gives a row of zeros: padding.
struct EmbedArgs {
    SplitTensor table;                          ///< bf16 or fp16, either tier
    const int32_t* tokens = nullptr;            ///< [count]
    std::optional<SplitTensor> positions = {};  ///< learned positions, as wide as the table
    const int32_t* position_ids = nullptr;      ///< [count]
    int64_t position_offset = 0;
    int64_t count = 0;
    void* out = nullptr;  ///< [count, table.shape.cols] of the table's type
    int64_t ldo = 0;
};
void embed(const EmbedArgs& args, cudaStream_t stream, bool programmatic = true);

inline constexpr int64_t kMaxNormWidth = 16'384;

/// Normalises rows. Output row i is made of input row row_index[i] (the last tokens of sequences),
/// or of row i where `row_index` is null; negative indices leave their output row as it was.
struct NormArgs {
    NormKind kind = NormKind::kRms;
    float eps = 1e-5f;
    const float* weight = nullptr;  ///< [width]; null: none
    const float* bias = nullptr;    ///< [width]; null: none
    const void* x = nullptr;
    int64_t ldx = 0;
    void* out = nullptr;  ///< may be x when row_index is null
    int64_t ldo = 0;
    int64_t rows = 0;   ///< of out
    int64_t width = 0;  ///< at most kMaxNormWidth
    DType dtype = DType::kBF16;
    const int32_t* row_index = nullptr;
    NormScale* scales = nullptr;  ///< [rows] what was done to each row of out; null: not stored
};
void norm(const NormArgs& args, cudaStream_t stream, bool programmatic = true);

/// The same without a norm: out[i, :] = x[row_index[i], :]. Looks at ldx, ldo, rows, width, dtype.
void gather_rows(const NormArgs& args, cudaStream_t stream, bool programmatic = true);

inline constexpr int64_t kMaxRopeHeadDim = 256;

/// What happens to the rows of a fused qkv buffer, [q_size + 2 kv_size] each, before attention: an
/// RMS norm of each q and k head, rotary embedding of q and k, and k and v are stored in their
/// pages. q is changed in place; the buffer's k and v keep their values. Quick for head sizes that
/// are multiples of 16; any even one up to 256 will do.
struct RopeAppendArgs {
    void* qkv = nullptr;  ///< [tokens, (num_heads + 2 kv.layout.num_kv_heads) * head_dim]
    int64_t ld = 0;
    int64_t tokens = 0;
    int64_t num_heads = 0;
    PagedKv kv;  ///< this layer's pages, in either tier, of the buffer's type
    const int32_t* positions = nullptr;    ///< [tokens]
    const int32_t* sequence_of = nullptr;  ///< [tokens] row of `pages`; negative: a padding row,
                                           ///< which is left alone
    const int32_t* pages =
        nullptr;  ///< [sequences, pages_stride]; page i holds tokens 64 i .. + 63
    int64_t pages_stride = 0;
    const float* frequencies = nullptr;  ///< [head_dim / 2] inverse frequencies; null: no rotation
    int64_t frequencies_stride = 0;      ///< between those of the sequences; 0: one set for all
    const float* q_norm = nullptr;       ///< [head_dim] scale; null: q and k are not normalised
    const float* k_norm = nullptr;       ///< [head_dim]
    float norm_eps = 1e-6f;
};
void rope_append(const RopeAppendArgs& args, cudaStream_t stream, bool programmatic = true);

}  // namespace dak::cuda
