#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "model/presets.h"
#include "model/random_weights.h"
#include "ops/cuda/check.h"
#include "ops/cuda/device_array.h"
#include "ops/cuda/small_ops/fill_random.h"
#include "ops/cuda/small_ops/small_ops.h"
#include "ops/ops.h"
#include "ops/testing.h"

// The CPU's operations are the oracle.

namespace dak::cuda {
namespace {

using testing::PackedMatrix;
using testing::random_floats;

constexpr uint16_t kPoisonElement = 0xffff;

uint16_t narrow(DType dtype, float value) {
    return dtype == DType::kBF16 ? from_float<BF16>(value).bits : from_float<F16>(value).bits;
}
float widen(DType dtype, uint16_t bits) {
    return dtype == DType::kBF16 ? to_float(BF16{bits}) : to_float(F16{bits});
}
std::vector<uint16_t> narrow(DType dtype, const std::vector<float>& values) {
    std::vector<uint16_t> out(values.size());
    std::transform(values.begin(), values.end(), out.begin(),
                   [&](float value) { return narrow(dtype, value); });
    return out;
}
std::vector<float> widen(DType dtype, const std::vector<uint16_t>& values) {
    std::vector<float> out(values.size());
    std::transform(values.begin(), values.end(), out.begin(),
                   [&](uint16_t bits) { return widen(dtype, bits); });
    return out;
}

/// Half an ulp of the type for the rounding and a little for what fp32 sums differ by, for values
/// of deviation 1.
bool close(DType dtype, uint16_t got, float expected) {
    const float value = widen(dtype, got);
    const float ulp = dtype == DType::kBF16 ? 1.0f / 128 : 1.0f / 1024;
    return std::abs(value - expected) <= 0.55f * ulp * std::abs(expected) + 2e-5f;
}

/// A packed matrix in the memory of the GPU and of the host behind its link.
struct DeviceMatrix {
    Arena local, remote;
    SplitTensor tensor;

    explicit DeviceMatrix(const PackedMatrix& matrix)
        : local(Arena::device("local", matrix.tensor.shape.bytes())),
          remote(Arena::pinned_host("remote", matrix.tensor.shape.bytes())),
          tensor(allocate_split(matrix.tensor.shape, matrix.tensor.remote_atoms, local, remote)) {
        const auto copy = [](void* to, const void* from, int64_t bytes) {
            check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault), "copy");
        };
        copy(tensor.local, matrix.tensor.local, tensor.local_bytes());
        copy(tensor.remote, matrix.tensor.remote, tensor.remote_bytes());
    }
};

class SmallOps : public ::testing::Test {
  protected:
    void SetUp() override {
        int count = 0;
        if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "needs a GPU";
        check(cudaStreamCreate(&stream_), "stream");
    }
    void TearDown() override {
        if (stream_ != nullptr) cudaStreamDestroy(stream_);
    }
    void synchronise() const { check(cudaStreamSynchronize(stream_), "test"); }

    cudaStream_t stream_ = nullptr;
};

// ---- embedding ------------------------------------------------------------------------------

struct EmbedCase {
    int64_t cols, remote_atoms;
    DType dtype;
    bool positions;
};

