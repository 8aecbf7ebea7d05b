#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "ops/cpu/parallel.h"
#include "ops/cpu/vec.h"
#include "ops/ops.h"

namespace dak::ops {

namespace {

/// Query tokens of one task: enough to pay for widening each page, few enough to share a long
/// prompt between threads.
constexpr int64_t kQueryBlock = 16;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// exp(x) for x <= 0, to about one unit in the last place; exactly 0 for -inf.
Vec exp_nonpositive(Vec x) {
    constexpr float kLowest = -87.0f;  // exp() is still a normal number there
    const auto underflow = x < kLowest;
    const Vec clamped = underflow ? broadcast(kLowest) : x;
    // Adding 1.5 * 2^23 leaves round(x / ln 2) in the low mantissa bits.
    const Vec shifted = clamped * 1.44269504f + 0x1.8p23f;
    const Vec n = shifted - 0x1.8p23f;
    const Vec r = (clamped - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;  // ln 2 in two parts
    Vec p = broadcast(1.0f / 720);
    for (const float coefficient : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
        p = p * r + coefficient;
    }
    const VecBits scale = (std::bit_cast<VecBits>(shifted) + 127u) << 23;
    const Vec result = p * std::bit_cast<Vec>(scale);
    return underflow ? Vec{} : result;
}

float max_of(Vec value) {
    float result = value[0];
    for (int i = 1; i < kLanes; ++i) result = std::max(result, value[i]);
    return result;
}

/// Lane i of the result is the sum of v[i]'s lanes.
Vec sum_each(const std::array<Vec, 8>& v) {
    const auto low = [](Vec a, Vec b) {
        return __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) +
               __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
    };
    const auto middle = [](Vec a, Vec b) {
        return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +
               __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    };
    const auto high = [](Vec a, Vec b) {
        return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
               __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    };
    return high(middle(low(v[0], v[1]), low(v[2], v[3])), middle(low(v[4], v[5]), low(v[6], v[7])));
}

/// Widens the first `tokens` rows of a K or V block to rows of `width` (head_dim rounded up to
/// whole vectors); what lies past head_dim is zero in storage already.
template <typename T>
void widen_block(const KvPageLayout& layout, const std::byte* block, int64_t tokens, int64_t width,
                 float* out) {
    constexpr int64_t kPerChunk = kChunkBytes / static_cast<int64_t>(sizeof(T));
    for (int64_t token = 0; token < tokens; ++token) {
        for (int64_t i = 0; i < layout.head_dim; i += kPerChunk) {
            T chunk[kPerChunk];
            std::memcpy(chunk, block + layout.chunk_offset(token, i / kPerChunk), kChunkBytes);
            float* to = out + token * width + i;
            for (int64_t j = 0; j < kPerChunk; ++j) to[j] = to_float(chunk[j]);
        }
    }
}

/// Running softmax-weighted sum of one query row.
struct RowState {
    float max = kMinusInfinity;
    float sum = 0.0f;
};

/// Attention of a few consecutive query tokens of one sequence and KV head.
template <typename T>
class Task {
  public:
    Task(const Attention& attention, int64_t kv_head)
        : attention_(attention),
          layout_(attention.kv.layout),
          kv_head_(kv_head),
          group_(attention.num_heads / layout_.num_kv_heads),
          width_(round_up(layout_.head_dim, kLanes)) {
        keys_.resize(static_cast<size_t>(kPageTokens * width_));
        values_.resize(keys_.size());
        queries_.resize(static_cast<size_t>(kQueryBlock * group_ * width_));
        sums_.resize(queries_.size());
        states_.resize(static_cast<size_t>(kQueryBlock * group_));
    }

