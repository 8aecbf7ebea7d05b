#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "memory/packing.h"

namespace dak {
namespace {

std::vector<std::byte> random_bytes(size_t count, uint32_t seed) {
    std::mt19937 generator(seed);
    std::vector<std::byte> bytes(count);
    for (auto& byte : bytes) byte = static_cast<std::byte>(generator());
    return bytes;
}

TEST(Packing, ChunksOfARowTileAreAPermutation) {
    std::vector<int> seen(kAtomBytes / kChunkBytes);
    for (int64_t row = 0; row < kAtomRows; ++row) {
        for (int64_t chunk = 0; chunk < 8; ++chunk) ++seen[chunk_offset(row, chunk) / kChunkBytes];
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
}

TEST(Packing, EightRowsPutOneColumnInEightBankGroups) {
    for (int64_t chunk = 0; chunk < 8; ++chunk) {
        std::vector<int> groups(8);
        for (int64_t row = 0; row < 8; ++row) {
            ++groups[chunk_offset(row, chunk) % kAtomRowBytes / kChunkBytes];
        }
        EXPECT_EQ(groups, std::vector<int>(8, 1));
    }
}

TEST(Packing, RoundTripAndZeroPadding) {
    for (const int64_t rows : {1, 7, 63, 64}) {
        for (const int64_t row_bytes : {2, 6, 16, 100, 126, 128}) {
            const int64_t stride = row_bytes + 10;
            const auto source = random_bytes(static_cast<size_t>(rows * stride), 1);
            std::vector<std::byte> atom(kAtomBytes, std::byte{0xAB});
            pack_atoms(source.data(), stride, rows, row_bytes, atom.data());

            std::vector<std::byte> back(kAtomBytes, std::byte{0xCD});
            unpack_atom(atom.data(), kAtomRows, kAtomRowBytes, back.data(), kAtomRowBytes);
            for (int64_t row = 0; row < kAtomRows; ++row) {
                for (int64_t byte = 0; byte < kAtomRowBytes; ++byte) {
                    const bool inside = row < rows && byte < row_bytes;
                    const auto expected =
                        inside ? source[static_cast<size_t>(row * stride + byte)] : std::byte{0};
                    ASSERT_EQ(back[static_cast<size_t>(row * kAtomRowBytes + byte)], expected)
                        << rows << 'x' << row_bytes << " at " << row << ',' << byte;
                }
            }
        }
    }
}

TEST(Packing, NeighboursArePackedAsEachAlone) {
    constexpr int64_t kRowBytes = 2 * kAtomRowBytes + 34;
    const auto source = random_bytes(kAtomRows * kRowBytes, 2);
    for (const int64_t rows : {9, 64}) {
        std::vector<std::byte> together(3 * kAtomBytes, std::byte{0xAB});
        std::vector<std::byte> alone(3 * kAtomBytes, std::byte{0xCD});
        pack_atoms(source.data(), kRowBytes, rows, kRowBytes, together.data());
        for (int64_t i = 0; i < 3; ++i) {
            pack_atoms(source.data() + i * kAtomRowBytes, kRowBytes, rows,
                       std::min(kAtomRowBytes, kRowBytes - i * kAtomRowBytes),
                       alone.data() + i * kAtomBytes);
        }
        EXPECT_EQ(together, alone) << rows;
    }
}

TEST(Packing, ShapesPadToWholeAtoms) {
    const PackedShape bf16{65, 65, DType::kBF16};
    EXPECT_EQ(bf16.row_tiles(), 2);
    EXPECT_EQ(bf16.k_atoms(), 2);
    EXPECT_EQ(bf16.bytes(), 4 * 8192);
    const PackedShape fp32{64, 33, DType::kF32};
    EXPECT_EQ(fp32.k_atoms(), 2);
    EXPECT_EQ(fp32.padded_cols(), 64);
}

}  // namespace
}  // namespace dak
