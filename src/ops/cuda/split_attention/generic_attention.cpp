#include "ops/cuda/split_attention/generic_attention.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/error.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/split_attention/generic_params.h"

namespace dak::cuda {

void generic_attention(const AttentionArgs& args, int64_t rows, cudaStream_t stream,
                       bool programmatic) {
    const KvPageLayout& layout = args.kv.layout;
    require(layout.head_dim <= 256, "attention on the GPU serves heads of up to 256, not {}",
            layout.head_dim);
    require(args.num_heads % layout.num_kv_heads == 0, "{} query heads do not share {} KV heads",
            args.num_heads, layout.num_kv_heads);
    const GenericAttentionParams params{
        .q = args.q,
        .out = args.out,
        .ldq = args.ldq,
        .ldo = args.ldo,
        .local = reinterpret_cast<const uint8_t*>(args.kv.local),
        .remote = reinterpret_cast<const uint8_t*>(args.kv.remote),
        .lengths = args.batch.lengths,
        .query_starts = args.batch.query_starts,
        .pages = args.batch.pages,
        .pages_stride = args.batch.pages_stride,
        .page_bytes = layout.page_bytes(),
        .head_bytes = layout.head_bytes(),
        .block_bytes = layout.block_bytes(),
        .num_local_pages = static_cast<int>(args.kv.num_local_pages),
        .sequences = static_cast<int>(args.batch.sequences),
        .head_dim = static_cast<int>(layout.head_dim),
        .head_group = static_cast<int>(args.num_heads / layout.num_kv_heads),
        .sliding_window = static_cast<int>(args.sliding_window),
        .scale = args.scale,
        .soft_cap = args.soft_cap};
    const void* kernel = layout.dtype == DType::kBF16 ? generic_attention_kernel<__nv_bfloat16>()
                                                      : generic_attention_kernel<__half>();
    launch(kernel,
           {.grid = dim3(static_cast<unsigned>(rows), static_cast<unsigned>(args.num_heads)),
            .threads = kGenericAttentionThreads},
           params, stream, programmatic, "generic attention");
}

}  // namespace dak::cuda
