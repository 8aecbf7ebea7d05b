#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ops/cuda/attention_reference.h"

namespace dak::testing {
namespace {

constexpr int kThreads = 128;

__device__ uint8_t* element(const CacheView& cache, int page, int head, int value, int token,
                            int column) {
    uint8_t* base = page < cache.num_local_pages
                        ? cache.local + page * cache.page_bytes
                        : cache.remote + (page - cache.num_local_pages) * cache.page_bytes;
    return base + head * cache.head_bytes + value * cache.block_bytes +
           cache.offsets[token * cache.head_dim + column];
}

__device__ double widened(const void* at, bool fp16) {
    if (fp16) return __half2float(*static_cast<const __half*>(at));
    return __bfloat162float(*static_cast<const __nv_bfloat16*>(at));
}

__device__ uint32_t hash(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

__global__ void fill(CacheView cache, SequenceView sequences, const int32_t* first, uint32_t seed,
                     bool slow) {
    if (slow) {
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
        asm volatile("griddepcontrol.wait;" ::: "memory");
        for (int i = 0; i < 50; ++i) __nanosleep(1000);
    }
    const int sequence = static_cast<int>(blockIdx.x);
    const int per_token = 2 * cache.kv_heads * cache.head_dim;
    for (int t = first[sequence] + static_cast<int>(blockIdx.y); t < sequences.lengths[sequence];
         t += static_cast<int>(gridDim.y)) {
        const int page = sequences.pages[sequence * sequences.stride + t / 64];
        for (int i = static_cast<int>(threadIdx.x); i < per_token; i += kThreads) {
            const int column = i % cache.head_dim, head = i / cache.head_dim % cache.kv_heads;
            const int value = i / (cache.head_dim * cache.kv_heads);
            const uint32_t bits = hash(hash(seed + page * 64 + t % 64) + i);
            const float v = (static_cast<float>(bits >> 8) / 8388608.0f - 1.0f) * 1.7320508f;
            void* at = element(cache, page, head, value, t % 64, column);
            if (cache.fp16) {
                *static_cast<__half*>(at) = __float2half(v);
            } else {
                *static_cast<__nv_bfloat16*>(at) = __float2bfloat16(v);
            }
        }
    }
}

template <typename Operation>
__device__ double reduce(double value, double* scratch, Operation operation) {
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int offset = kThreads / 2; offset > 0; offset /= 2) {
        if (threadIdx.x < offset) {
            scratch[threadIdx.x] = operation(scratch[threadIdx.x], scratch[threadIdx.x + offset]);
        }
        __syncthreads();
    }
    value = scratch[0];
    __syncthreads();
    return value;
}

__global__ void attend(ReferenceArgs args) {
    extern __shared__ double scores[];
    __shared__ double scratch[kThreads];
    const CacheView& cache = args.cache;
    const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
    const int kv_head = head / (args.heads / cache.kv_heads);
    const int32_t* pages = args.sequences.pages + args.row_sequences[row] * args.sequences.stride;
    const int end = args.row_positions[row] + 1;
    const int begin = args.sliding_window > 0 ? max(0, end - args.sliding_window) : 0;
    const auto* q =
        static_cast<const uint8_t*>(args.q) + (row * args.ldq + int64_t{head} * cache.head_dim) * 2;
    double largest = -1e300;
    for (int t = begin + static_cast<int>(threadIdx.x); t < end; t += kThreads) {
        double sum = 0;
        for (int d = 0; d < cache.head_dim; ++d) {
            sum += widened(q + d * 2, cache.fp16) *
                   widened(element(cache, pages[t / 64], kv_head, 0, t % 64, d), cache.fp16);
        }
        sum *= args.scale;
        if (args.soft_cap > 0) sum = args.soft_cap * tanh(sum / args.soft_cap);
        scores[t - begin] = sum;
        largest = max(largest, sum);
    }
    largest = reduce(largest, scratch, [](double a, double b) { return max(a, b); });
    double total = 0;
    for (int t = begin + static_cast<int>(threadIdx.x); t < end; t += kThreads) {
        scores[t - begin] = exp(scores[t - begin] - largest);
        total += scores[t - begin];
    }
    total = reduce(total, scratch, [](double a, double b) { return a + b; });
    double* out = args.out + (int64_t{row} * args.heads + head) * cache.head_dim;
    for (int d = static_cast<int>(threadIdx.x); d < cache.head_dim; d += kThreads) {
        double sum = 0;
        for (int t = begin; t < end; ++t) {
            sum += scores[t - begin] *
                   widened(element(cache, pages[t / 64], kv_head, 1, t % 64, d), cache.fp16);
        }
        out[d] = sum / total;
    }
}

}  // namespace

void fill_cache(const CacheView& cache, const SequenceView& sequences, const int32_t* first,
                uint32_t seed, bool slow, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(sequences.sequences), slow ? 1 : 16);
    fill<<<grid, kThreads, 0, stream>>>(cache, sequences, first, seed, slow);
}

void reference_attention(const ReferenceArgs& args, cudaStream_t stream) {
    const auto bytes = static_cast<size_t>(args.max_length) * sizeof(double);
    cudaFuncSetAttribute(attend, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(bytes));
    const dim3 grid(static_cast<unsigned>(args.rows), static_cast<unsigned>(args.heads));
    attend<<<grid, kThreads, bytes, stream>>>(args);
}

}  // namespace dak::testing
