#pragma once

#include <cstdint>

#include "base/random.h"

namespace dak {

/// A packed weight of random values, each a function of its row tile, row and column.
struct RandomMatrix {
    uint32_t hash = 0;
    float deviation = 1.0f;
    /// Matrix rows. Row tiles of `parts` matrices (gate and up) alternate, each of `rows` rows
    /// padded to whole tiles.
    int64_t rows = 0;
    int parts = 1;

    /// Rows of a row tile that are not padding.
    constexpr int64_t tile_rows(int64_t tile) const {
        const int64_t left = rows - tile / parts * 64;
        return left < 64 ? left : 64;
    }
    constexpr uint32_t tile_hash(int64_t tile) const {
        return combine_hash(hash, static_cast<uint64_t>(tile));
    }
    /// Of row `row` (0..63) of a tile with hash `tile_hash`.
    constexpr uint32_t row_hash(uint32_t tile_hash, int64_t row) const {
        return combine_hash(tile_hash, static_cast<uint64_t>(row));
    }
    constexpr float value(uint32_t row_hash, uint32_t column) const {
        return deviation * bell_value(row_hash, column);
    }
};

}  // namespace dak