TEST_F(SmallOps, EmbeddingGathersFromBothTiers) {
    constexpr int64_t kRows = 200, kPositions = 70, kOffset = 2, kCount = 37, kPadding = 8;
    for (const EmbedCase& c :
         {EmbedCase{72, 3, DType::kBF16, false}, EmbedCase{7168, 150, DType::kBF16, true},
          EmbedCase{130, 0, DType::kF16, true}, EmbedCase{4096, 256, DType::kF16, false},
          EmbedCase{5, 1, DType::kBF16, true}}) {
        SCOPED_TRACE(c.cols);
        const PackedMatrix table({kRows, c.cols, c.dtype}, c.remote_atoms,
                                 random_floats(kRows * c.cols, 1));
        const PackedMatrix positions({kPositions, c.cols, c.dtype}, 1,
                                     random_floats(kPositions * c.cols, 2));
        const DeviceMatrix device_table(table), device_positions(positions);
        std::mt19937 generator(3);
        std::vector<int32_t> tokens(kCount), ids(kCount);
        for (int64_t t = 0; t < kCount; ++t) {
            tokens[size_t(t)] = int32_t(generator() % kRows);
            ids[size_t(t)] = int32_t(generator() % (kPositions - kOffset));
        }
        tokens[3] = -1;     // padding
        tokens[4] = kRows;  // past the end
        tokens[5] = kRows - 1;
        const DeviceArray<int32_t> device_tokens(tokens), device_ids(ids);
        const int64_t ldo = round_up(c.cols, 8) + kPadding;
        DeviceArray<uint16_t> out(size_t((kCount + 1) * ldo));
        out.poison();
        EmbedArgs args{.table = device_table.tensor,
                       .tokens = device_tokens.data(),
                       .position_ids = device_ids.data(),
                       .position_offset = kOffset,
                       .count = kCount,
                       .out = out.data(),
                       .ldo = ldo};
        if (c.positions) args.positions = device_positions.tensor;
        embed(args, stream_);
        synchronise();

        const std::vector<uint16_t> got = out.download();
        for (int64_t t = 0; t <= kCount; ++t) {
            for (int64_t i = 0; i < ldo; ++i) {
                uint16_t expected = kPoisonElement;
                if (t < kCount && i < c.cols) {
                    const int32_t token = tokens[size_t(t)];
                    float value = 0;
                    if (token >= 0 && token < kRows) {
                        value = table.values[size_t(token * c.cols + i)];
                        if (c.positions) {
                            value +=
                                positions.values[size_t((ids[size_t(t)] + kOffset) * c.cols + i)];
                        }
                    }
                    expected = narrow(c.dtype, value);
                }
                ASSERT_EQ(got[size_t(t * ldo + i)], expected) << "row " << t << " column " << i;
            }
        }
    }
}

// ---- norm -----------------------------------------------------------------------------------

struct NormCase {
    int64_t rows, width;
    NormKind kind;
    DType dtype;
    bool weight, bias, indexed, in_place;
};

