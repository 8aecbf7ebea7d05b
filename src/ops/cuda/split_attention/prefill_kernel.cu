#include "ops/cuda/split_attention/kernels.h"
#include "ops/cuda/split_attention/prefill_kernel.cuh"

namespace dak::cuda {

template <typename Element>
const void* prefill_attention_kernel(int head_dim) {
    switch (head_dim) {
        case 64:
            return reinterpret_cast<const void*>(&prefill_attention<Element, 64>);
        case 80:
            return reinterpret_cast<const void*>(&prefill_attention<Element, 80>);
        case 96:
            return reinterpret_cast<const void*>(&prefill_attention<Element, 96>);
        case 128:
            return reinterpret_cast<const void*>(&prefill_attention<Element, 128>);
        case 256:
            return reinterpret_cast<const void*>(&prefill_attention<Element, 256>);
        default:
            return nullptr;
    }
}

template const void* prefill_attention_kernel<__nv_bfloat16>(int);
template const void* prefill_attention_kernel<__half>(int);

}  // namespace dak::cuda
