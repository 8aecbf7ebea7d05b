#include "memory/packing.h"

#include <algorithm>
#include <cstring>

namespace dak {

namespace {

/// copy(row, chunk, bytes) for every chunk, the whole ones with a size the compiler knows.
template <typename Copy>
void for_each_chunk(int64_t rows, int64_t row_bytes, Copy&& copy) {
    const int64_t whole = row_bytes / kChunkBytes;
    const int64_t rest = row_bytes % kChunkBytes;
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t chunk = 0; chunk < whole; ++chunk) copy(row, chunk, kChunkBytes);
        if (rest > 0) copy(row, whole, rest);
    }
}

}  // namespace

void pack_atoms(const std::byte* source, int64_t source_stride, int64_t rows, int64_t row_bytes,
                std::byte* atoms) {
    for (; row_bytes > 0; row_bytes -= kAtomRowBytes) {
        if (rows < kAtomRows || row_bytes < kAtomRowBytes) std::memset(atoms, 0, kAtomBytes);
        for_each_chunk(rows, std::min(row_bytes, kAtomRowBytes),
                       [&](int64_t row, int64_t chunk, int64_t bytes) {
                           std::memcpy(atoms + chunk_offset(row, chunk),
                                       source + row * source_stride + chunk * kChunkBytes,
                                       static_cast<size_t>(bytes));
                       });
        source += kAtomRowBytes;
        atoms += kAtomBytes;
    }
}

void unpack_atom(const std::byte* atom, int64_t rows, int64_t row_bytes, std::byte* destination,
                 int64_t destination_stride) {
    for_each_chunk(rows, row_bytes, [&](int64_t row, int64_t chunk, int64_t bytes) {
        std::memcpy(destination + row * destination_stride + chunk * kChunkBytes,
                    atom + chunk_offset(row, chunk), static_cast<size_t>(bytes));
    });
}

}  // namespace dak
