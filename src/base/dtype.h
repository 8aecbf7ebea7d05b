#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace dak {

/// Element type of weights and of the KV cache.
enum class DType : uint8_t { kF32, kF16, kBF16 };

constexpr int64_t size_of(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

constexpr std::string_view name_of(DType dtype) {
    switch (dtype) {
        case DType::kF32:
            return "fp32";
        case DType::kF16:
            return "fp16";
        case DType::kBF16:
            return "bf16";
    }
    return "?";
}

/// A bfloat16 value as its bits.
struct BF16 {
    uint16_t bits;
};

/// An IEEE binary16 value as its bits.
struct F16 {
    uint16_t bits;
};

constexpr float to_float(float value) { return value; }

constexpr float to_float(BF16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

/// Branch-free so that loops over it vectorise: the exponent is rebased by a multiplication, which
/// also normalises subnormals; infinities and NaNs get their exponent bits back afterwards.
constexpr float to_float(F16 value) {
    const uint32_t magnitude = uint32_t{value.bits & 0x7fffu} << 13;
    const uint32_t sign = uint32_t{value.bits & 0x8000u} << 16;
    const float rebased = std::bit_cast<float>(magnitude) * 0x1p112f;
    const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(rebased) | special | sign);
}

template <typename T>
constexpr T from_float(float value);

template <>
constexpr float from_float<float>(float value) {
    return value;
}

/// Round to nearest even; NaN stays NaN.
template <>
constexpr BF16 from_float<BF16>(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
    return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

/// Round to nearest even; values past 65504 become infinity; NaN stays NaN.
template <>
constexpr F16 from_float<F16>(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
    if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
    if (magnitude < 0x38800000u) {
        // Subnormal result: adding 0.5 leaves the rounded value in the low mantissa bits.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
        return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

/// Calls `function` with a value of the C++ type that stands for `dtype`: float, F16 or BF16.
template <typename Function>
decltype(auto) visit_dtype(DType dtype, Function&& function) {
    switch (dtype) {
        case DType::kF32:
            return function(float{});
        case DType::kF16:
            return function(F16{});
        case DType::kBF16:
            return function(BF16{});
    }
    fail("internal error: unknown dtype {}", static_cast<int>(dtype));
}

}  // namespace dak
