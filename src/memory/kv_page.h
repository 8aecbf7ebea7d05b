#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "base/dtype.h"
#include "base/units.h"
#include "memory/packing.h"

namespace dak {

/// Tokens of one page of the KV cache.
inline constexpr int64_t kPageTokens = 64;
/// 16-byte chunks of one token in a panel of a K or V block.
inline constexpr int64_t kPanelChunks = 8;

/// Storage of one page for all KV heads of one layer: [kv head]{K, V}, so that a full K or V block
/// is one bulk copy. A block is cut into panels of 128 bytes of each token (the last one has what
/// is left), each token-major: [panel][64 tokens][128 bytes]. The first t tokens of a block are one
/// contiguous piece of each panel. The 16-byte chunks of a row are permuted by token so that eight
/// consecutive tokens' equal chunks fall into different shared-memory banks; for rows of 128, 64
/// and 32 bytes the permutation is the one that wgmma and the copy engine know by that width.
struct KvPageLayout {
    int64_t num_kv_heads = 0;
    int64_t head_dim = 0;
    DType dtype = DType::kBF16;

    constexpr int64_t row_bytes() const { return round_up(head_dim * size_of(dtype), kChunkBytes); }
    constexpr int64_t block_bytes() const { return kPageTokens * row_bytes(); }
    constexpr int64_t head_bytes() const { return 2 * block_bytes(); }
    constexpr int64_t page_bytes() const { return num_kv_heads * head_bytes(); }

    constexpr int64_t k_offset(int64_t kv_head) const { return kv_head * head_bytes(); }
    constexpr int64_t v_offset(int64_t kv_head) const { return k_offset(kv_head) + block_bytes(); }

    constexpr int64_t row_chunks() const { return row_bytes() / kChunkBytes; }

    /// Byte offset inside a K or V block of the 16-byte chunk `chunk` of token `token` (0..63).
    /// A panel's row of r chunks starts r*t mod 8 chunks into the banks: rows repeat after
    /// 8/gcd(r, 8) tokens, and the XOR moves each repetition by one chunk inside an aligned group
    /// of gcd(r, 8).
    constexpr int64_t chunk_offset(int64_t token, int64_t chunk) const {
        const int64_t panel = chunk / kPanelChunks;
        const int64_t width = std::min(kPanelChunks, row_chunks() - panel * kPanelChunks);
        const int64_t group = std::gcd(width, int64_t{8});
        const int64_t swizzle = (token / (8 / group)) & (group - 1);
        return (panel * kPageTokens * kPanelChunks + token * width +
                ((chunk % kPanelChunks) ^ swizzle)) *
               kChunkBytes;
    }
};

/// Where the pages of one layer's KV cache live. Pages [0, num_local_pages) are local, the rest
/// remote.
struct PagedKv {
    KvPageLayout layout;
    std::byte* local = nullptr;
    std::byte* remote = nullptr;
    int64_t num_local_pages = 0;

    std::byte* page(int64_t index) const {
        return index < num_local_pages ? local + index * layout.page_bytes()
                                       : remote + (index - num_local_pages) * layout.page_bytes();
    }
};

}  // namespace dak
