#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "ops/ops.h"
#include "ops/testing.h"

namespace dak::ops {
namespace {

using dak::testing::random_floats;

struct Case {
    int64_t num_heads;
    KvPageLayout layout;
    std::vector<std::pair<int64_t, int64_t>> sequences;  ///< past, count
    int64_t num_local_pages;                             ///< of 64; pages are dealt out scattered
    int64_t sliding_window = 0;
};

/// Keys or values of the whole history of every sequence, fp32, and what storage makes of them.
struct History {
    std::vector<std::vector<float>> rows;  ///< per sequence [length, num_kv_heads * head_dim]
};

float stored(DType dtype, float value) {
    return visit_dtype(dtype, [&]<typename T>(T) { return to_float(from_float<T>(value)); });
}

void check(const Case& c) {
    SCOPED_TRACE(fmt::format("heads {}/{} dim {} {} window {} local pages {}", c.num_heads,
                             c.layout.num_kv_heads, c.layout.head_dim, name_of(c.layout.dtype),
                             c.sliding_window, c.num_local_pages));
    constexpr int64_t kPages = 64;
    const int64_t kv_width = c.layout.num_kv_heads * c.layout.head_dim;
    const int64_t q_width = c.num_heads * c.layout.head_dim;
    // Unwritten pages hold NaN: reading past a sequence's end would show.
    std::vector<std::byte> local(static_cast<size_t>(kPages * c.layout.page_bytes()),
                                 std::byte{0xff});
    std::vector<std::byte> remote = local;
    Attention op{c.num_heads,
                 {c.layout, local.data(), remote.data(), c.num_local_pages},
                 0.125f,
                 c.sliding_window,
                 {}};

    std::vector<std::vector<int32_t>> tables;
    std::vector<AttentionSequence> past_only, sequences;
    int32_t next_page = 0;
    for (const auto& [past, count] : c.sequences) {
        tables.emplace_back();
        for (int64_t i = 0; i < ceil_div(past + count, kPageTokens); ++i) {
            tables.back().push_back(next_page++ * 37 % kPages);  // 37 is coprime to 64
        }
    }
    ASSERT_LE(next_page, kPages);
    History keys, values;
    std::vector<float> past_k, past_v, new_k, new_v;
    for (size_t s = 0; s < c.sequences.size(); ++s) {
        const auto& [past, count] = c.sequences[s];
        past_only.push_back({past, 0, tables[s].data()});
        sequences.push_back({count, past, tables[s].data()});
        keys.rows.push_back(random_floats((past + count) * kv_width, uint32_t(10 + s)));
        values.rows.push_back(random_floats((past + count) * kv_width, uint32_t(50 + s)));
        const auto split = [&, past = past](const std::vector<float>& all,
                                            std::vector<float>& before, std::vector<float>& after) {
            before.insert(before.end(), all.begin(), all.begin() + past * kv_width);
            after.insert(after.end(), all.begin() + past * kv_width, all.end());
        };
        split(keys.rows.back(), past_k, new_k);
        split(values.rows.back(), past_v, new_v);
    }
    op.sequences = past_only;
    append_kv(op, past_k.data(), past_v.data(), kv_width);
    op.sequences = sequences;
    append_kv(op, new_k.data(), new_v.data(), kv_width);

    int64_t tokens = 0;
    for (const auto& sequence : sequences) tokens += sequence.count;
    const int64_t stride = q_width + 5;
    const auto q = random_floats(tokens * stride, 99, 3.0f);
    std::vector<float> out(static_cast<size_t>(tokens * q_width), NAN);
    attention(op, q.data(), stride, out.data());

    int64_t row = 0;
    const int64_t group = c.num_heads / c.layout.num_kv_heads;
    for (size_t s = 0; s < sequences.size(); ++s) {
        for (int64_t i = 0; i < sequences[s].count; ++i, ++row) {
            const int64_t position = sequences[s].past + i;
            const int64_t first =
                c.sliding_window ? std::max<int64_t>(0, position + 1 - c.sliding_window) : 0;
            for (int64_t head = 0; head < c.num_heads; ++head) {
                const auto kv_at = [&](const History& h, int64_t t, int64_t d) {
                    const int64_t at = t * kv_width + head / group * c.layout.head_dim + d;
                    return double(stored(c.layout.dtype, h.rows[s][size_t(at)]));
                };
                std::vector<double> weights;
                double largest = -INFINITY, total = 0;
                for (int64_t t = first; t <= position; ++t) {
                    double score = 0;
                    for (int64_t d = 0; d < c.layout.head_dim; ++d) {
                        score += q[size_t(row * stride + head * c.layout.head_dim + d)] *
                                 kv_at(keys, t, d);
                    }
                    weights.push_back(score * 0.125);
                    largest = std::max(largest, weights.back());
                }
                for (double& weight : weights) total += weight = std::exp(weight - largest);
                for (int64_t d = 0; d < c.layout.head_dim; ++d) {
                    double expected = 0;
                    for (size_t t = 0; t < weights.size(); ++t) {
                        expected += weights[t] / total * kv_at(values, first + int64_t(t), d);
                    }
                    ASSERT_NEAR(out[size_t(row * q_width + head * c.layout.head_dim + d)], expected,
                                2e-5)
                        << "sequence " << s << " token " << i << " head " << head << " d " << d;
                }
            }
        }
    }
}

TEST(Attention, PageBoundariesAndMixedLengths) {
    for (const int64_t local_pages : {0, 20, 64}) {
        check({6,
               {2, 64, DType::kBF16},
               {{0, 1},
                {62, 1},
                {63, 1},
                {64, 1},
                {65, 1},
                {127, 2},
                {0, 63},
                {0, 65},
                {300, 1},
                {10, 130}},
               local_pages});
    }
}

TEST(Attention, HeadSizesTypesAndRatios) {
    for (const int64_t head_dim : {4, 12, 20, 64, 80, 96, 128, 256}) {
        for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
            check({5, {1, head_dim, dtype}, {{70, 1}, {3, 20}}, 30});
        }
    }
    for (const int64_t group : {1, 2, 7, 16}) {
        check({3 * group, {3, 16, DType::kBF16}, {{70, 1}, {3, 20}}, 30});
    }
}

TEST(Attention, SlidingWindow) {
    for (const int64_t window : {1, 5, 64, 100}) {
        check({4, {2, 16, DType::kF32}, {{0, 150}, {130, 1}, {64, 3}}, 30, window});
    }
}

TEST(Attention, LargeScoresDoNotOverflow) {
    const KvPageLayout layout{1, 8, DType::kF32};
    std::vector<std::byte> pages(static_cast<size_t>(layout.page_bytes()));
    const int32_t page = 0;
    const AttentionSequence sequence{3, 0, &page};
    const Attention op{1, {layout, pages.data(), nullptr, 1}, 1.0f, 0, {&sequence, 1}};
    std::vector<float> k(24), v(24), q(24, 1000.0f), out(24);
    for (size_t t = 0; t < 3; ++t) {
        for (size_t d = 0; d < 8; ++d) k[t * 8 + d] = 1000.0f * float(t), v[t * 8 + d] = float(t);
    }
    append_kv(op, k.data(), v.data(), 8);
    attention(op, q.data(), 8, out.data());
    for (size_t t = 0; t < 3; ++t) EXPECT_EQ(out[t * 8], float(t));
}

TEST(KvPageLayout, ChunksOfABlockAreAPermutation) {
    for (const int64_t head_dim : {8, 24, 40, 64, 80, 96, 128, 256}) {
        const KvPageLayout layout{1, head_dim, DType::kBF16};
        std::set<int64_t> seen;
        const int64_t chunks = layout.row_chunks();
        for (int64_t token = 0; token < kPageTokens; ++token) {
            for (int64_t chunk = 0; chunk < chunks; ++chunk) {
                const int64_t offset = layout.chunk_offset(token, chunk);
                // The first tokens of a panel are its first bytes.
                const int64_t panel = chunk / kPanelChunks * kPanelChunks;
                const int64_t width = std::min(kPanelChunks, chunks - panel);
                const int64_t in_panel = offset / kChunkBytes - panel * kPageTokens;
                EXPECT_EQ(in_panel / width, token);
                seen.insert(offset);
            }
        }
        EXPECT_EQ(int64_t(seen.size()), kPageTokens * chunks);
    }
}

TEST(KvPageLayout, EightTokensFallIntoDifferentBanks) {
    for (const int64_t head_dim : {40, 64, 80, 96, 128, 256}) {
        const KvPageLayout layout{1, head_dim, DType::kBF16};
        std::set<int64_t> banks;
        for (int64_t token = 0; token < 8; ++token) {
            banks.insert(layout.chunk_offset(token, 1) / kChunkBytes % 8);
        }
        EXPECT_EQ(banks.size(), 8u) << head_dim;
    }
}

}  // namespace
}  // namespace dak::ops
