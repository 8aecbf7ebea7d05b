#include "ops/cuda/split_gemm/kernels.h"
#include "ops/cuda/split_gemm/prefill_kernel.cuh"

namespace dak::cuda {

template <typename Element>
const void* prefill_kernel(int tokens_per_tile, int cluster, bool share_x) {
    const auto is = [&](int tokens, int size, bool x) {
        return tokens_per_tile == tokens && cluster == size && share_x == x;
    };
    const void* kernel = nullptr;
    const auto take = [&](auto* entry) { kernel = reinterpret_cast<const void*>(entry); };
    if (is(128, 1, false)) take(&split_gemm_prefill<Element, 128, 1, false>);
    if (is(128, 2, false)) take(&split_gemm_prefill<Element, 128, 2, false>);
    if (is(128, 2, true)) take(&split_gemm_prefill<Element, 128, 2, true>);
    if (is(256, 1, false)) take(&split_gemm_prefill<Element, 256, 1, false>);
    if (is(256, 2, false)) take(&split_gemm_prefill<Element, 256, 2, false>);
    if (is(256, 2, true)) take(&split_gemm_prefill<Element, 256, 2, true>);
    if (is(256, 4, false)) take(&split_gemm_prefill<Element, 256, 4, false>);
    return kernel;
}

template const void* prefill_kernel<__nv_bfloat16>(int, int, bool);
template const void* prefill_kernel<__half>(int, int, bool);

}  // namespace dak::cuda
