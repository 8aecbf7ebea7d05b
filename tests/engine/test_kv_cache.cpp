#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/error.h"
#include "engine/kv_cache.h"

namespace dak {
namespace {

constexpr KvPageLayout kLayout{2, 16, DType::kBF16};

TEST(KvCache, PagesOfAllLayersAndTiersAreDisjoint) {
    for (const double ratio : {0.0, 0.3, 1.0}) {
        KvCache cache(kLayout, 3, 10, std::llround(ratio * 10));
        const auto pages = cache.allocate(10);
        std::set<const std::byte*> places;
        for (int64_t layer = 0; layer < 3; ++layer) {
            for (const int32_t page : pages) {
                std::byte* place = cache.layer(layer).page(page);
                std::fill_n(place, kLayout.page_bytes(), std::byte{0xff});  // ours to write
                places.insert(place);
            }
        }
        ASSERT_EQ(places.size(), 30u);
        for (auto next = places.begin(), place = next++; next != places.end(); place = next++) {
            EXPECT_GE(*next - *place, kLayout.page_bytes());
        }
        EXPECT_EQ(cache.num_remote_pages(), std::llround(ratio * 10));
        EXPECT_EQ(cache.local_bytes() + cache.remote_bytes(), 30 * kLayout.page_bytes());
    }
}

TEST(KvCache, PagesInUseKeepToTheRatio) {
    KvCache cache(kLayout, 1, 100, 30);
    std::mt19937 random(1);
    std::vector<int32_t> used;
    const auto remote = [&] {
        return std::count_if(used.begin(), used.end(),
                             [&](int32_t page) { return page >= cache.num_local_pages(); });
    };
    for (int i = 0; i < 50; ++i) {
        for (const int32_t page : cache.allocate(1)) used.push_back(page);
        EXPECT_EQ(remote(), (static_cast<long>(used.size()) * 30 + 99) / 100);
    }
    for (int i = 0; i < 1000; ++i) {
        if (random() % 2 == 0 && cache.free_pages() > 0) {
            used.push_back(cache.allocate(1)[0]);
        } else if (!used.empty()) {
            std::swap(used[random() % used.size()], used.back());
            cache.release({&used.back(), 1});
            used.pop_back();
        }
        ASSERT_EQ(std::set(used.begin(), used.end()).size(), used.size());
        ASSERT_EQ(cache.free_pages(), 100 - static_cast<int64_t>(used.size()));
    }
}

TEST(KvCache, RefusesMoreThanIsFree) {
    KvCache cache(kLayout, 1, 4, 2);
    cache.allocate(3);
    EXPECT_THROW(cache.allocate(2), Error);
    EXPECT_EQ(cache.free_pages(), 1);
}

}  // namespace
}  // namespace dak
