#include <algorithm>
#include <type_traits>
#include <vector>

#include "ops/cpu/activation.h"
#include "ops/cpu/matmul.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/vec.h"
#include "ops/ops.h"

// Two ways through a packed weight. Few tokens: the bytes of the weight bound the time, so the
// atoms are streamed once, in storage order, and multiplied where they are. Many tokens: the
// arithmetic bounds it, so row tiles are unpacked into a cache-sized block for oneDNN.

namespace dak::ops {

namespace {

/// Beyond this many tokens oneDNN's blocked product is faster than streaming dot products, by
/// measurement on AVX2 (576..1536 columns).
constexpr int64_t kMaxStreamedTokens = 12;

/// Rows that one task of the streaming path takes: half a row tile, so that two threads share even
/// a weight of few row tiles, and 4 KiB of every atom are read in one run.
constexpr int64_t kStreamRows = 32;
constexpr int64_t kMaxTokenBlock = 8;

/// A task's block of unpacked rows should stay in the core's L2 cache, and leave tasks for every
/// thread.
constexpr int64_t kUnpackedBytes = kMiB / 2;

/// How the streaming path meets the storage of a row. A row's 128 bytes are read as they lie, 32 at
/// a time: that is a pair of 16-byte chunks, in which the swizzle has put columns of pair `p ^ (row
/// & 7) / 2`, the two chunks exchanged in odd rows. Sixteen-bit elements are widened without
/// shuffling, even and odd ones apart. The activations are laid out to match, once for each call,
/// in both orders of the chunks: [atom][exchanged][pair][part][lane].
template <typename T>
struct Lanes {
    static constexpr int64_t kPairs = 4;
    static constexpr int kParts = sizeof(T) == 2 ? 2 : 1;
    static constexpr int64_t kPairColumns = kParts * kLanes;
    static constexpr int64_t kOrderSize = kPairs * kPairColumns;
    static constexpr int64_t kAtomSize = 2 * kOrderSize;

    /// Part `part` of the 32 bytes at `from`.
    static Vec widen_part(const std::byte* from, int part) {
        if constexpr (kParts == 1) {
            return load(reinterpret_cast<const float*>(from));
        } else {
            VecBits bits;
            std::memcpy(&bits, from, sizeof(bits));
            if constexpr (std::is_same_v<T, BF16>) {
                return std::bit_cast<Vec>(part == 0 ? bits << 16 : bits & 0xffff0000u);
            } else {
                return widen(part == 0 ? bits & 0xffffu : bits >> 16, F16{});
            }
        }
    }

