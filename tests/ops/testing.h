#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "memory/split_tensor.h"

namespace dak::testing {

inline std::vector<float> random_floats(int64_t count, uint32_t seed, float scale = 1.0f) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal(0.0f, scale);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(generator);
    return values;
}

/// A split tensor with its own arenas, packed from fp32 values rounded to its type.
struct PackedMatrix {
    Arena local;
    Arena remote;
    SplitTensor tensor;
    std::vector<float> values;  ///< as stored, row-major

    PackedMatrix(const PackedShape& shape, int64_t remote_atoms, std::vector<float> source)
        : local(Arena::host("local", shape.bytes())),
          remote(Arena::host("remote", shape.bytes())),
          tensor(allocate_split(shape, remote_atoms, local, remote)),
          values(std::move(source)) {
        visit_dtype(shape.dtype, [&]<typename T>(T) {
            std::vector<T> narrow(values.size());
            for (size_t i = 0; i < values.size(); ++i) {
                narrow[i] = from_float<T>(values[i]);
                values[i] = to_float(narrow[i]);
            }
            const int64_t columns = atom_cols(shape.dtype);
            for (int64_t atom = 0; atom < shape.atoms(); ++atom) {
                const int64_t row = atom / shape.k_atoms() * kAtomRows;
                const int64_t column = atom % shape.k_atoms() * columns;
                const T* from = narrow.data() + row * shape.cols + column;
                pack_atoms(reinterpret_cast<const std::byte*>(from),
                           shape.cols * int64_t{sizeof(T)}, std::min(kAtomRows, shape.rows - row),
                           std::min(columns, shape.cols - column) * int64_t{sizeof(T)},
                           tensor.atom(atom));
            }
        });
    }
};

}  // namespace dak::testing
