#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ops/cuda/reference.h"

namespace dak::testing {
namespace {

__device__ float to_fp32(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ float to_fp32(__half value) { return __half2float(value); }

constexpr int kTile = 16;

template <typename Element>
__global__ void product(const Element* w, const Element* x, int64_t ldx, int rows, int cols,
                        int tokens, double* out) {
    __shared__ float w_tile[kTile][kTile + 1], x_tile[kTile][kTile + 1];
    const int row0 = blockIdx.x * kTile, token0 = blockIdx.y * kTile;
    const int tx = threadIdx.x, ty = threadIdx.y;
    double sum = 0;
    for (int k = 0; k < cols; k += kTile) {
        const bool in = k + tx < cols;
        w_tile[ty][tx] =
            in && row0 + ty < rows ? to_fp32(w[int64_t{row0 + ty} * cols + k + tx]) : 0.0f;
        x_tile[ty][tx] =
            in && token0 + ty < tokens ? to_fp32(x[(token0 + ty) * ldx + k + tx]) : 0.0f;
        __syncthreads();
        for (int i = 0; i < kTile; ++i) {
            sum += static_cast<double>(w_tile[tx][i]) * static_cast<double>(x_tile[ty][i]);
        }
        __syncthreads();
    }
    if (row0 + tx < rows && token0 + ty < tokens) {
        out[int64_t{token0 + ty} * rows + row0 + tx] = sum;
    }
}

}  // namespace

void reference_product(bool fp16, const void* w, const void* x, int64_t ldx, int rows, int cols,
                       int tokens, double* out, cudaStream_t stream) {
    const dim3 grid((rows + kTile - 1) / kTile, (tokens + kTile - 1) / kTile);
    const dim3 block(kTile, kTile);
    if (fp16) {
        product<<<grid, block, 0, stream>>>(static_cast<const __half*>(w),
                                            static_cast<const __half*>(x), ldx, rows, cols, tokens,
                                            out);
    } else {
        product<<<grid, block, 0, stream>>>(static_cast<const __nv_bfloat16*>(w),
                                            static_cast<const __nv_bfloat16*>(x), ldx, rows, cols,
                                            tokens, out);
    }
}

}  // namespace dak::testing
