#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "memory/arena.h"
#include "ops/cuda/attention_reference.h"
#include "ops/cuda/check.h"
#include "ops/cuda/device_array.h"
#include "ops/cuda/split_attention/split_attention.h"

// One attention with everything on the GPU: a cache of NaN in which only the sequences' tokens are
// numbers, poisoned output with guard columns and rows, and an fp64 oracle.

namespace dak::cuda {

enum class RemotePages { kNone, kAll, kAlternating, kWholeSequences, kRandom };

struct SequenceCase {
    int length = 1;      ///< tokens in the cache
    int new_tokens = 1;  ///< the last ones of these are queries
};

struct AttentionCase {
    std::vector<SequenceCase> sequences;
    int kv_heads = 1, head_group = 1, head_dim = 128;
    DType dtype = DType::kBF16;
    RemotePages remote = RemotePages::kNone;
    int sliding_window = 0;
    float soft_cap = 0;
    float sharpness = 1;  ///< of the softmax: scores have this standard deviation
    int padding = 0;      ///< elements between rows of q and out, times 8
    uint32_t seed = 1;

    std::string to_string() const {
        std::string text = fmt::format(
            "{} sequences, {} x {} heads, D{} {} remote {} window {} cap {} sharpness {} seed {}:",
            sequences.size(), kv_heads, head_group, head_dim, name_of(dtype),
            static_cast<int>(remote), sliding_window, soft_cap, sharpness, seed);
        for (size_t i = 0; i < std::min<size_t>(sequences.size(), 8); ++i) {
            text += fmt::format(" {}/{}", sequences[i].new_tokens, sequences[i].length);
        }
        return text;
    }
};

class AttentionProblem {
  public:
    static constexpr int kGuardRows = 1;

    AttentionProblem(const AttentionCase& c, bool decode)
        : c_(c),
          decode_(decode),
          layout_{c.kv_heads, c.head_dim, c.dtype},
          heads_(c.kv_heads * c.head_group),
          width_(int64_t{heads_} * c.head_dim),
          stride_(width_ + c.padding * 8),
          generator_(c.seed) {
        place_pages();
        make_rows();
        fill();
    }

    AttentionShape shape() const {
        return {.num_heads = heads_,
                .num_kv_heads = c_.kv_heads,
                .head_dim = c_.head_dim,
                .dtype = c_.dtype,
                .max_sequences = static_cast<int64_t>(c_.sequences.size()),
                .max_pages = max_pages_,
                .remote_pages = remote_pages_ > 0};
    }

    AttentionArgs args() const {
        AttentionArgs args;
        args.batch = {.sequences = static_cast<int64_t>(c_.sequences.size()),
                      .lengths = lengths_->data(),
                      .query_starts = decode_ ? nullptr : starts_->data(),
                      .pages = table_->data(),
                      .pages_stride = max_pages_};
        args.kv = {layout_, local_base_, remote_base_, local_pages_};
        args.num_heads = heads_;
        args.scale = scale();
        args.sliding_window = c_.sliding_window;
        args.soft_cap = c_.soft_cap;
        args.q = q_->data();
        args.ldq = stride_;
        args.out = out_->data();
        args.ldo = stride_;
        return args;
    }

    int64_t remote_pages() const { return remote_pages_; }
    int max_query_tokens() const {
        return std::ranges::max(c_.sequences, {}, &SequenceCase::new_tokens).new_tokens;
    }

    /// Decoding only: other lengths, none greater than at first.
    void set_lengths(const std::vector<int>& lengths) {
        for (size_t s = 0; s < lengths.size(); ++s) {
            c_.sequences[s].length = lengths[s];
            row_positions_[s] = lengths[s] - 1;
        }
        lengths_->upload(all_lengths());
    }

    void poison() { out_->poison(); }
    std::vector<uint16_t> result() const { return out_->download(); }

    /// Makes the newest token of every sequence NaN again, and enqueues a kernel that stores it
    /// late.
    void forget_newest() {
        check(cudaMemset(local_base_, kPoison, static_cast<size_t>(local_bytes())), "poison");
        if (remote_pages_ > 0) {
            check(cudaMemset(remote_base_, kPoison, static_cast<size_t>(remote_bytes())), "poison");
        }
        std::vector<int32_t> newest(c_.sequences.size()), lengths(newest);
        for (size_t s = 0; s < newest.size(); ++s) {
            lengths[s] = std::max(0, c_.sequences[s].length - 1);
            newest[s] = lengths[s];
        }
        lengths_->upload(lengths);
        fill_from(first_tokens(), false, nullptr);
        check(cudaDeviceSynchronize(), "fill");
        lengths_->upload(all_lengths());
        first_->upload(newest);
    }
    void store_newest_late(cudaStream_t stream) {
        testing::fill_cache(cache(), sequences(), first_->data(), c_.seed, true, stream);
        check(cudaGetLastError(), "late fill");
    }

