#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/arena.h"
#include "memory/kv_page.h"

namespace dak {

/// The pool of KV pages, in two tiers. A page index stands for 64 tokens of every layer: each layer
/// has its own array of pages in each tier, all indexed alike. Memory is reserved at construction
/// and touched as pages are first used.
class KvCache {
  public:
    /// `num_remote_pages` of the `num_pages` are remote.
    KvCache(const KvPageLayout& layout, int64_t num_layers, int64_t num_pages,
            int64_t num_remote_pages, const TierMemory& memory = TierMemory::on_host());

    static constexpr int64_t pages_for(int64_t tokens) { return ceil_div(tokens, kPageTokens); }

    int64_t num_pages() const { return num_local_pages_ + num_remote_pages_; }
    int64_t num_local_pages() const { return num_local_pages_; }
    int64_t num_remote_pages() const { return num_remote_pages_; }
    int64_t free_pages() const;
    int64_t local_bytes() const { return local_.capacity_bytes(); }
    int64_t remote_bytes() const { return remote_.capacity_bytes(); }
    /// Bytes that one token occupies, all layers and heads.
    int64_t token_bytes() const { return num_layers_ * layout_.page_bytes() / kPageTokens; }

    /// `count` pages, remote and local ones mixed so that the pages in use keep to the pool's
    /// ratio. Throws Error when fewer are free.
    std::vector<int32_t> allocate(int64_t count);
    void release(std::span<const int32_t> pages);

    PagedKv layer(int64_t layer) const;

  private:
    KvPageLayout layout_;
    int64_t num_layers_;
    int64_t num_remote_pages_;
    int64_t num_local_pages_;
    Arena local_;
    Arena remote_;
    std::byte* local_base_;
    std::byte* remote_base_;
    std::vector<int32_t> free_local_;
    std::vector<int32_t> free_remote_;
};

}  // namespace dak
