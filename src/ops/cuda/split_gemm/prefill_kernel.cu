#include "ops/cuda/split_gemm/kernels.h"
#include "ops/cuda/split_gemm/prefill_kernel.cuh"

namespace dak::cuda {

template <typename Element>
const void* prefill_kernel(int tokens_per_tile, int cluster) {
    switch (tokens_per_tile * 10 + cluster) {
        case 1281:
            return reinterpret_cast<const void*>(&split_gemm_prefill<Element, 128, 1>);
        case 1282:
            return reinterpret_cast<const void*>(&split_gemm_prefill<Element, 128, 2>);
        case 2561:
            return reinterpret_cast<const void*>(&split_gemm_prefill<Element, 256, 1>);
        case 2562:
            return reinterpret_cast<const void*>(&split_gemm_prefill<Element, 256, 2>);
        case 2564:
            return reinterpret_cast<const void*>(&split_gemm_prefill<Element, 256, 4>);
        default:
            return nullptr;
    }
}

template const void* prefill_kernel<__nv_bfloat16>(int, int);
template const void* prefill_kernel<__half>(int, int);

}  // namespace dak::cuda
