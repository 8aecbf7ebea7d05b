#include "ops/cuda/tensor_map.h"

#include <cuda_runtime_api.h>

#include "base/error.h"
#include "ops/cuda/check.h"

namespace dak::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// Through the runtime, so that nothing links against the driver's own library.
Encode find_encode() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                           cudaEnableDefault, &found),
          "looking up cuTensorMapEncodeTiled");
    require(found == cudaDriverEntryPointSuccess,
            "the CUDA driver has no cuTensorMapEncodeTiled; update it to one for CUDA 12 or newer");
    return reinterpret_cast<Encode>(function);
}

}  // namespace

CUtensorMap tensor_map(DType dtype, const void* base, int64_t rows, int64_t columns, int64_t stride,
                       int box_rows) {
    static const Encode encode = find_encode();
    const cuuint64_t size[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
    const cuuint64_t stride_bytes[1] = {static_cast<cuuint64_t>(stride) * 2};
    const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)};
    const cuuint32_t element_strides[2] = {1, 1};
    CUtensorMap map;
    const CUresult status = encode(
        &map,
        dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        2, const_cast<void*>(base), size, stride_bytes, box, element_strides,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    require(status == CUDA_SUCCESS,
            "tensor map of a [{}, {}] matrix with row stride {} at {}: the driver refused it ({})",
            rows, columns, stride, base, static_cast<int>(status));
    return map;
}

}  // namespace dak::cuda
