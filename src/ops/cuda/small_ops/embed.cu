#include "ops/cuda/ptx.cuh"
#include "ops/cuda/small_ops/kernels.h"
#include "ops/cuda/small_ops/vector.cuh"

// Rows gathered from packed tables or from activations: a thread moves one chunk, so that all loads
// of a few tokens are in flight at once, which is what a table behind a link needs.

namespace dak::cuda {
namespace {

__device__ __forceinline__ uint4 load_chunk(const PackedView& table, int row, int chunk) {
    return __ldg(reinterpret_cast<const uint4*>(table.chunk(row, chunk)));
}

template <typename Element>
__global__ void __launch_bounds__(kCopyThreads) embed_rows(const __grid_constant__ EmbedParams p) {
    ptx::grid_launch_dependents();
    const int token_row = static_cast<int>(blockIdx.x);
    const int chunk = static_cast<int>(blockIdx.y * kCopyThreads + threadIdx.x);
    const int left = p.width - chunk * kChunkElements;
    ptx::grid_wait();
    if (left <= 0) return;
    const int token = p.tokens[token_row];
    uint4 value = make_uint4(0, 0, 0, 0);
    if (token >= 0 && token < p.table.rows) {
        value = load_chunk(p.table, token, chunk);
        if (p.positions.rows > 0) {
            const int position = p.position_ids[token_row] + p.position_offset;
            if (position >= 0 && position < p.positions.rows) {
                float sum[kChunkElements], other[kChunkElements];
                widen<Element>(value, sum);
                widen<Element>(load_chunk(p.positions, position, chunk), other);
#pragma unroll
                for (int i = 0; i < kChunkElements; ++i) sum[i] += other[i];
                value = rounded<Element>(sum);
            }
        }
    }
    store_chunk(row_of(p.out, token_row, p.ldo), chunk, value, left);
}

__global__ void __launch_bounds__(kCopyThreads) copy_rows(const __grid_constant__ RowParams p) {
    ptx::grid_launch_dependents();
    const int chunk = static_cast<int>(blockIdx.y * kCopyThreads + threadIdx.x);
    const int left = p.width - chunk * kChunkElements;
    ptx::grid_wait();
    if (left <= 0) return;
    const int from =
        p.row_index == nullptr ? static_cast<int>(blockIdx.x) : p.row_index[blockIdx.x];
    if (from < 0) return;
    store_chunk(row_of(p.out, blockIdx.x, p.ldo), chunk, row_of(p.x, from, p.ldx)[chunk], left);
}

}  // namespace

template <typename Element>
const void* embed_kernel() {
    return reinterpret_cast<const void*>(&embed_rows<Element>);
}

template const void* embed_kernel<__nv_bfloat16>();
template const void* embed_kernel<__half>();

const void* gather_rows_kernel() { return reinterpret_cast<const void*>(&copy_rows); }

}  // namespace dak::cuda