    /// Empty when the result is right; otherwise what is wrong with it.
    std::string verdict() const {
        const std::vector<double> expected = oracle();
        const std::vector<uint16_t> bits = out_->download();
        double error = 0, norm = 0, worst = 0;
        for (size_t row = 0; row < row_sequences_.size(); ++row) {
            const bool exists = row_positions_[row] >= 0;
            for (int64_t i = 0; i < stride_; ++i) {
                const double value =
                    widened(bits[row * static_cast<size_t>(stride_) + static_cast<size_t>(i)]);
                if (!exists || i >= width_) {
                    if (!std::isnan(value)) {
                        return fmt::format("out[{}, {}] was written", row, i);
                    }
                    continue;
                }
                const double reference =
                    expected[row * static_cast<size_t>(width_) + static_cast<size_t>(i)];
                if (!std::isfinite(value)) {
                    return fmt::format("out[{}, {}] (sequence {}) is {}, not {}", row, i,
                                       row_sequences_[row], value, reference);
                }
                error += (value - reference) * (value - reference);
                norm += reference * reference;
                worst = std::max(worst, std::abs(value - reference));
            }
        }
        for (size_t i = row_sequences_.size() * static_cast<size_t>(stride_); i < bits.size();
             ++i) {
            if (!std::isnan(widened(bits[i]))) return "a row past the last was written";
        }
        // Weights and results are rounded to the type; values are below 1.74.
        const double ulp = c_.dtype == DType::kBF16 ? 1.0 / 256 : 1.0 / 2048;
        const double relative = std::sqrt(error / std::max(norm, 1e-30));
        if (relative > 0.7 * ulp + 2e-5 || worst > 2 * 1.74 * ulp) {
            return fmt::format("error {:.2e} of the norm, worst {:.2e}", relative, worst);
        }
        return {};
    }

  private:
    float scale() const { return c_.sharpness / std::sqrt(static_cast<float>(c_.head_dim)); }
    int64_t local_bytes() const { return local_pages_ * layout_.page_bytes(); }
    int64_t remote_bytes() const { return remote_pages_ * layout_.page_bytes(); }
    double widened(uint16_t bits) const {
        return c_.dtype == DType::kBF16 ? to_float(BF16{bits}) : to_float(F16{bits});
    }
    int between(int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(generator_);
    }

    bool is_remote(size_t sequence, int page) {
        switch (c_.remote) {
            case RemotePages::kNone:
                return false;
            case RemotePages::kAll:
                return true;
            case RemotePages::kAlternating:
                return page % 2 == 1;
            case RemotePages::kWholeSequences:
                return sequence % 2 == 1;
            case RemotePages::kRandom:
                return between(0, 3) == 0;
        }
        return false;
    }

    void place_pages() {
        const auto count = c_.sequences.size();
        for (const SequenceCase& s : c_.sequences) {
            max_pages_ = std::max<int64_t>(max_pages_, ceil_div(s.length, kPageTokens));
        }
        max_pages_ += between(0, 3);
        std::vector<std::pair<size_t, bool>> places;  // in the table, and the tier
        for (size_t s = 0; s < count; ++s) {
            const auto pages = ceil_div(c_.sequences[s].length, kPageTokens);
            for (int i = 0; i < pages; ++i) {
                places.emplace_back(s * static_cast<size_t>(max_pages_) + static_cast<size_t>(i),
                                    is_remote(s, i));
                (places.back().second ? remote_pages_ : local_pages_) += 1;
            }
        }
        local_pages_ += 1;  // one that nobody has
        std::vector<int32_t> local(static_cast<size_t>(local_pages_)),
            remote(static_cast<size_t>(remote_pages_));
        std::iota(local.begin(), local.end(), 0);
        std::iota(remote.begin(), remote.end(), static_cast<int32_t>(local_pages_));
        std::ranges::shuffle(local, generator_);
        std::ranges::shuffle(remote, generator_);
        std::vector<int32_t> table(count * static_cast<size_t>(max_pages_), 0x7fffff);
        for (const auto& [place, is_remote_page] : places) {
            auto& from = is_remote_page ? remote : local;
            table[place] = from.back();
            from.pop_back();
        }
        table_.emplace(table);
        local_.emplace(Arena::device("local pages", local_bytes()));
        remote_.emplace(Arena::pinned_host("remote pages", std::max<int64_t>(64, remote_bytes())));
        local_base_ = local_->allocate(local_bytes());
        if (remote_pages_ > 0) remote_base_ = remote_->allocate(remote_bytes());
        lengths_.emplace(all_lengths());
    }

    std::vector<int32_t> all_lengths() const {
        std::vector<int32_t> lengths;
        for (const SequenceCase& s : c_.sequences) lengths.push_back(s.length);
        return lengths;
    }

    /// The first token that any query sees: those before are never stored.
    std::vector<int32_t> first_tokens() const {
        std::vector<int32_t> first;
        for (const SequenceCase& s : c_.sequences) {
            const int oldest = s.length - s.new_tokens;
            first.push_back(c_.sliding_window > 0 ? std::max(0, oldest + 1 - c_.sliding_window)
                                                  : 0);
        }
        return first;
    }

