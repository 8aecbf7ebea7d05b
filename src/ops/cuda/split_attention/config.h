#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/units.h"

// How split attention is run: chosen on the host from shape and machine, by arithmetic alone.

namespace dak::cuda {

/// The rates and limits that the choice depends on; the defaults are an H200 on PCIe 5 x16.
struct AttentionMachine {
    int sms = 132;
    double remote_gbps = 51.4;          ///< B_h, read by SMs
    double remote_latency_us = 2;       ///< of one 16 KiB read on a busy link
    int64_t window_bytes = 512 * kKiB;  ///< remote bytes in flight that leave local reads untouched
};

struct AttentionShape {
    int64_t num_heads = 0;
    int64_t num_kv_heads = 0;
    int64_t head_dim = 0;
    DType dtype = DType::kBF16;
    int64_t max_sequences = 0;  ///< rows of the tables
    int64_t max_pages = 0;      ///< of one sequence
    bool remote_pages = false;  ///< the cache has remote pages
    /// Remote pages (of one layer) of which prefill may keep local copies while it runs; those
    /// beyond cross the link once per 128 query rows.
    int64_t copied_pages = 0;
};

struct AttentionConfig {
    int ctas = 132;        ///< of the decode kernel, all resident at once
    int remote_ctas = 1;   ///< those among them that read the remote tier while there is a need
    int slots = 6;         ///< decode: ring of K or V blocks
    int remote_slots = 4;  ///< how many of them a remote CTA uses: its part of the window
    int query_slots = 2;
    int result_slots = 1;

    /// "132 CTAs, 4 of them remote (4 slots), ring 6, queries 2, results 1"
    std::string to_string() const;
};

/// Whether there are kernels for these heads; otherwise there is generic_attention.
bool serves_heads(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim);

/// Throws Error when the kernels do not serve the shape.
AttentionConfig choose_attention_config(const AttentionShape& shape,
                                        const AttentionMachine& machine);

}  // namespace dak::cuda
