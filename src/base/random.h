#pragma once

#include <cstdint>

// Random numbers that depend on their place alone, not on the order in which they are made.
// constexpr so that the GPU makes the same ones.

namespace dak {

/// Mixes the bits of a 32-bit counter (the finaliser of MurmurHash3).
constexpr uint32_t mix_bits(uint32_t value) {
    value ^= value >> 16;
    value *= 0x85ebca6bu;
    value ^= value >> 13;
    value *= 0xc2b2ae35u;
    return value ^ value >> 16;
}

/// Mixes 64 bits (the finaliser of SplitMix64).
constexpr uint64_t mix_bits(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

constexpr uint32_t combine_hash(uint32_t hash, uint64_t value) {
    hash = mix_bits(hash ^ static_cast<uint32_t>(value));
    return mix_bits(hash ^ static_cast<uint32_t>(value >> 32));
}

/// A bell-shaped value of mean 0 and deviation 1 for place `index`: the sum of the four bytes of a
/// hash.
constexpr float bell_value(uint32_t hash, uint32_t index) {
    constexpr float kMean = 4 * 127.5f;
    constexpr float kDeviation = 147.8f;  // sqrt(4 * (256^2 - 1) / 12)
    const uint32_t bits = mix_bits(hash + index * 0x9e3779b9u);
    const uint32_t pairs = (bits & 0x00ff00ffu) + (bits >> 8 & 0x00ff00ffu);
    return (static_cast<float>(static_cast<int32_t>((pairs & 0xffffu) + (pairs >> 16))) - kMean) /
           kDeviation;
}

/// A number in [0, 1) for draw `draw` of a seed.
constexpr double uniform_value(uint64_t seed, uint64_t draw) {
    constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
    const uint64_t bits = mix_bits(mix_bits(seed + kGolden) + (draw + 1) * kGolden);
    return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace dak