    void make_rows() {
        std::vector<int32_t> starts = {0};
        for (size_t s = 0; s < c_.sequences.size(); ++s) {
            const auto [length, new_tokens] = c_.sequences[s];
            for (int i = 0; i < new_tokens; ++i) {
                row_sequences_.push_back(static_cast<int32_t>(s));
                row_positions_.push_back(length - new_tokens + i);  // -1: an empty slot
            }
            starts.push_back(static_cast<int32_t>(row_sequences_.size()));
        }
        starts_.emplace(starts);
        const auto elements = (row_sequences_.size() + kGuardRows) * static_cast<size_t>(stride_);
        std::vector<uint16_t> q(elements, 0xffff);
        std::uniform_real_distribution<float> uniform(-1.7320508f, 1.7320508f);
        for (size_t row = 0; row < row_sequences_.size(); ++row) {
            for (int64_t i = 0; i < width_; ++i) {
                const float v = uniform(generator_);
                q[row * static_cast<size_t>(stride_) + static_cast<size_t>(i)] =
                    c_.dtype == DType::kBF16 ? from_float<BF16>(v).bits : from_float<F16>(v).bits;
            }
        }
        q_.emplace(q);
        out_.emplace(elements);
    }

    void fill() {
        std::vector<int32_t> offsets;
        const int64_t per_chunk = kChunkBytes / 2;
        for (int64_t token = 0; token < kPageTokens; ++token) {
            for (int64_t d = 0; d < c_.head_dim; ++d) {
                offsets.push_back(static_cast<int32_t>(layout_.chunk_offset(token, d / per_chunk) +
                                                       d % per_chunk * 2));
            }
        }
        offsets_.emplace(offsets);
        first_.emplace(first_tokens());
        check(cudaMemset(local_base_, kPoison, static_cast<size_t>(local_bytes())), "poison");
        if (remote_pages_ > 0) {
            check(cudaMemset(remote_base_, kPoison, static_cast<size_t>(remote_bytes())), "poison");
        }
        fill_from(first_tokens(), false, nullptr);
        check(cudaDeviceSynchronize(), "fill");
    }

    void fill_from(const std::vector<int32_t>& first, bool slow, cudaStream_t stream) {
        first_->upload(first);
        testing::fill_cache(cache(), sequences(), first_->data(), c_.seed, slow, stream);
        check(cudaGetLastError(), "fill");
    }

    testing::CacheView cache() const {
        return {.local = reinterpret_cast<uint8_t*>(local_base_),
                .remote = reinterpret_cast<uint8_t*>(remote_base_),
                .num_local_pages = local_pages_,
                .page_bytes = layout_.page_bytes(),
                .head_bytes = layout_.head_bytes(),
                .block_bytes = layout_.block_bytes(),
                .offsets = offsets_->data(),
                .kv_heads = c_.kv_heads,
                .head_dim = c_.head_dim,
                .fp16 = c_.dtype == DType::kF16};
    }
    testing::SequenceView sequences() const {
        return {lengths_->data(), table_->data(), max_pages_,
                static_cast<int>(c_.sequences.size())};
    }

    std::vector<double> oracle() const {
        std::vector<int32_t> positions = row_positions_;
        for (int32_t& position : positions) position = std::max(position, -1);
        DeviceArray<int32_t> row_sequences(row_sequences_), row_positions(positions);
        DeviceArray<double> out(row_sequences_.size() * static_cast<size_t>(width_));
        testing::ReferenceArgs args;
        args.cache = cache();
        args.sequences = sequences();
        args.q = q_->data();
        args.ldq = stride_;
        args.row_sequences = row_sequences.data();
        args.row_positions = row_positions.data();
        args.rows = static_cast<int>(row_sequences_.size());
        args.heads = heads_;
        args.max_length = std::ranges::max(c_.sequences, {}, &SequenceCase::length).length;
        args.scale = double{scale()};
        args.soft_cap = double{c_.soft_cap};
        args.sliding_window = c_.sliding_window;
        args.out = out.data();
        testing::reference_attention(args, nullptr);
        check(cudaDeviceSynchronize(), "oracle");
        return out.download();
    }

    AttentionCase c_;
    bool decode_;
    KvPageLayout layout_;
    int heads_;
    int64_t width_, stride_;
    std::mt19937 generator_;
    int64_t max_pages_ = 1, local_pages_ = 0, remote_pages_ = 0;
    std::optional<Arena> local_, remote_;
    std::byte *local_base_ = nullptr, *remote_base_ = nullptr;
    std::vector<int32_t> row_sequences_, row_positions_;
    std::optional<DeviceArray<int32_t>> table_, lengths_, starts_, offsets_, first_;
    std::optional<DeviceArray<uint16_t>> q_, out_;
};

}  // namespace dak::cuda