TEST_F(SmallOps, NormMatchesTheCpu) {
    constexpr float kEps = 1e-5f;
    std::vector<NormCase> cases;
    int turn = 0;
    for (const int64_t width : {8, 40, 100, 768, 4095, 4096, 5120, 7168, 8200, 16384}) {
        for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
            for (const DType dtype : {DType::kBF16, DType::kF16}) {
                const bool indexed = turn % 3 == 0;
                cases.push_back({turn % 2 == 0 ? 9 : 300, width, kind, dtype, turn % 5 != 0,
                                 turn % 4 < 2, indexed, !indexed && turn % 2 == 0});
                ++turn;
            }
        }
    }
    for (const NormCase& c : cases) {
        SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.width << " kind " << int(c.kind)
                                          << " indexed " << c.indexed);
        const int64_t ld = round_up(c.width, 8) + 16;
        // Far from zero mean: a variance by differences of large sums would show.
        std::vector<float> values = random_floats(c.rows * ld, 4, 0.5f);
        for (float& value : values) value += 3.0f;
        std::vector<uint16_t> x = narrow(c.dtype, values);
        for (int64_t row = 0; row < c.rows; ++row) {
            std::fill_n(x.begin() + row * ld + c.width, ld - c.width, kPoisonElement);
        }
        std::vector<float> weight = random_floats(c.width, 5), bias = random_floats(c.width, 6);
        std::vector<int32_t> index(size_t(c.rows));
        std::iota(index.begin(), index.end(), 0);
        std::shuffle(index.begin(), index.end(), std::mt19937(7));
        if (c.indexed) index[1] = -1;
        const DeviceArray<float> device_weight(weight), device_bias(bias);
        const DeviceArray<int32_t> device_index(index);
        const DeviceArray<uint16_t> device_x(x);
        DeviceArray<uint16_t> out(size_t((c.rows + 1) * ld));
        out.poison();
        norm({.kind = c.kind,
              .eps = kEps,
              .weight = c.weight ? device_weight.data() : nullptr,
              .bias = c.bias ? device_bias.data() : nullptr,
              .x = device_x.data(),
              .ldx = ld,
              .out = c.in_place ? device_x.data() : out.data(),
              .ldo = ld,
              .rows = c.rows,
              .width = c.width,
              .dtype = c.dtype,
              .row_index = c.indexed ? device_index.data() : nullptr},
             stream_);
        synchronise();

        const std::vector<uint16_t> got = c.in_place ? device_x.download() : out.download();
        std::vector<float> expected(size_t(c.width));
        const std::vector<float> in = widen(c.dtype, x);
        ops::Norm oracle;
        oracle.kind = c.kind;
        oracle.eps = kEps;
        if (c.weight) oracle.weight = weight;
        if (c.bias) oracle.bias = bias;
        for (int64_t row = 0; row < std::min<int64_t>(c.rows, 20); ++row) {
            const int64_t from = c.indexed ? index[size_t(row)] : row;
            if (from >= 0) {
                ops::norm(oracle, 1, c.width, in.data() + from * ld, expected.data());
            }
            for (int64_t i = 0; i < ld; ++i) {
                const uint16_t bits = got[size_t(row * ld + i)];
                if (from >= 0 && i < c.width) {
                    ASSERT_TRUE(close(c.dtype, bits, expected[size_t(i)]))
                        << "row " << row << " column " << i << ": " << widen(c.dtype, bits)
                        << " instead of " << expected[size_t(i)];
                } else {
                    ASSERT_EQ(bits, kPoisonElement) << "row " << row << " column " << i;
                }
            }
        }
    }
}

/// More rows than CTAs, several to each: a row's result does not depend on its place.
TEST_F(SmallOps, NormOfManyRows) {
    constexpr int64_t kDifferent = 5;
    for (const int64_t width : {64, 4096, 8200}) {
        for (const int64_t rows : {263, 265, 529, 3001}) {
            SCOPED_TRACE(::testing::Message() << rows << " x " << width);
            const std::vector<uint16_t> some =
                narrow(DType::kBF16, random_floats(kDifferent * width, 8));
            std::vector<uint16_t> x;
            for (int64_t row = 0; row < rows; ++row) {
                const auto from = some.begin() + row % kDifferent * width;
                x.insert(x.end(), from, from + width);
            }
            const DeviceArray<uint16_t> device_x(x);
            DeviceArray<uint16_t> out(x.size());
            out.poison();
            norm({.x = device_x.data(),
                  .ldx = width,
                  .out = out.data(),
                  .ldo = width,
                  .rows = rows,
                  .width = width},
                 stream_);
            synchronise();
            const std::vector<uint16_t> got = out.download();
            std::vector<float> expected(static_cast<size_t>(width));
            const std::vector<float> in = widen(DType::kBF16, some);
            for (int64_t row = 0; row < rows; ++row) {
                const int64_t same = row % kDifferent;
                const auto begin = got.begin() + row * width;
                if (row >= kDifferent) {
                    ASSERT_TRUE(std::equal(begin, begin + width, got.begin() + same * width))
                        << "row " << row;
                    continue;
                }
                ops::norm({NormKind::kRms, 1e-5f, {}, {}}, 1, width, in.data() + row * width,
                          expected.data());
                for (int64_t i = 0; i < width; ++i) {
                    ASSERT_TRUE(close(DType::kBF16, begin[i], expected[size_t(i)]))
                        << "row " << row << " column " << i;
                }
            }
        }
    }
}

