#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/dtype.h"

namespace dak::cuda {

/// Tensor map of a row-major matrix of 16-bit elements [rows, columns] whose rows are `stride`
/// elements apart, for boxes of `box_rows` rows x 64 columns in 128-byte-swizzled shared memory.
/// Loads read zeros outside the matrix, stores leave out what lies outside. `base` must be 16-byte
/// aligned and `stride` a multiple of 8.
CUtensorMap tensor_map(DType dtype, const void* base, int64_t rows, int64_t columns, int64_t stride,
                       int box_rows);

}  // namespace dak::cuda
