#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "model/weights.h"
#include "planner/division.h"

namespace dak {
namespace {

/// One weight of `atoms` and `pages` of the KV cache.
std::vector<Operation> operations_of(int64_t atoms, int64_t pages, int64_t page_bytes) {
    std::vector<Operation> operations(2);
    operations[0].units = atoms;
    operations[0].unit_bytes = kAtomBytes;
    operations[1].units = pages;
    operations[1].unit_bytes = page_bytes;
    return operations;
}

/// All numbers of bytes that whole units make, ascending.
std::vector<int64_t> possible_bytes(int64_t atoms, int64_t pages, int64_t page_bytes) {
    std::vector<int64_t> bytes;
    for (int64_t p = 0; p <= pages; ++p) {
        for (int64_t a = 0; a <= atoms; ++a) bytes.push_back(p * page_bytes + a * kAtomBytes);
    }
    std::ranges::sort(bytes);
    return bytes;
}

TEST(Division, FindsWhatTryingAllUnitsFinds) {
    std::mt19937_64 random(5);
    for (int i = 0; i < 3000; ++i) {
        const auto atoms = static_cast<int64_t>(random() % 60);
        const auto pages = static_cast<int64_t>(random() % 60);
        const auto page_bytes = static_cast<int64_t>(256 * (1 + random() % 200));
        const auto operations = operations_of(atoms, pages, page_bytes);
        const Division division(operations);
        const std::vector<int64_t> bytes = possible_bytes(atoms, pages, page_bytes);
        const auto sum = static_cast<uint64_t>(bytes.back());
        const auto limit = static_cast<int64_t>(random() % (sum + 10'000));

        const auto above = std::ranges::upper_bound(bytes, limit);
        EXPECT_EQ(division.largest(limit), *(above - 1));
        const auto from = std::ranges::lower_bound(bytes, limit);
        const auto smallest = division.smallest(limit);
        EXPECT_EQ(smallest, from == bytes.end() ? std::nullopt : std::optional(*from));

        // A narrow range: there is a division just when some number of bytes lies in it.
        const RemoteRange range = {limit, limit + static_cast<int64_t>(random() % 9000)};
        const bool possible = from != bytes.end() && *from <= range.most;
        const auto wanted = static_cast<double>(random() % (static_cast<uint64_t>(pages) + 1));
        const auto units = division.round(
            static_cast<double>(limit), range,
            [&](double total, std::optional<int64_t> fixed) {
                const double kv = fixed ? static_cast<double>(*fixed) : wanted;
                const double kv_bytes = kv * static_cast<double>(page_bytes);
                return std::vector<double>{total - kv_bytes, kv_bytes};
            },
            [](const std::vector<int64_t>&) { return 1.0; });
        ASSERT_EQ(units.has_value(), possible)
            << atoms << " " << pages << " " << page_bytes << " " << limit;
        if (!units) continue;
        const int64_t remote = (*units)[0] * kAtomBytes + (*units)[1] * page_bytes;
        EXPECT_GE(remote, range.least);
        EXPECT_LE(remote, range.most);
        EXPECT_LE((*units)[0], atoms);
        EXPECT_LE((*units)[1], pages);
    }
}

TEST(Division, GoesThroughNoPagesOneByOne) {
    const int64_t pages = int64_t{1} << 40;
    const auto operations = operations_of(1000, pages, 16 * kAtomBytes - 256);
    const Division division(operations);
    const int64_t half = division.stored_bytes() / 2;
    EXPECT_LE(division.largest(half), half);
    EXPECT_GE(division.smallest(half), half);
    const auto units = division.round(
        0, {half, half + kAtomBytes},
        [](double total, std::optional<int64_t>) {
            return std::vector<double>{total, 0};
        },
        [](const std::vector<int64_t>&) { return 1.0; });
    ASSERT_TRUE(units.has_value());
}

}  // namespace
}  // namespace dak