TEST_F(SmallOps, GathersRows) {
    constexpr int64_t kRows = 50, kOut = 7, kWidth = 2051, kLd = 2064;
    const std::vector<uint16_t> x = narrow(DType::kF16, random_floats(kRows * kLd, 1));
    const std::vector<int32_t> index = {49, 0, 7, 7, -1, 20, 1};
    const DeviceArray<uint16_t> device_x(x);
    const DeviceArray<int32_t> device_index(index);
    DeviceArray<uint16_t> out(size_t(kOut * kLd));
    out.poison();
    gather_rows({.x = device_x.data(),
                 .ldx = kLd,
                 .out = out.data(),
                 .ldo = kLd,
                 .rows = kOut,
                 .width = kWidth,
                 .dtype = DType::kF16,
                 .row_index = device_index.data()},
                stream_);
    synchronise();
    const std::vector<uint16_t> got = out.download();
    for (int64_t row = 0; row < kOut; ++row) {
        const int64_t from = index[size_t(row)];
        for (int64_t i = 0; i < kLd; ++i) {
            const uint16_t expected =
                from >= 0 && i < kWidth ? x[size_t(from * kLd + i)] : kPoisonElement;
            ASSERT_EQ(got[size_t(row * kLd + i)], expected) << "row " << row << " column " << i;
        }
    }
}

// ---- rotary embedding and append ------------------------------------------------------------

struct RopeCase {
    int64_t num_heads, num_kv_heads, head_dim;
    DType dtype;
    bool rotates, normalises, per_sequence;
    int64_t tokens;
};

/// Sequences of different lengths whose new tokens follow `past` cached ones, and a padding row
/// after each.
class RopeProblem {
  public:
    explicit RopeProblem(const RopeCase& c)
        : c_(c),
          layout_{c.num_kv_heads, c.head_dim, c.dtype},
          width_((c.num_heads + 2 * c.num_kv_heads) * c.head_dim),
          ld_(round_up(width_, 8) + 8),
          q_norm_(random_floats(c.head_dim, 2)),
          k_norm_(random_floats(c.head_dim, 3)) {
        for (int64_t s = 0; s < kSequences; ++s) {
            const int64_t past = s * 61 + (s == 3 ? 100000 : 0);  // around the ends of pages
            const int64_t count = s == 0 ? 1 : c.tokens / kSequences;
            sequences_.push_back({count, past, nullptr});
            for (int64_t i = 0; i < count; ++i) {
                positions_.push_back(int32_t(past + i));
                sequence_of_.push_back(int32_t(s));
            }
            positions_.push_back(0);
            sequence_of_.push_back(-1);
        }
        make_pages();
        rows_ = int64_t(positions_.size());
        qkv_ = narrow(c.dtype, random_floats(rows_ * ld_, 4));
        for (int64_t s = 0; s < kSequences; ++s) {
            const auto some = ops::rope_frequencies(
                {.theta = c.per_sequence ? 10000.0 + 1000.0 * double(s) : 10000.0}, c.head_dim, 0);
            frequencies_.insert(frequencies_.end(), some.begin(), some.end());
        }
    }