    /// `q` and `out` point at the sequence's first new token.
    void run(const AttentionSequence& sequence, int64_t first, const float* q, int64_t stride,
             float* out) {
        const int64_t count = std::min(kQueryBlock, sequence.count - first);
        load_queries(first, count, q, stride);
        const int64_t begin = first_visible(sequence.past + first);
        const int64_t end = sequence.past + first + count;
        for (int64_t page = begin / kPageTokens; page * kPageTokens < end; ++page) {
            add_page(sequence, first, count, page, end);
        }
        for (int64_t i = 0; i < count * group_; ++i) {
            const int64_t head = kv_head_ * group_ + i % group_;
            float* to =
                out + ((first + i / group_) * attention_.num_heads + head) * layout_.head_dim;
            const float scale = 1.0f / states_[static_cast<size_t>(i)].sum;
            for (int64_t d = 0; d < layout_.head_dim; ++d) to[d] = sums_row(i)[d] * scale;
        }
    }

  private:
    float* sums_row(int64_t row) { return sums_.data() + row * width_; }

    int64_t first_visible(int64_t position) const {
        if (attention_.sliding_window == 0) return 0;
        return std::max<int64_t>(0, position + 1 - attention_.sliding_window);
    }

    void load_queries(int64_t first, int64_t count, const float* q, int64_t stride) {
        std::fill(queries_.begin(), queries_.end(), 0.0f);
        std::fill(sums_.begin(), sums_.end(), 0.0f);
        std::fill(states_.begin(), states_.end(), RowState{});
        for (int64_t i = 0; i < count * group_; ++i) {
            const int64_t head = kv_head_ * group_ + i % group_;
            const float* from = q + (first + i / group_) * stride + head * layout_.head_dim;
            for (int64_t d = 0; d < layout_.head_dim; ++d) {
                queries_[static_cast<size_t>(i * width_ + d)] = from[d] * attention_.scale;
            }
        }
    }

    void add_page(const AttentionSequence& sequence, int64_t first, int64_t count, int64_t page,
                  int64_t end) {
        const std::byte* base = attention_.kv.page(sequence.pages[page]);
        const int64_t tokens = std::min(kPageTokens, end - page * kPageTokens);
        widen_block<T>(layout_, base + layout_.k_offset(kv_head_), tokens, width_, keys_.data());
        widen_block<T>(layout_, base + layout_.v_offset(kv_head_), tokens, width_, values_.data());
        for (int64_t i = 0; i < count * group_; ++i) {
            const int64_t position = sequence.past + first + i / group_;
            const int64_t low = std::max<int64_t>(0, first_visible(position) - page * kPageTokens);
            const int64_t high = std::min(kPageTokens, position + 1 - page * kPageTokens);
            if (low < high) add_row(i, low, high);
        }
    }

    /// Adds tokens [low, high) of the current page to one query row.
    void add_row(int64_t row, int64_t low, int64_t high) {
        alignas(32) float weights[kPageTokens];
        RowState& state = states_[static_cast<size_t>(row)];
        const float page_max = score_row(row, low, high, weights);
        const float new_max = std::max(state.max, page_max);
        const float correction = exp_nonpositive(broadcast(state.max - new_max))[0];
        Vec total{};
        const int64_t first_group = low / kLanes * kLanes;
        for (int64_t t = first_group; t < high; t += kLanes) {
            const Vec weight = exp_nonpositive(load(weights + t) - new_max);
            store(weights + t, weight);
            total += weight;
        }
        state.max = new_max;
        state.sum = state.sum * correction + sum(total);
        for (int64_t d = 0; d < width_; d += kLanes) {
            Vec acc = load(sums_row(row) + d) * correction;
            for (int64_t t = low; t < high; ++t) {
                acc += weights[t] * load(values_.data() + t * width_ + d);
            }
            store(sums_row(row) + d, acc);
        }
    }

