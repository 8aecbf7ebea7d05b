#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/cpu/parallel.h"
#include "ops/cpu/vec.h"
#include "ops/ops.h"

namespace dak::ops {

namespace {

/// fn(i) for the width's elements, eight lanes at a time and one by one at the end.
template <typename VecFn, typename Fn>
void for_each_element(int64_t width, VecFn&& vec_fn, Fn&& fn) {
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) vec_fn(i);
    for (; i < width; ++i) fn(i);
}

float dot(const float* a, const float* b, int64_t width) {
    Vec total{};
    float rest = 0.0f;
    for_each_element(
        width, [&](int64_t i) { total += load(a + i) * load(b + i); },
        [&](int64_t i) { rest += a[i] * b[i]; });
    return sum(total) + rest;
}

float sum_of(const float* a, int64_t width) {
    Vec total{};
    float rest = 0.0f;
    for_each_element(
        width, [&](int64_t i) { total += load(a + i); }, [&](int64_t i) { rest += a[i]; });
    return sum(total) + rest;
}

void norm_row(const Norm& norm, int64_t width, const float* x, float* out) {
    float mean = 0.0f;
    if (norm.kind == NormKind::kLayer) {
        mean = sum_of(x, width) / static_cast<float>(width);
        for (int64_t i = 0; i < width; ++i) out[i] = x[i] - mean;
        x = out;
    }
    const float variance = dot(x, x, width) / static_cast<float>(width);
    const float factor = 1.0f / std::sqrt(variance + static_cast<float>(norm.eps));
    for (int64_t i = 0; i < width; ++i) {
        float value = x[i] * factor;
        if (!norm.weight.empty()) value *= norm.weight[static_cast<size_t>(i)];
        if (!norm.bias.empty()) value += norm.bias[static_cast<size_t>(i)];
        out[i] = value;
    }
}

template <typename T>
void gather_row(const SplitTensor& table, int64_t row, float* out) {
    const int64_t k_atoms = table.shape.k_atoms();
    const int64_t columns = atom_cols(table.shape.dtype);
    float wide[kAtomRowBytes / sizeof(T)];
    for (int64_t k = 0; k < k_atoms; ++k) {
        const std::byte* from =
            table.atom(row / kAtomRows * k_atoms + k) + row % kAtomRows * kAtomRowBytes;
        for (int64_t group = 0; group < columns / kLanes; ++group) {
            store(wide + group * kLanes, load_swizzled<T>(from, row & 7, group));
        }
        const int64_t count = std::min(columns, table.shape.cols - k * columns);
        std::copy_n(wide, count, out + k * columns);
    }
}

}  // namespace

void gather_rows(const SplitTensor& table, std::span<const int32_t> rows, float* out) {
    visit_dtype(table.shape.dtype, [&]<typename T>(T) {
        for (size_t i = 0; i < rows.size(); ++i) {
            require(rows[i] >= 0 && rows[i] < table.shape.rows, "row {} asked of a table of {}",
                    rows[i], table.shape.rows);
            gather_row<T>(table, rows[i], out + static_cast<int64_t>(i) * table.shape.cols);
        }
    });
}

void add(std::span<const float> values, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] += values[i];
}

void norm(const Norm& norm, int64_t rows, int64_t width, const float* x, float* out) {
    parallel_for(rows,
                 [&](int64_t row) { norm_row(norm, width, x + row * width, out + row * width); });
}

void norm_heads(const Norm& norm, int64_t tokens, int64_t num_heads, int64_t head_dim,
                int64_t stride, float* x) {
    parallel_for(tokens, [&](int64_t t) {
        for (int64_t head = 0; head < num_heads; ++head) {
            float* row = x + t * stride + head * head_dim;
            norm_row(norm, head_dim, row, row);
        }
    });
}

std::vector<float> rope_frequencies(const Rope& rope, int64_t head_dim, int64_t length) {
    const auto dims = static_cast<double>(head_dim);
    double theta = rope.theta;
    if (rope.scaling == RopeScaling::kDynamic && length > rope.original_max_position) {
        const double ratio = static_cast<double>(length) / rope.original_max_position;
        theta *= std::pow(rope.factor * ratio - (rope.factor - 1), dims / (dims - 2));
    }
    std::vector<float> frequencies(static_cast<size_t>(head_dim / 2));
    for (size_t i = 0; i < frequencies.size(); ++i) {
        double frequency = 1.0 / std::pow(theta, 2.0 * static_cast<double>(i) / dims);
        if (rope.scaling == RopeScaling::kLinear) frequency /= rope.factor;
        if (rope.scaling == RopeScaling::kLlama3) {
            // Long wavelengths are stretched by `factor`, short ones kept, those between blended.
            const double turns = rope.original_max_position * frequency / (2 * std::numbers::pi);
            const double blend = std::clamp(
                (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor),
                0.0, 1.0);
            frequency *= (1 - blend) / rope.factor + blend;
        }
        frequencies[i] = static_cast<float>(frequency);
    }
    return frequencies;
}

void append_rope_angles(std::span<const float> frequencies, int64_t first_position, int64_t count,
                        RopeAngles& angles) {
    for (int64_t t = 0; t < count; ++t) {
        for (const float frequency : frequencies) {
            const float angle = static_cast<float>(first_position + t) * frequency;
            angles.cos.push_back(std::cos(angle));
            angles.sin.push_back(std::sin(angle));
        }
    }
}

void rope(const RopeAngles& angles, int64_t tokens, int64_t num_heads, int64_t head_dim,
          int64_t stride, float* x) {
    const int64_t half = head_dim / 2;
    parallel_for(tokens, [&](int64_t t) {
        const float* cos = angles.cos.data() + t * half;
        const float* sin = angles.sin.data() + t * half;
        for (int64_t head = 0; head < num_heads; ++head) {
            float* first = x + t * stride + head * head_dim;
            float* second = first + half;
            for (int64_t i = 0; i < half; ++i) {
                const float a = first[i];
                const float b = second[i];
                first[i] = a * cos[i] - b * sin[i];
                second[i] = b * cos[i] + a * sin[i];
            }
        }
    });
}

}  // namespace dak::ops