    void run_and_check(cudaStream_t stream) {
        const auto bytes = size_t(kPages * layout_.page_bytes());
        const int64_t local_bytes = kLocalPages * layout_.page_bytes();
        DeviceArray<uint8_t> local{size_t(local_bytes)};
        Arena remote = Arena::pinned_host("remote pages", int64_t(bytes) - local_bytes);
        std::byte* remote_pages = remote.allocate(int64_t(bytes) - local_bytes);
        local.poison();
        std::memset(remote_pages, kPoison, bytes - size_t(local_bytes));
        const DeviceArray<uint16_t> qkv(qkv_);
        const DeviceArray<int32_t> positions(positions_), sequence_of(sequence_of_), pages(pages_);
        const DeviceArray<float> frequencies(frequencies_), q_norm(q_norm_), k_norm(k_norm_);
        rope_append(
            {.qkv = qkv.data(),
             .ld = ld_,
             .tokens = rows_,
             .num_heads = c_.num_heads,
             .kv = {layout_, reinterpret_cast<std::byte*>(local.data()), remote_pages, kLocalPages},
             .positions = positions.data(),
             .sequence_of = sequence_of.data(),
             .pages = pages.data(),
             .pages_stride = kPagesStride,
             .frequencies = c_.rotates ? frequencies.data() : nullptr,
             .frequencies_stride = c_.per_sequence ? c_.head_dim / 2 : 0,
             .q_norm = c_.normalises ? q_norm.data() : nullptr,
             .k_norm = c_.normalises ? k_norm.data() : nullptr,
             .norm_eps = kEps},
            stream);
        check(cudaStreamSynchronize(stream), "rope and append");

        std::vector<uint16_t> kv(bytes / 2);
        const std::vector<uint8_t> local_copy = local.download();
        std::memcpy(kv.data(), local_copy.data(), size_t(local_bytes));
        std::memcpy(reinterpret_cast<uint8_t*>(kv.data()) + local_bytes, remote_pages,
                    bytes - size_t(local_bytes));
        check_results(qkv.download(), kv);
    }

  private:
    static constexpr int64_t kSequences = 5, kPagesStride = 2000, kPages = 24, kLocalPages = 11;
    static constexpr float kEps = 1e-6f;

    void make_pages() {
        // Every page that tokens fall into is another one; the rest of the table is out of range.
        pages_.assign(size_t(kSequences * kPagesStride), 1 << 20);
        std::vector<int32_t> free(kPages);
        std::iota(free.begin(), free.end(), 0);
        std::shuffle(free.begin(), free.end(), std::mt19937(9));
        for (int64_t s = 0; s < kSequences; ++s) {
            const auto& sequence = sequences_[size_t(s)];
            const int64_t last = (sequence.past + sequence.count - 1) / kPageTokens;
            for (int64_t page = sequence.past / kPageTokens; page <= last; ++page) {
                pages_[size_t(s * kPagesStride + page)] = free.back();
                free.pop_back();
            }
        }
        for (int64_t s = 0; s < kSequences; ++s) {
            sequences_[size_t(s)].pages = pages_.data() + s * kPagesStride;
        }
    }

    void check_results(const std::vector<uint16_t>& qkv, const std::vector<uint16_t>& kv) {
        std::vector<float> x;  // the rows that are no padding
        ops::RopeAngles angles;
        for (int64_t row = 0; row < rows_; ++row) {
            const int32_t s = sequence_of_[size_t(row)];
            if (s < 0) continue;
            for (int64_t i = 0; i < width_; ++i) {
                x.push_back(widen(c_.dtype, qkv_[size_t(row * ld_ + i)]));
            }
            const std::span<const float> all(frequencies_);
            const auto half = size_t(c_.head_dim / 2);
            ops::append_rope_angles(all.subspan(size_t(s) * half, half), positions_[size_t(row)], 1,
                                    angles);
        }
        const int64_t tokens = int64_t(x.size()) / width_;
        const int64_t q_size = c_.num_heads * c_.head_dim;
        if (c_.normalises) {
            ops::norm_heads({NormKind::kRms, kEps, q_norm_, {}}, tokens, c_.num_heads, c_.head_dim,
                            width_, x.data());
            ops::norm_heads({NormKind::kRms, kEps, k_norm_, {}}, tokens, c_.num_kv_heads,
                            c_.head_dim, width_, x.data() + q_size);
        }
        if (c_.rotates) {
            ops::rope(angles, tokens, c_.num_heads + c_.num_kv_heads, c_.head_dim, width_,
                      x.data());
        }
        int64_t token = 0;
        for (int64_t row = 0; row < rows_; ++row) {
            const bool padding = sequence_of_[size_t(row)] < 0;
            for (int64_t i = 0; i < ld_; ++i) {
                const uint16_t bits = qkv[size_t(row * ld_ + i)];
                if (!padding && i < q_size) {
                    const float expected = x[size_t(token * width_ + i)];
                    ASSERT_TRUE(close_enough(bits, expected))
                        << "q of row " << row << " column " << i << ": " << widen(c_.dtype, bits)
                        << " instead of " << expected;
                } else {
                    ASSERT_EQ(bits, qkv_[size_t(row * ld_ + i)])
                        << "row " << row << " column " << i << " was changed";
                }
            }
            token += padding ? 0 : 1;
        }
        check_pages(x, kv);
    }

