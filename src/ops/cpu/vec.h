#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "memory/packing.h"

// Eight fp32 lanes in the compiler's portable vector type: AVX on x86, two NEON registers on ARM.

namespace dak::ops {

inline constexpr int64_t kLanes = 8;

using Vec = float __attribute__((vector_size(32)));
using VecBits = uint32_t __attribute__((vector_size(32)));
using HalfBits = uint16_t __attribute__((vector_size(16)));

inline Vec load(const float* from) {
    Vec value;
    std::memcpy(&value, from, sizeof(value));
    return value;
}

inline void store(float* to, Vec value) { std::memcpy(to, &value, sizeof(value)); }

inline Vec broadcast(float value) { return Vec{} + value; }

inline float sum(Vec value) {
    return ((value[0] + value[4]) + (value[1] + value[5])) +
           ((value[2] + value[6]) + (value[3] + value[7]));
}

inline Vec widen(VecBits half_bits, BF16) { return std::bit_cast<Vec>(half_bits << 16); }

/// As to_float(F16), lane by lane.
inline Vec widen(VecBits half_bits, F16) {
    const VecBits magnitude = (half_bits & 0x7fffu) << 13;
    const Vec rebased = std::bit_cast<Vec>(magnitude) * 0x1p112f;
    const VecBits special = std::bit_cast<VecBits>(magnitude >= 0x0f800000u) & 0x7f800000u;
    const VecBits sign = (half_bits & 0x8000u) << 16;
    return std::bit_cast<Vec>(std::bit_cast<VecBits>(rebased) | special | sign);
}

/// Eight consecutive elements of a row whose 16-byte chunks are permuted by XOR with `swizzle`:
/// elements 8 * group .. 8 * group + 7.
template <typename T>
Vec load_swizzled(const std::byte* row, int64_t swizzle, int64_t group) {
    if constexpr (sizeof(T) == 2) {
        HalfBits bits;
        std::memcpy(&bits, row + (group ^ swizzle) * kChunkBytes, sizeof(bits));
        return widen(__builtin_convertvector(bits, VecBits), T{});
    } else {
        Vec value;
        auto* bytes = reinterpret_cast<std::byte*>(&value);
        std::memcpy(bytes, row + ((2 * group) ^ swizzle) * kChunkBytes, kChunkBytes);
        std::memcpy(bytes + kChunkBytes, row + ((2 * group + 1) ^ swizzle) * kChunkBytes,
                    kChunkBytes);
        return value;
    }
}

}  // namespace dak::ops
