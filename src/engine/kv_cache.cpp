#include "engine/kv_cache.h"

#include "base/error.h"

namespace dak {

namespace {

/// Page indices [begin, end), to be taken from the back in ascending order.
std::vector<int32_t> descending(int64_t begin, int64_t end) {
    std::vector<int32_t> pages;
    for (int64_t page = end; page-- > begin;) pages.push_back(static_cast<int32_t>(page));
    return pages;
}

int32_t take(std::vector<int32_t>& pages) {
    const int32_t page = pages.back();
    pages.pop_back();
    return page;
}

}  // namespace

KvCache::KvCache(const KvPageLayout& layout, int64_t num_layers, int64_t num_pages,
                 int64_t num_remote_pages, const TierMemory& memory)
    : layout_(layout),
      num_layers_(num_layers),
      num_remote_pages_(num_remote_pages),
      num_local_pages_(num_pages - num_remote_pages),
      local_(memory.local("local KV cache", num_local_pages_ * num_layers * layout.page_bytes())),
      remote_(
          memory.remote("remote KV cache", num_remote_pages_ * num_layers * layout.page_bytes())),
      local_base_(local_.allocate(local_.capacity_bytes())),
      remote_base_(remote_.allocate(remote_.capacity_bytes())),
      free_local_(descending(0, num_local_pages_)),
      free_remote_(descending(num_local_pages_, num_pages)) {}

int64_t KvCache::free_pages() const {
    return static_cast<int64_t>(free_local_.size() + free_remote_.size());
}

std::vector<int32_t> KvCache::allocate(int64_t count) {
    require(count <= free_pages(), "{} KV pages asked for where {} are free", count, free_pages());
    std::vector<int32_t> pages;
    pages.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
        const int64_t used_remote = num_remote_pages_ - static_cast<int64_t>(free_remote_.size());
        const int64_t used = num_pages() - free_pages();
        // The remote share of the pages in use, this one included, must not fall below the pool's.
        const bool remote_due = used_remote * num_pages() < (used + 1) * num_remote_pages_;
        const bool remote = free_local_.empty() || (remote_due && !free_remote_.empty());
        pages.push_back(take(remote ? free_remote_ : free_local_));
    }
    return pages;
}

void KvCache::release(std::span<const int32_t> pages) {
    for (const int32_t page : pages) {
        (page < num_local_pages_ ? free_local_ : free_remote_).push_back(page);
    }
}

PagedKv KvCache::layer(int64_t layer) const {
    return {layout_, local_base_ + layer * num_local_pages_ * layout_.page_bytes(),
            remote_base_ + layer * num_remote_pages_ * layout_.page_bytes(), num_local_pages_};
}

}  // namespace dak
