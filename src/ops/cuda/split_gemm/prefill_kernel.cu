#include "ops/cuda/split_gemm/kernels.h"
#include "ops/cuda/split_gemm/prefill_kernel.cuh"

namespace dak::cuda {

template <typename Element>
const void* prefill_kernel(int tokens_per_tile, int cluster) {
    const auto is = [&](int tokens, int size) {
        return tokens_per_tile == tokens && cluster == size;
    };
    const void* kernel = nullptr;
    const auto take = [&](auto* entry) { kernel = reinterpret_cast<const void*>(entry); };
    if (is(128, 1)) take(&split_gemm_prefill<Element, 128, 1>);
    if (is(128, 2)) take(&split_gemm_prefill<Element, 128, 2>);
    if (is(256, 1)) take(&split_gemm_prefill<Element, 256, 1>);
    if (is(256, 2)) take(&split_gemm_prefill<Element, 256, 2>);
    if (is(256, 4)) take(&split_gemm_prefill<Element, 256, 4>);
    return kernel;
}

template const void* prefill_kernel<__nv_bfloat16>(int, int);
template const void* prefill_kernel<__half>(int, int);

}  // namespace dak::cuda
