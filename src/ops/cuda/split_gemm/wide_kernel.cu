#include "ops/cuda/split_gemm/kernels.h"
#include "ops/cuda/split_gemm/wide_kernel.cuh"

namespace dak::cuda {

template <typename Element>
const void* wide_kernel(int tokens_per_tile, int rows_per_tile) {
    const auto is = [&](int tokens, int rows) {
        return tokens_per_tile == tokens && rows_per_tile == rows;
    };
    const void* kernel = nullptr;
    const auto take = [&](auto* entry) { kernel = reinterpret_cast<const void*>(entry); };
    if (is(64, 64)) take(&split_gemm_wide<Element, 64, 64>);
    if (is(64, 96)) take(&split_gemm_wide<Element, 64, 96>);
    if (is(128, 64)) take(&split_gemm_wide<Element, 128, 64>);
    if (is(128, 96)) take(&split_gemm_wide<Element, 128, 96>);
    if (is(128, 112)) take(&split_gemm_wide<Element, 128, 112>);
    if (is(128, 168)) take(&split_gemm_wide<Element, 128, 168>);
    if (is(128, 192)) take(&split_gemm_wide<Element, 128, 192>);
    return kernel;
}

template const void* wide_kernel<__nv_bfloat16>(int, int);
template const void* wide_kernel<__half>(int, int);

}  // namespace dak::cuda