    void check_pages(const std::vector<float>& x, const std::vector<uint16_t>& kv) {
        const auto bytes = size_t(kPages * layout_.page_bytes());
        std::vector<std::byte> pages(bytes, std::byte{kPoison});
        ops::Attention attention;
        attention.num_heads = c_.num_heads;
        attention.kv = {layout_, pages.data(), nullptr, kPages};
        attention.sequences = sequences_;
        const float* k = x.data() + c_.num_heads * c_.head_dim;
        ops::append_kv(attention, k, k + c_.num_kv_heads * c_.head_dim, width_);
        std::vector<uint16_t> expected(bytes / 2);
        std::memcpy(expected.data(), pages.data(), bytes);
        for (size_t i = 0; i < expected.size(); ++i) {
            if (expected[i] == kPoisonElement) {
                ASSERT_EQ(kv[i], kPoisonElement) << "element " << i << " of the pages was written";
            } else {
                ASSERT_TRUE(close_enough(kv[i], widen(c_.dtype, expected[i])))
                    << "element " << i << " of the pages is " << widen(c_.dtype, kv[i])
                    << " instead of " << widen(c_.dtype, expected[i]);
            }
        }
    }

    /// A step of the type, plus what angles of 100,000 radians lose in fp32 sine and cosine.
    bool close_enough(uint16_t got, float expected) const {
        const float ulp = c_.dtype == DType::kBF16 ? 1.0f / 128 : 1.0f / 1024;
        return std::abs(widen(c_.dtype, got) - expected) <= ulp * std::abs(expected) + 2e-5f;
    }

    RopeCase c_;
    KvPageLayout layout_;
    int64_t width_, ld_, rows_ = 0;
    std::vector<ops::AttentionSequence> sequences_;
    std::vector<int32_t> positions_, sequence_of_, pages_;
    std::vector<float> q_norm_, k_norm_, frequencies_;
    std::vector<uint16_t> qkv_;
};

TEST_F(SmallOps, RopeAppendMatchesTheCpu) {
    for (const RopeCase& c : {RopeCase{56, 56, 128, DType::kBF16, false, false, false, 10},
                              RopeCase{32, 8, 128, DType::kBF16, true, false, false, 20},
                              RopeCase{32, 8, 128, DType::kF16, true, true, false, 700},
                              RopeCase{9, 3, 64, DType::kBF16, true, false, true, 10},
                              RopeCase{7, 1, 80, DType::kF16, true, true, true, 15},
                              RopeCase{4, 4, 96, DType::kBF16, true, true, false, 300},
                              RopeCase{6, 2, 256, DType::kBF16, true, false, false, 10},
                              RopeCase{3, 1, 16, DType::kBF16, true, true, false, 10},
                              RopeCase{3, 3, 20, DType::kBF16, true, true, false, 200},
                              RopeCase{4, 2, 22, DType::kF16, true, false, true, 10},
                              RopeCase{2, 1, 72, DType::kBF16, false, false, false, 10},
                              RopeCase{2, 2, 80, DType::kBF16, false, false, false, 10},
                              RopeCase{5, 1, 128, DType::kBF16, false, true, false, 10}}) {
        SCOPED_TRACE(::testing::Message()
                     << c.num_heads << "/" << c.num_kv_heads << " heads of " << c.head_dim
                     << " rotates " << c.rotates << " normalises " << c.normalises);
        RopeProblem(c).run_and_check(stream_);
    }
}

