#include "ops/cuda/split_attention/decode_kernel.cuh"
#include "ops/cuda/split_attention/kernels.h"

namespace dak::cuda {
namespace {

template <typename Element, int kHeadDim>
const void* kernel_of_rows(int rows) {
    switch (rows) {
        case 1:
            return reinterpret_cast<const void*>(&decode_attention<Element, kHeadDim, 1>);
        case 4:
            return reinterpret_cast<const void*>(&decode_attention<Element, kHeadDim, 4>);
        case 8:
            return reinterpret_cast<const void*>(&decode_attention<Element, kHeadDim, 8>);
        case 16:
            return reinterpret_cast<const void*>(&decode_attention<Element, kHeadDim, 16>);
        default:
            return nullptr;
    }
}

}  // namespace

template <typename Element>
const void* decode_attention_kernel(int head_dim, int rows) {
    switch (head_dim) {
        case 64:
            return kernel_of_rows<Element, 64>(rows);
        case 80:
            return kernel_of_rows<Element, 80>(rows);
        case 96:
            return kernel_of_rows<Element, 96>(rows);
        case 128:
            return kernel_of_rows<Element, 128>(rows);
        case 256:
            return kernel_of_rows<Element, 256>(rows);
        default:
            return nullptr;
    }
}

template const void* decode_attention_kernel<__nv_bfloat16>(int, int);
template const void* decode_attention_kernel<__half>(int, int);

}  // namespace dak::cuda
