#include "memory/packing.h"

#include <algorithm>
#include <cstring>

namespace dak {

void pack_atom(const std::byte* source, int64_t source_stride, int64_t rows, int64_t row_bytes,
               std::byte* atom) {
    if (rows < kAtomRows || row_bytes < kAtomRowBytes) std::memset(atom, 0, kAtomBytes);
    for (int64_t row = 0; row < rows; ++row) {
        const std::byte* from = source + row * source_stride;
        for (int64_t begin = 0; begin < row_bytes; begin += kChunkBytes) {
            std::memcpy(atom + chunk_offset(row, begin / kChunkBytes), from + begin,
                        static_cast<size_t>(std::min(kChunkBytes, row_bytes - begin)));
        }
    }
}

void unpack_atom(const std::byte* atom, int64_t rows, int64_t row_bytes, std::byte* destination,
                 int64_t destination_stride) {
    for (int64_t row = 0; row < rows; ++row) {
        std::byte* to = destination + row * destination_stride;
        for (int64_t begin = 0; begin < row_bytes; begin += kChunkBytes) {
            std::memcpy(to + begin, atom + chunk_offset(row, begin / kChunkBytes),
                        static_cast<size_t>(std::min(kChunkBytes, row_bytes - begin)));
        }
    }
}

}  // namespace dak
