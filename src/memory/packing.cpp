#include "memory/packing.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

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

/// Stores that do not first read what they overwrite: packing is bound by memory.
void stream_chunk(const std::byte* from, std::byte* to) {
#if defined(__x86_64__)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
    std::memcpy(to, from, kChunkBytes);
#endif
}

/// Orders stream_chunk() before later stores, such as those that tell another thread.
void finish_streaming() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

void pack_whole_atom(const std::byte* source, int64_t source_stride, std::byte* atom) {
    for_each_chunk(kAtomRows, kAtomRowBytes, [&](int64_t row, int64_t chunk, int64_t) {
        stream_chunk(source + row * source_stride + chunk * kChunkBytes,
                     atom + chunk_offset(row, chunk));
    });
}

void pack_part_of_atom(const std::byte* source, int64_t source_stride, int64_t rows,
                       int64_t row_bytes, std::byte* atom) {
    std::memset(atom, 0, kAtomBytes);
    for_each_chunk(rows, row_bytes, [&](int64_t row, int64_t chunk, int64_t bytes) {
        std::memcpy(atom + chunk_offset(row, chunk),
                    source + row * source_stride + chunk * kChunkBytes, static_cast<size_t>(bytes));
    });
}

}  // namespace

void pack_atoms(const std::byte* source, int64_t source_stride, int64_t rows, int64_t row_bytes,
                std::byte* atoms) {
    for (; row_bytes > 0; row_bytes -= kAtomRowBytes) {
        if (rows == kAtomRows && row_bytes >= kAtomRowBytes) {
            pack_whole_atom(source, source_stride, atoms);
        } else {
            pack_part_of_atom(source, source_stride, rows, std::min(row_bytes, kAtomRowBytes),
                              atoms);
        }
        source += kAtomRowBytes;
        atoms += kAtomBytes;
    }
    finish_streaming();
}

void unpack_atom(const std::byte* atom, int64_t rows, int64_t row_bytes, std::byte* destination,
                 int64_t destination_stride) {
    for_each_chunk(rows, row_bytes, [&](int64_t row, int64_t chunk, int64_t bytes) {
        std::memcpy(destination + row * destination_stride + chunk * kChunkBytes,
                    atom + chunk_offset(row, chunk), static_cast<size_t>(bytes));
    });
}

}  // namespace dak