// ---- random weights -------------------------------------------------------------------------

std::vector<std::byte> bytes_of(const SplitTensor& tensor) {
    std::vector<std::byte> bytes(size_t(tensor.shape.bytes()));
    const auto remote = size_t(tensor.remote_bytes());
    check(cudaMemcpy(bytes.data(), tensor.remote, remote, cudaMemcpyDefault), "download");
    check(cudaMemcpy(bytes.data() + remote, tensor.local, bytes.size() - remote, cudaMemcpyDefault),
          "download");
    return bytes;
}

TEST_F(SmallOps, RandomWeightsAreThoseOfTheCpu) {
    ModelConfig config = preset_config("llama-2-7b");
    config.num_layers = 1;
    config.hidden_size = config.embedding_size = 200;
    config.intermediate_size = 330;  // the last tiles of gate and up are padded
    config.num_heads = config.num_kv_heads = 5;
    config.head_dim = 40;
    config.vocab_size = 1000;
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
        config.dtype = dtype;
        const Placement placement = uniform_placement(weight_specs(config), 0.3);
        const ModelWeights expected = random_weights(config, placement, 5, {.progress = false});
        const ModelWeights got = random_weights(
            config, placement, 5, {.progress = false, .memory = TierMemory::gpu_and("host")},
            [&](const RandomMatrix& matrix, const SplitTensor& tensor) {
                check(cudaMemset(tensor.local, kPoison, size_t(tensor.local_bytes())), "poison");
                fill_random(matrix, tensor, stream_);
            });
        synchronise();
        EXPECT_EQ(bytes_of(got.embedding), bytes_of(expected.embedding));
        EXPECT_EQ(bytes_of(got.lm_head), bytes_of(expected.lm_head));
        EXPECT_EQ(bytes_of(got.layers[0].qkv.weight), bytes_of(expected.layers[0].qkv.weight));
        EXPECT_EQ(bytes_of(got.layers[0].up.weight), bytes_of(expected.layers[0].up.weight));
        EXPECT_EQ(bytes_of(got.layers[0].down.weight), bytes_of(expected.layers[0].down.weight));
        EXPECT_EQ(got.final_norm.weight, expected.final_norm.weight);
    }
}

// ---- arguments ------------------------------------------------------------------------------

TEST_F(SmallOps, RefusesWhatItCannotTake) {
    DeviceArray<uint16_t> x(size_t{1 << 16});
    const NormArgs good{
        .x = x.data(), .ldx = 64, .out = x.data(), .ldo = 64, .rows = 1, .width = 64};
    EXPECT_NO_THROW(norm(good, stream_));
    NormArgs bad = good;
    bad.ldx = 60;
    EXPECT_THROW(norm(bad, stream_), Error);
    bad = good;
    bad.x = x.data() + 1;
    EXPECT_THROW(norm(bad, stream_), Error);
    bad = good;
    bad.dtype = DType::kF32;
    EXPECT_THROW(norm(bad, stream_), Error);
    bad = good;
    bad.width = bad.ldx = bad.ldo = 20000;
    EXPECT_THROW(norm(bad, stream_), Error);
    bad = good;
    bad.row_index = reinterpret_cast<const int32_t*>(x.data());
    EXPECT_THROW(norm(bad, stream_), Error);  // rows may be overwritten before they are read
    RopeAppendArgs rope;
    rope.qkv = x.data();
    rope.ld = 128;
    rope.kv.layout = {1, 41, DType::kBF16};
    EXPECT_THROW(rope_append(rope, stream_), Error);
    synchronise();
}

}  // namespace
}  // namespace dak::cuda
