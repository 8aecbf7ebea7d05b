#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "memory/kv_page.h"
#include "ops/cuda/split_attention/config.h"
#include "ops/cuda/split_attention/params.h"

namespace dak::cuda {

/// New tokens of several sequences over their paged KV cache, in which the keys and values of the
/// new tokens already are. Device pointers; what they point at may change between replays of a
/// captured graph.
struct AttentionBatch {
    int64_t sequences = 0;  ///< rows of the tables; those of length 0 are empty, nothing is written
    const int32_t* lengths = nullptr;       ///< [sequences] tokens in the cache, new ones included
    const int32_t* query_starts = nullptr;  ///< [sequences + 1] first row of q of each sequence;
                                            ///< decode: null, row s of q is sequence s
    const int32_t* pages = nullptr;         ///< [sequences, pages_stride] page indices; the i-th
                                            ///< holds tokens 64 i .. 64 i + 63
    int64_t pages_stride = 0;
};

struct AttentionArgs {
    AttentionBatch batch;
    PagedKv kv;  ///< this layer's pages, bf16 or fp16; q and out have the same type
    int64_t num_heads = 0;
    float scale = 1.0f;          ///< of the products of queries and keys
    int64_t sliding_window = 0;  ///< tokens a query may look back on, itself included; 0: all
    float soft_cap = 0.0f;       ///< c: scores become c tanh(score / c); 0: none
    const void* q = nullptr;     ///< [rows, num_heads * head_dim], 16-byte aligned
    int64_t ldq = 0;             ///< elements between rows of q, a multiple of 8
    void* out = nullptr;         ///< like q
    int64_t ldo = 0;
};

/// Device memory for the work lists of a decode step, partial results and counters. Kernels of one
/// stream may share it, kernels that can run at the same time may not.
class AttentionWorkspace {
  public:
    /// `windows`: how many different sliding windows the layers have.
    AttentionWorkspace(const AttentionShape& shape, const AttentionConfig& config, int windows = 1);
    AttentionWorkspace(AttentionWorkspace&& other) noexcept;
    AttentionWorkspace& operator=(AttentionWorkspace&&) = delete;
    ~AttentionWorkspace();

    int64_t bytes() const { return bytes_; }

    /// The list that the last plan for `window` made; plan_list makes room for it. Throw Error when
    /// there is none, or no room for one more window.
    WorkList list(int64_t window, int64_t sequences) const;
    WorkList plan_list(int64_t window, int64_t sequences);
    float* parts() const { return static_cast<float*>(memory_); }
    /// [2] of the prefill kernel's tiles, [1] of the decode kernel's ranges; zero between kernels.
    uint32_t* counters() const;
    PageCopies copies() const;
    const AttentionShape& shape() const { return shape_; }
    int ctas() const { return ctas_; }
    int max_ranges() const { return ctas_ * kMaxRangesPerCta; }

  private:
    struct Planned {
        int64_t window, sequences;
    };
    WorkList list_at(size_t index) const;

    AttentionShape shape_;
    int ctas_ = 0;
    void* memory_ = nullptr;
    int64_t bytes_ = 0;
    // Parts, work lists, counters, copies in this order.
    int64_t part_bytes_ = 0, list_bytes_ = 0, copies_offset_ = 0;
    size_t max_lists_ = 0;
    std::vector<Planned> planned_;
};

/// The machine's part that the CUDA runtime knows for the current device; rates keep their
/// defaults.
AttentionMachine current_attention_machine();

/// Enqueues the making of a decode step's work list from lengths and page tables: once per step and
/// sliding window, for all layers that share it. Uses args' batch, window and the split of args.kv.
void plan_decode_attention(const AttentionArgs& args, const AttentionConfig& config,
                           AttentionWorkspace& workspace, cudaStream_t stream);

/// Enqueues attention of one new token of every sequence, with the work list of the last plan for
/// the same window, number of sequences and configuration. With `programmatic`, it may start while
/// the preceding kernel of the stream still runs; that kernel must then be one that calls
/// griddepcontrol.wait itself or be complete, and only it may be writing KV, that of the newest
/// tokens. Can be captured. The same arguments give the same bits. Throws Error on arguments that
/// the kernels cannot take.
void decode_attention(const AttentionArgs& args, const AttentionConfig& config,
                      const AttentionWorkspace& workspace, cudaStream_t stream,
                      bool programmatic = true);

/// Enqueues causal attention of each sequence's new tokens, query_starts[s + 1] - query_starts[s]
/// of them (none, one or thousands), at most `max_query_tokens`. With `programmatic`, it may start
/// while the preceding kernel still runs, of which nothing is demanded but that it calls
/// griddepcontrol.wait itself or is complete. Otherwise as decode_attention, but without a plan.
void prefill_attention(const AttentionArgs& args, int64_t max_query_tokens,
                       const AttentionConfig& config, const AttentionWorkspace& workspace,
                       cudaStream_t stream, bool programmatic = true);

}  // namespace dak::cuda
