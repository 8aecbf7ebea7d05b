#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/units.h"

namespace dak {

/// Packed weight storage. A matrix [rows, cols] is padded with zeros and cut into atoms of 64 rows
/// by 128 bytes (64 columns of a 16-bit type, 32 of fp32), ordered [row tile][k atom]. Inside an
/// atom the 16-byte chunk c of row r stands at chunk c XOR (r & 7): the 128-byte swizzle that
/// Hopper's wgmma reads from shared memory, so that a bulk copy brings an atom in ready to use.
inline constexpr int64_t kAtomRows = 64;
inline constexpr int64_t kAtomRowBytes = 128;
inline constexpr int64_t kAtomBytes = kAtomRows * kAtomRowBytes;
inline constexpr int64_t kChunkBytes = 16;

constexpr int64_t atom_cols(DType dtype) { return kAtomRowBytes / size_of(dtype); }

/// Byte offset inside an atom of the 16-byte chunk `chunk` (0..7) of row `row` (0..63).
constexpr int64_t chunk_offset(int64_t row, int64_t chunk) {
    return row * kAtomRowBytes + ((chunk ^ (row & 7)) * kChunkBytes);
}

/// Shape of a packed matrix. `rows` and `cols` are the matrix's own, without padding.
struct PackedShape {
    int64_t rows = 0;
    int64_t cols = 0;
    DType dtype = DType::kBF16;

    constexpr int64_t row_tiles() const { return ceil_div(rows, kAtomRows); }
    constexpr int64_t k_atoms() const { return ceil_div(cols, atom_cols(dtype)); }
    constexpr int64_t atoms() const { return row_tiles() * k_atoms(); }
    constexpr int64_t bytes() const { return atoms() * kAtomBytes; }
    constexpr int64_t padded_cols() const { return k_atoms() * atom_cols(dtype); }
};

/// Packs atoms that are neighbours in a row tile. `source` points at their first element in a
/// row-major matrix whose rows are `source_stride` bytes apart; `rows` (0..64) and `row_bytes` are
/// what the matrix has there, the rest of the atoms is zeroed. `atoms` is at a multiple of 16 bytes
/// and best in memory that is not in the caches, such as that of an ArenaWriter.
void pack_atoms(const std::byte* source, int64_t source_stride, int64_t rows, int64_t row_bytes,
                std::byte* atoms);

/// The inverse for one atom: writes the first `rows` rows and `row_bytes` bytes of each.
void unpack_atom(const std::byte* atom, int64_t rows, int64_t row_bytes, std::byte* destination,
                 int64_t destination_stride);

}  // namespace dak
