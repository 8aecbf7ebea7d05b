#include "ops/cuda/small_ops/small_ops.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/small_ops/fill_random.h"
#include "ops/cuda/small_ops/kernels.h"

namespace dak::cuda {
namespace {

static_assert(kMaxNormWidth == int64_t{2} * kNormThreads * kChunkElements);
static_assert(kMaxRopeHeadDim == kMaxHeadDim);

static_assert(PackedView::kAtomBytes == kAtomBytes);

constexpr int64_t kMaxGrid = std::numeric_limits<int32_t>::max();

unsigned grid_of(int64_t count) { return static_cast<unsigned>(count); }

void check_dtype(DType dtype, std::string_view what) {
    require(dtype != DType::kF32, "{}: needs bf16 or fp16, not {}", what, name_of(dtype));
}

void check_rows(const void* rows, int64_t stride, int64_t width, std::string_view what) {
    require(stride % kChunkElements == 0 && stride >= width &&
                reinterpret_cast<uintptr_t>(rows) % kChunkBytes == 0,
            "{} needs 16-byte aligned rows of at least {} elements, not stride {} at {}", what,
            width, stride, rows);
}

void check_vector(const float* vector, std::string_view what) {
    require(reinterpret_cast<uintptr_t>(vector) % 16 == 0, "{}: {} is not 16-byte aligned", what,
            static_cast<const void*>(vector));
}

PackedView view_of(const SplitTensor& tensor) {
    return {reinterpret_cast<uint8_t*>(tensor.remote), reinterpret_cast<uint8_t*>(tensor.local),
            tensor.remote_atoms, static_cast<int>(tensor.shape.k_atoms()),
            static_cast<int>(tensor.shape.rows)};
}

/// One thread a chunk.
LaunchShape copy_shape(int64_t rows, int64_t width) {
    return {.grid = dim3(grid_of(rows),
                         grid_of(ceil_div(width, int64_t{kCopyThreads} * kChunkElements))),
            .threads = kCopyThreads};
}

void check_row_args(const NormArgs& args, std::string_view what) {
    check_dtype(args.dtype, what);
    require(args.width > 0 && args.rows >= 0 && args.rows <= kMaxGrid, "{}: {} rows of {}", what,
            args.rows, args.width);
    check_rows(args.x, args.ldx, args.width, what);
    check_rows(args.out, args.ldo, args.width, what);
}

RowParams row_params(const NormArgs& args) {
    return {.x = args.x,
            .ldx = args.ldx,
            .out = args.out,
            .ldo = args.ldo,
            .row_index = args.row_index,
            .rows = static_cast<int>(args.rows),
            .width = static_cast<int>(args.width),
            .centred = args.kind == NormKind::kLayer,
            .eps = args.eps,
            .weight = args.weight,
            .bias = args.bias,
            .scales = args.scales};
}

KvView view_of(const PagedKv& kv) {
    const KvPageLayout& layout = kv.layout;
    const int64_t last_panel = (layout.row_chunks() - 1) / kPanelChunks;
    const int64_t width = layout.row_chunks() - last_panel * kPanelChunks;
    const int64_t group = std::gcd(width, int64_t{8});
    return {.local = reinterpret_cast<uint8_t*>(kv.local),
            .remote = reinterpret_cast<uint8_t*>(kv.remote),
            .num_local_pages = kv.num_local_pages,
            .page_bytes = layout.page_bytes(),
            .block_bytes = static_cast<int>(layout.block_bytes()),
            .last_panel = static_cast<int>(last_panel),
            .last_width = static_cast<int>(width),
            .last_shift = std::countr_zero(static_cast<uint64_t>(8 / group)),
            .last_mask = static_cast<int>(group - 1)};
}

void check_args(const RopeAppendArgs& args) {
    const KvPageLayout& layout = args.kv.layout;
    check_dtype(layout.dtype, "rope and append");
    require(layout.head_dim > 0 && layout.head_dim % 2 == 0 && layout.head_dim <= kMaxHeadDim,
            "rope and append: head size {} is not an even number up to {}", layout.head_dim,
            kMaxHeadDim);
    require(args.tokens >= 0 && args.tokens <= kMaxGrid, "rope and append: {} tokens", args.tokens);
    require((args.q_norm == nullptr) == (args.k_norm == nullptr),
            "rope and append: q and k are normalised together or not at all");
    check_rows(args.qkv, args.ld, (args.num_heads + 2 * layout.num_kv_heads) * layout.head_dim,
               "rope and append");
}

}  // namespace

void embed(const EmbedArgs& args, cudaStream_t stream, bool programmatic) {
    const PackedShape& shape = args.table.shape;
    check_dtype(shape.dtype, "embedding");
    require(args.count >= 0 && args.count <= kMaxGrid, "embedding: {} tokens", args.count);
    check_rows(args.out, args.ldo, shape.cols, "embedding");
    if (args.count == 0) return;
    EmbedParams params{.table = view_of(args.table),
                       .tokens = args.tokens,
                       .position_ids = args.position_ids,
                       .position_offset = static_cast<int>(args.position_offset),
                       .width = static_cast<int>(shape.cols),
                       .out = args.out,
                       .ldo = args.ldo};
    if (args.positions) {
        const PackedShape& positions = args.positions->shape;
        require(positions.cols == shape.cols && positions.dtype == shape.dtype,
                "embedding: positions of {} {} for tokens of {} {}", positions.cols,
                name_of(positions.dtype), shape.cols, name_of(shape.dtype));
        params.positions = view_of(*args.positions);
    }
    const void* kernel =
        shape.dtype == DType::kBF16 ? embed_kernel<__nv_bfloat16>() : embed_kernel<__half>();
    launch(kernel, copy_shape(args.count, shape.cols), params, stream, programmatic, "embedding");
}

void gather_rows(const NormArgs& args, cudaStream_t stream, bool programmatic) {
    check_row_args(args, "gathering rows");
    if (args.rows == 0) return;
    launch(gather_rows_kernel(), copy_shape(args.rows, args.width), row_params(args), stream,
           programmatic, "gathering rows");
}

void norm(const NormArgs& args, cudaStream_t stream, bool programmatic) {
    check_row_args(args, "norm");
    check_vector(args.weight, "norm");
    check_vector(args.bias, "norm");
    require(args.row_index == nullptr || args.x != args.out,
            "norm: chosen rows cannot be normalised in place");
    if (args.rows == 0) return;
    const int64_t chunks = ceil_div(args.width, int64_t{kChunkElements});
    // Few rows: the fewest steps. Many: two CTAs an SM, so that one computes while the other loads.
    const bool many = args.rows > current_sms();
    const int per_thread = chunks <= (many ? kNormThreads / 2 : kNormThreads) ? 1 : 2;
    const int64_t threads = round_up(ceil_div(chunks, int64_t{per_thread}), 32);
    const int64_t ctas = kNormThreads / std::min<int64_t>(threads, kNormThreads) * current_sms();
    require(threads <= kNormThreads, "norm: rows of {} elements are too long", args.width);
    const LaunchShape shape{.grid = dim3(grid_of(std::min(args.rows, ctas))),
                            .threads = grid_of(threads)};
    const bool bf16 = args.dtype == DType::kBF16;
    const void* kernel =
        bf16 ? norm_kernel<__nv_bfloat16>(per_thread) : norm_kernel<__half>(per_thread);
    launch(kernel, shape, row_params(args), stream, programmatic, "norm");
}

void rope_append(const RopeAppendArgs& args, cudaStream_t stream, bool programmatic) {
    check_args(args);
    if (args.tokens == 0) return;
    const KvPageLayout& layout = args.kv.layout;
    const bool changes_q = args.frequencies != nullptr || args.q_norm != nullptr;
    // A warp a head where the halves of one are not whole chunks.
    constexpr int64_t kPair = 2 * int64_t{kChunkElements};
    const bool chunk_pairs = layout.head_dim % kPair == 0;
    const auto pairs = static_cast<uint64_t>(layout.head_dim / kPair);
    const auto lanes = static_cast<int64_t>(chunk_pairs ? std::bit_ceil(pairs) : 32);
    const RopeAppendParams params{.kv = view_of(args.kv),
                                  .qkv = args.qkv,
                                  .ld = args.ld,
                                  .num_heads = static_cast<int>(args.num_heads),
                                  .num_kv_heads = static_cast<int>(layout.num_kv_heads),
                                  .first_head = changes_q ? 0 : static_cast<int>(args.num_heads),
                                  .head_dim = static_cast<int>(layout.head_dim),
                                  .lanes_log2 = std::countr_zero(static_cast<uint64_t>(lanes)),
                                  .positions = args.positions,
                                  .sequence_of = args.sequence_of,
                                  .pages = args.pages,
                                  .pages_stride = args.pages_stride,
                                  .frequencies = args.frequencies,
                                  .frequencies_stride = args.frequencies_stride,
                                  .q_norm = args.q_norm,
                                  .k_norm = args.k_norm,
                                  .norm_eps = args.norm_eps};
    // Few tokens: a CTA for each round of a token's heads. Many: no more CTAs than run at once,
    // which then share the work of finding angle and page among more heads.
    constexpr int64_t kCtasPerSm = 12;  // what its registers last for
    const int64_t heads = (changes_q ? args.num_heads : 0) + 2 * layout.num_kv_heads;
    const int64_t rounds = ceil_div(heads * lanes, int64_t{kRopeThreads});
    const int64_t at_once = std::max(int64_t{1}, kCtasPerSm * current_sms() / args.tokens);
    const LaunchShape shape{.grid = dim3(grid_of(args.tokens), grid_of(std::min(rounds, at_once))),
                            .threads = kRopeThreads};
    const void* kernel = layout.dtype == DType::kBF16
                             ? rope_append_kernel<__nv_bfloat16>(chunk_pairs)
                             : rope_append_kernel<__half>(chunk_pairs);
    launch(kernel, shape, params, stream, programmatic, "rope and append");
}

void fill_random(const RandomMatrix& matrix, const SplitTensor& tensor, cudaStream_t stream) {
    check_dtype(tensor.shape.dtype, "random weights");
    if (tensor.shape.atoms() == 0) return;
    const FillParams params{.matrix = matrix,
                            .tensor = view_of(tensor),
                            .atoms = tensor.shape.atoms(),
                            .cols = static_cast<int>(tensor.shape.cols)};
    constexpr int64_t kCtasPerSm = 8;  // of kFillThreads: a full SM
    const LaunchShape shape{
        .grid = dim3(grid_of(std::min(params.atoms, kCtasPerSm * current_sms()))),
        .threads = kFillThreads};
    const void* kernel = tensor.shape.dtype == DType::kBF16 ? fill_random_kernel<__nv_bfloat16>()
                                                            : fill_random_kernel<__half>();
    launch(kernel, shape, params, stream, false, "random weights");
}

}  // namespace dak::cuda