    /// Scores of tokens [low, high), -inf elsewhere in their groups of eight; returns the largest.
    float score_row(int64_t row, int64_t low, int64_t high, float* scores) const {
        const float* query = queries_.data() + row * width_;
        Vec largest = broadcast(kMinusInfinity);
        for (int64_t t = low / kLanes * kLanes; t < high; t += kLanes) {
            std::array<Vec, 8> partial{};
            for (int64_t d = 0; d < width_; d += kLanes) {
                const Vec q = load(query + d);
                for (int64_t lane = 0; lane < kLanes; ++lane) {
                    partial[static_cast<size_t>(lane)] +=
                        q * load(keys_.data() + (t + lane) * width_ + d);
                }
            }
            Vec score = sum_each(partial);
            for (int64_t lane = 0; lane < kLanes; ++lane) {
                if (t + lane < low || t + lane >= high) score[lane] = kMinusInfinity;
            }
            store(scores + t, score);
            largest = largest > score ? largest : score;
        }
        return max_of(largest);
    }

    const Attention& attention_;
    const KvPageLayout& layout_;
    const int64_t kv_head_;
    const int64_t group_;  ///< query heads that share the KV head
    const int64_t width_;
    std::vector<float> keys_, values_;
    std::vector<float> queries_, sums_;
    std::vector<RowState> states_;
};

struct Unit {
    const AttentionSequence* sequence;
    int64_t first_row;  ///< of the sequence, in q and out
    int64_t first_token;
};

std::vector<Unit> query_blocks(const Attention& attention) {
    std::vector<Unit> units;
    int64_t row = 0;
    for (const AttentionSequence& sequence : attention.sequences) {
        for (int64_t token = 0; token < sequence.count; token += kQueryBlock) {
            units.push_back({&sequence, row, token});
        }
        row += sequence.count;
    }
    return units;
}

template <typename T>
void store_row(const KvPageLayout& layout, std::byte* block, int64_t token, const float* from) {
    constexpr int64_t kPerChunk = kChunkBytes / static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < layout.head_dim; i += kPerChunk) {
        T chunk[kPerChunk]{};
        const int64_t count = std::min(kPerChunk, layout.head_dim - i);
        for (int64_t j = 0; j < count; ++j) chunk[j] = from_float<T>(from[i + j]);
        std::memcpy(block + layout.chunk_offset(token, i / kPerChunk), chunk, kChunkBytes);
    }
}

}  // namespace

void append_kv(const Attention& attention, const float* k, const float* v, int64_t stride) {
    const KvPageLayout& layout = attention.kv.layout;
    visit_dtype(layout.dtype, [&]<typename T>(T) {
        int64_t row = 0;
        for (const AttentionSequence& sequence : attention.sequences) {
            for (int64_t i = 0; i < sequence.count; ++i, ++row) {
                const int64_t position = sequence.past + i;
                std::byte* page = attention.kv.page(sequence.pages[position / kPageTokens]);
                for (int64_t head = 0; head < layout.num_kv_heads; ++head) {
                    const int64_t offset = row * stride + head * layout.head_dim;
                    const int64_t token = position % kPageTokens;
                    store_row<T>(layout, page + layout.k_offset(head), token, k + offset);
                    store_row<T>(layout, page + layout.v_offset(head), token, v + offset);
                }
            }
        }
    });
}

void attention(const Attention& attention, const float* q, int64_t stride, float* out) {
    const KvPageLayout& layout = attention.kv.layout;
    const std::vector<Unit> units = query_blocks(attention);
    const int64_t num_tasks = static_cast<int64_t>(units.size()) * layout.num_kv_heads;
    visit_dtype(layout.dtype, [&]<typename T>(T) {
        parallel_for(num_tasks, [&](int64_t i) {
            const Unit& unit = units[static_cast<size_t>(i / layout.num_kv_heads)];
            Task<T>(attention, i % layout.num_kv_heads)
                .run(*unit.sequence, unit.first_token, q + unit.first_row * stride, stride,
                     out + unit.first_row * attention.num_heads * layout.head_dim);
        });
    });
}

}  // namespace dak::ops
