#include "ops/cuda/split_gemm/decode_kernel.cuh"
#include "ops/cuda/split_gemm/kernels.h"

namespace dak::cuda {
namespace {

template <typename Element, int kRowTiles>
const void* decode_kernel_of(int tokens_per_tile) {
    switch (tokens_per_tile) {
        case 8:
            return reinterpret_cast<const void*>(&split_gemm_decode<Element, 8, kRowTiles>);
        case 16:
            return reinterpret_cast<const void*>(&split_gemm_decode<Element, 16, kRowTiles>);
        case 32:
            return reinterpret_cast<const void*>(&split_gemm_decode<Element, 32, kRowTiles>);
        case 64:
            return reinterpret_cast<const void*>(&split_gemm_decode<Element, 64, kRowTiles>);
        default:
            return nullptr;
    }
}

}  // namespace

template <typename Element>
const void* decode_kernel(int tokens_per_tile, int row_tiles) {
    if (row_tiles == 1) return decode_kernel_of<Element, 1>(tokens_per_tile);
    if (row_tiles == 2) return decode_kernel_of<Element, 2>(tokens_per_tile);
    return nullptr;
}

template const void* decode_kernel<__nv_bfloat16>(int, int);
template const void* decode_kernel<__half>(int, int);

}  // namespace dak::cuda
