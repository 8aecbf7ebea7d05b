#include "ops/cuda/small_ops/kernels.h"
#include "ops/cuda/small_ops/vector.cuh"

namespace dak::cuda {
namespace {

/// A CTA makes an atom at a time, in the order of its bytes.
template <typename Element>
__global__ void __launch_bounds__(kFillThreads)
    fill_random_atoms(const __grid_constant__ FillParams p) {
    constexpr int kAtomChunks = PackedView::kAtomBytes / 16;
    for (int64_t atom = blockIdx.x; atom < p.atoms; atom += gridDim.x) {
        const int64_t tile = atom / p.tensor.k_atoms;
        const int first_column = static_cast<int>(atom - tile * p.tensor.k_atoms) * 64;
        const int rows = static_cast<int>(p.matrix.tile_rows(tile));
        const uint32_t tile_hash = p.matrix.tile_hash(tile);
        auto* out = reinterpret_cast<uint4*>(p.tensor.atom(atom));
        for (int place = static_cast<int>(threadIdx.x); place < kAtomChunks;
             place += kFillThreads) {
            const int row = place / 8;
            const int column = first_column + ((place ^ row) & 7) * kChunkElements;
            const uint32_t row_hash = p.matrix.row_hash(tile_hash, row);
            float values[kChunkElements];
#pragma unroll
            for (int i = 0; i < kChunkElements; ++i) {
                const bool inside = row < rows && column + i < p.cols;
                values[i] = inside ? p.matrix.value(row_hash, column + i) : 0.0f;
            }
            out[place] = rounded<Element>(values);
        }
    }
}

}  // namespace

template <typename Element>
const void* fill_random_kernel() {
    return reinterpret_cast<const void*>(&fill_random_atoms<Element>);
}

template const void* fill_random_kernel<__nv_bfloat16>();
template const void* fill_random_kernel<__half>();

}  // namespace dak::cuda