    /// Lays out one token's activations; columns past `columns` are zero.
    static void arrange(const float* x, int64_t columns, int64_t k_atoms, float* out) {
        std::fill_n(out, k_atoms * kAtomSize, 0.0f);
        for (int64_t column = 0; column < columns; ++column) {
            const int64_t pair = column / kPairColumns;
            const int64_t place = column % kPairColumns;
            for (int64_t order = 0; order < 2; ++order) {
                const int64_t moved =
                    order == 0 ? place : (place + kPairColumns / 2) % kPairColumns;
                const int64_t part_lane = moved % kParts * kLanes + moved / kParts;
                out[pair / kPairs * kAtomSize + order * kOrderSize + pair % kPairs * kPairColumns +
                    part_lane] = x[column];
            }
        }
    }
};

/// acc[row][token] += weight rows times x, over one atom. kRows * kTokens accumulators fit the
/// sixteen vector registers of AVX2 beside their operands.
template <typename T, int kRows, int kTokens>
void accumulate_atom(const std::byte* atom, int64_t first_row, const float* x, int64_t x_stride,
                     Vec (*acc)[kMaxTokenBlock]) {
    using L = Lanes<T>;
    for (int64_t block = 0; block < kStreamRows; block += kRows) {
        Vec partial[kRows][kTokens];
        for (int r = 0; r < kRows; ++r) {
            for (int t = 0; t < kTokens; ++t) partial[r][t] = acc[block + r][t];
        }
        // Unrolled, the rows are independent chains of additions, and for kRows = 8 every offset is
        // a constant.
#pragma GCC unroll 4
        for (int64_t pair = 0; pair < L::kPairs; ++pair) {
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
                const int64_t swizzle = kRows == 8 ? r : (block + r) & 7;
                const std::byte* row = atom + (first_row + block + r) * kAtomRowBytes;
                const float* pair_x =
                    x + swizzle % 2 * L::kOrderSize + (pair ^ swizzle / 2) * L::kPairColumns;
#pragma GCC unroll 2
                for (int part = 0; part < L::kParts; ++part) {
                    const Vec weight = L::widen_part(row + pair * 2 * kChunkBytes, part);
#pragma GCC unroll 8
                    for (int t = 0; t < kTokens; ++t) {
                        partial[r][t] += weight * load(pair_x + t * x_stride + part * kLanes);
                    }
                }
            }
        }
        for (int r = 0; r < kRows; ++r) {
            for (int t = 0; t < kTokens; ++t) acc[block + r][t] = partial[r][t];
        }
    }
}

/// sums[t * kStreamRows + r] = weight row (first_row + r of row tile `tile`) . x[t], for kTokens
/// tokens whose arranged activations are x_stride apart.
template <typename T, int kTokens>
void stream_tokens(const SplitTensor& weight, int64_t tile, int64_t first_row, const float* x,
                   int64_t x_stride, float* sums) {
    constexpr int kRows = kMaxTokenBlock / kTokens;
    Vec acc[kStreamRows][kMaxTokenBlock];
    for (auto& row : acc) std::fill_n(row, kTokens, Vec{});
    const int64_t k_atoms = weight.shape.k_atoms();
    for (int64_t k = 0; k < k_atoms; ++k) {
        accumulate_atom<T, kRows, kTokens>(weight.atom(tile * k_atoms + k), first_row,
                                           x + k * Lanes<T>::kAtomSize, x_stride, acc);
    }
    for (int64_t r = 0; r < kStreamRows; ++r) {
        for (int t = 0; t < kTokens; ++t) sums[t * kStreamRows + r] = sum(acc[r][t]);
    }
}

template <typename T>
void stream_rows(const SplitTensor& weight, int64_t tile, int64_t first_row, int64_t tokens,
                 const float* x, int64_t x_stride, float* sums) {
    int64_t t = 0;
    const auto block = [&]<int kTokens>() {
        for (; tokens - t >= kTokens; t += kTokens) {
            stream_tokens<T, kTokens>(weight, tile, first_row, x + t * x_stride, x_stride,
                                      sums + t * kStreamRows);
        }
    };
    block.template operator()<8>();
    block.template operator()<4>();
    block.template operator()<2>();
    block.template operator()<1>();
}

/// Applies the epilogue to `count` consecutive outputs of one token. `sums` (and `up_sums` when
/// gated) are the raw products; `row` is the weight row of sums[0], `up_row` that of up_sums[0];
/// `out_index` is the place of the first output in `out` and in the residual.
void finish_outputs(const Epilogue& epilogue, int64_t count, const float* sums, int64_t row,
                    const float* up_sums, int64_t up_row, int64_t out_index, float* out) {
    for (int64_t i = 0; i < count; ++i) {
        float value = sums[i];
        if (!epilogue.bias.empty()) value += epilogue.bias[static_cast<size_t>(row + i)];
        value = activate(epilogue.activation, value);
        if (up_sums) {
            float up = up_sums[i];
            if (!epilogue.bias.empty()) up += epilogue.bias[static_cast<size_t>(up_row + i)];
            value *= up;
        }
        if (epilogue.residual) value += epilogue.residual[out_index + i];
        out[out_index + i] = value;
    }
}

template <typename T>
void linear_streamed(const SplitTensor& weight, const Epilogue& epilogue, int64_t tokens,
                     const float* x, int64_t out_features, float* out) {
    const int64_t parts = kAtomRows / kStreamRows;
    const int64_t tasks = ceil_div(out_features, kStreamRows);
    const int64_t x_stride = weight.shape.k_atoms() * Lanes<T>::kAtomSize;
    std::vector<float> arranged(static_cast<size_t>(tokens * x_stride));
    for (int64_t t = 0; t < tokens; ++t) {
        Lanes<T>::arrange(x + t * weight.shape.cols, weight.shape.cols, weight.shape.k_atoms(),
                          arranged.data() + t * x_stride);
    }
    parallel_for(tasks, [&](int64_t task) {
        const int64_t first_row = task % parts * kStreamRows;
        const int64_t tile = epilogue.gated ? 2 * (task / parts) : task / parts;
        float sums[kMaxStreamedTokens * kStreamRows];
        float up_sums[kMaxStreamedTokens * kStreamRows];
        stream_rows<T>(weight, tile, first_row, tokens, arranged.data(), x_stride, sums);
        if (epilogue.gated) {
            stream_rows<T>(weight, tile + 1, first_row, tokens, arranged.data(), x_stride, up_sums);
        }
        const int64_t first_out = task * kStreamRows;
        const int64_t count = std::min(kStreamRows, out_features - first_out);
        const int64_t row = tile * kAtomRows + first_row;
        for (int64_t t = 0; t < tokens; ++t) {
            finish_outputs(epilogue, count, sums + t * kStreamRows, row,
                           epilogue.gated ? up_sums + t * kStreamRows : nullptr, row + kAtomRows,
                           t * out_features + first_out, out);
        }
    });
}

/// Unpacks one row tile to rows of `padded_cols` elements: as they are (bf16), or widened to fp32.
template <typename T>
void unpack_tile(const SplitTensor& weight, int64_t tile, DType to, std::byte* destination) {
    const int64_t k_atoms = weight.shape.k_atoms();
    const int64_t columns = atom_cols(weight.shape.dtype);
    const int64_t stride = weight.shape.padded_cols() * size_of(to);
    for (int64_t k = 0; k < k_atoms; ++k) {
        const std::byte* atom = weight.atom(tile * k_atoms + k);
        std::byte* block = destination + k * columns * size_of(to);
        if (to == weight.shape.dtype) {
            unpack_atom(atom, kAtomRows, kAtomRowBytes, block, stride);
            continue;
        }
        for (int64_t row = 0; row < kAtomRows; ++row) {
            auto* wide = reinterpret_cast<float*>(block + row * stride);
            for (int64_t group = 0; group < columns / kLanes; ++group) {
                store(wide + group * kLanes,
                      load_swizzled<T>(atom + row * kAtomRowBytes, row & 7, group));
            }
        }
    }
}

/// The activations in rows of `padded` elements of type `type`; nothing when they are so already.
std::vector<std::byte> pad_rows(const float* x, int64_t tokens, int64_t columns, int64_t padded,
                                DType type) {
    if (columns == padded && type == DType::kF32) return {};
    std::vector<std::byte> out(static_cast<size_t>(tokens * padded * size_of(type)));
    visit_dtype(type, [&]<typename U>(U) {
        parallel_for(tokens, [&](int64_t t) {
            U* row = reinterpret_cast<U*>(out.data()) + t * padded;
            for (int64_t i = 0; i < columns; ++i) row[i] = from_float<U>(x[t * columns + i]);
        });
    });
    return out;
}

template <typename T>
void linear_blocked(const SplitTensor& weight, const Epilogue& epilogue, int64_t tokens,
                    const float* x, int64_t out_features, float* out) {
    const bool bf16 = weight.shape.dtype == DType::kBF16 && has_fast_bf16();
    const DType compute = bf16 ? DType::kBF16 : DType::kF32;
    const int64_t k = weight.shape.padded_cols();
    const int64_t tile_bytes = kAtomRows * k * size_of(compute);
    const int64_t tile_step = epilogue.gated ? 2 : 1;
    const int64_t block_tiles =
        std::max<int64_t>(1, kUnpackedBytes / (tile_bytes * tile_step)) * tile_step;
    const std::vector<std::byte> padded_x = pad_rows(x, tokens, weight.shape.cols, k, compute);
    const void* operand = padded_x.empty() ? static_cast<const void*>(x) : padded_x.data();

    parallel_for(ceil_div(weight.shape.row_tiles(), block_tiles), [&](int64_t block) {
        const int64_t begin = block * block_tiles;
        const int64_t tiles = std::min(block_tiles, weight.shape.row_tiles() - begin);
        const int64_t rows = tiles * kAtomRows;
        std::vector<std::byte> unpacked(static_cast<size_t>(tiles * tile_bytes));
        for (int64_t i = 0; i < tiles; ++i) {
            unpack_tile<T>(weight, begin + i, compute, unpacked.data() + i * tile_bytes);
        }
        std::vector<float> sums(static_cast<size_t>(tokens * rows));
        matmul(compute, tokens, rows, k, operand, unpacked.data(), sums.data());
        for (int64_t t = 0; t < tokens; ++t) {
            for (int64_t i = 0; i < tiles; i += tile_step) {
                const int64_t first_out = (begin + i) / tile_step * kAtomRows;
                const int64_t count = std::min(kAtomRows, out_features - first_out);
                const float* tile_sums = sums.data() + t * rows + i * kAtomRows;
                const int64_t row = (begin + i) * kAtomRows;
                finish_outputs(epilogue, count, tile_sums, row,
                               epilogue.gated ? tile_sums + kAtomRows : nullptr, row + kAtomRows,
                               t * out_features + first_out, out);
            }
        }
    });
}

}  // namespace

void linear(const SplitTensor& weight, const Epilogue& epilogue, int64_t tokens, const float* x,
            int64_t out_features, float* out) {
    if (tokens == 0) return;
    visit_dtype(weight.shape.dtype, [&]<typename T>(T) {
        if (tokens <= kMaxStreamedTokens) {
            linear_streamed<T>(weight, epilogue, tokens, x, out_features, out);
        } else {
            linear_blocked<T>(weight, epilogue, tokens, x, out_features, out);
        }
    });
}

}  // namespace dak::ops
