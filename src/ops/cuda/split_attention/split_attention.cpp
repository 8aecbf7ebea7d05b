#include "ops/cuda/split_attention/split_attention.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "ops/cuda/check.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/split_attention/kernels.h"

namespace dak::cuda {
namespace {

constexpr int64_t kAlignment = 256;                         // of the arrays in the workspace
constexpr int64_t kMaxSharedBytes = 227 * kKiB - 2 * kKiB;  // less the static part, rounded up

int head_group(const AttentionArgs& args) {
    return static_cast<int>(args.num_heads / args.kv.layout.num_kv_heads);
}

void check_rows(const char* name, const void* rows, int64_t stride, int64_t width) {
    require(stride % 8 == 0 && stride >= width && reinterpret_cast<uintptr_t>(rows) % 16 == 0,
            "split attention: {} needs 16-byte aligned rows of at least {} elements, not stride {} "
            "at {}",
            name, width, stride, rows);
}

void check_args(const AttentionArgs& args) {
    const KvPageLayout& layout = args.kv.layout;
    const int64_t width = args.num_heads * layout.head_dim;
    check_rows("q", args.q, args.ldq, width);
    check_rows("out", args.out, args.ldo, width);
    require(args.batch.sequences > 0 && args.batch.lengths != nullptr &&
                args.batch.pages != nullptr && args.batch.pages_stride > 0,
            "split attention: no sequences");
    require(args.sliding_window >= 0 && args.soft_cap >= 0 && args.scale > 0,
            "split attention: sliding window {}, soft cap {} and scale {} must not be negative",
            args.sliding_window, args.soft_cap, args.scale);
}

/// Scores as arguments of 2^x: products times score_scale, then, with a cap, tanh times cap_scale.
struct ScoreScales {
    float score, cap;
};
ScoreScales score_scales(const AttentionArgs& args) {
    constexpr auto kLog2E = std::numbers::log2e_v<float>;
    if (args.soft_cap > 0) return {args.scale / args.soft_cap, args.soft_cap * kLog2E};
    return {args.scale * kLog2E, 0};
}

void launch(const void* kernel, int ctas, int threads, uint32_t shared_bytes, bool programmatic,
            cudaStream_t stream, void* params) {
    require(kernel != nullptr, "split attention: no kernel for this shape");
    require(shared_bytes <= kMaxSharedBytes, "split attention: {} of shared memory do not fit",
            format_bytes(int64_t{shared_bytes}));
    // Cheap after the first time, and needed on every device.
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          "split attention: shared memory");
    launch_kernel(kernel,
                  {.grid = dim3(static_cast<unsigned>(ctas)),
                   .threads = static_cast<unsigned>(threads),
                   .shared_bytes = shared_bytes},
                  &params, stream, programmatic, "split attention");
}

/// Offsets of a work list's arrays from its start; entries come last.
struct ListOffsets {
    int64_t totals, ranges, cuts, counts, starts, mixed, entries, end;

    ListOffsets(const AttentionShape& shape, int64_t max_ranges) {
        int64_t used = 0;
        const auto take = [&](int64_t bytes) {
            return std::exchange(used, used + round_up(bytes, kAlignment));
        };
        totals = take(sizeof(WorkTotals));
        ranges = take(max_ranges * int64_t{sizeof(WorkRange)});
        cuts = take((max_ranges + 1) * 4);
        counts = take(2 * shape.max_sequences * 4);
        starts = take(2 * (shape.max_sequences + 1) * 4);
        mixed = take(shape.max_sequences * 4);
        entries = take(2 * shape.max_sequences * shape.max_pages * int64_t{sizeof(PageEntry)});
        end = used;
    }
};

/// The same for the copies of remote pages; the pages come last.
struct CopyOffsets {
    int64_t slots, sources, flags, epoch, pages, end;

    explicit CopyOffsets(const AttentionShape& shape) {
        int64_t used = 0;
        const auto take = [&](int64_t bytes) {
            return std::exchange(used, used + round_up(bytes, kAlignment));
        };
        slots = take(shape.max_sequences * shape.max_pages * 4);
        sources = take(shape.copied_pages * 4);
        flags = take(shape.copied_pages * shape.num_kv_heads * 4);
        epoch = take(4);
        const KvPageLayout layout{shape.num_kv_heads, shape.head_dim, shape.dtype};
        pages = take(shape.copied_pages * layout.page_bytes());
        end = used;
    }
};

void check_config(const AttentionConfig& config, const AttentionWorkspace& workspace) {
    require(config.ctas <= workspace.ctas(),
            "split attention: \"{}\", but the workspace is for {} CTAs", config.to_string(),
            workspace.ctas());
    const auto within = [](int value, int low, int high) { return value >= low && value <= high; };
    require(within(config.remote_ctas, 1, config.ctas - 1) &&
                within(config.slots, 2, kMaxDecodeSlots) &&
                within(config.remote_slots, 2, config.slots) &&
                within(config.query_slots, 1, kMaxQuerySlots) &&
                within(config.result_slots, 1, kMaxResultSlots),
            "split attention: \"{}\" cannot be run", config.to_string());
}

}  // namespace

AttentionWorkspace::AttentionWorkspace(const AttentionShape& shape, const AttentionConfig& config,
                                       int windows)
    : shape_(shape), ctas_(config.ctas), max_lists_(static_cast<size_t>(windows)) {
    const int64_t slots =
        max_ranges() + (shape.remote_pages ? 2 * shape.max_sequences * shape.num_kv_heads : 0);
    const auto head_dim = static_cast<int>(shape.head_dim);
    const int64_t slot_floats = shape.num_heads / shape.num_kv_heads * part_row_floats(head_dim);
    part_bytes_ = round_up(slots * slot_floats * 4, kAlignment);
    list_bytes_ = ListOffsets(shape, max_ranges()).end;
    copies_offset_ = part_bytes_ + windows * list_bytes_ + kAlignment;
    bytes_ = copies_offset_ + (shape.copied_pages > 0 ? CopyOffsets(shape).end : 0);
    check(cudaMalloc(&memory_, static_cast<size_t>(bytes_)), "split attention: workspace");
    // Counters, and the epochs of copies.
    const int64_t after_lists = copies_offset_ - kAlignment;
    const int64_t zeroed =
        shape.copied_pages > 0 ? copies_offset_ + CopyOffsets(shape).pages : copies_offset_;
    check(cudaMemset(counters(), 0, static_cast<size_t>(zeroed - after_lists)),
          "split attention: workspace");
    // All ones say that a part is not there yet.
    check(cudaMemset(memory_, 0xff, static_cast<size_t>(part_bytes_)),
          "split attention: workspace");
}

AttentionWorkspace::AttentionWorkspace(AttentionWorkspace&& other) noexcept
    : shape_(other.shape_),
      ctas_(other.ctas_),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_),
      part_bytes_(other.part_bytes_),
      list_bytes_(other.list_bytes_),
      copies_offset_(other.copies_offset_),
      max_lists_(other.max_lists_),
      planned_(std::move(other.planned_)) {}

AttentionWorkspace::~AttentionWorkspace() {
    if (memory_ != nullptr) cudaFree(memory_);
}

uint32_t* AttentionWorkspace::counters() const {
    return reinterpret_cast<uint32_t*>(static_cast<std::byte*>(memory_) + copies_offset_ -
                                       kAlignment);
}

PageCopies AttentionWorkspace::copies() const {
    if (shape_.copied_pages == 0) return {};
    const CopyOffsets offsets(shape_);
    std::byte* base = static_cast<std::byte*>(memory_) + copies_offset_;
    return {.slots = reinterpret_cast<int32_t*>(base + offsets.slots),
            .sources = reinterpret_cast<int32_t*>(base + offsets.sources),
            .flags = reinterpret_cast<uint32_t*>(base + offsets.flags),
            .epoch = reinterpret_cast<uint32_t*>(base + offsets.epoch),
            .pages = reinterpret_cast<uint8_t*>(base + offsets.pages),
            .capacity = static_cast<int>(shape_.copied_pages),
            .slot_stride = static_cast<int>(shape_.max_pages)};
}

WorkList AttentionWorkspace::list_at(size_t index) const {
    std::byte* base =
        static_cast<std::byte*>(memory_) + part_bytes_ + static_cast<int64_t>(index) * list_bytes_;
    const ListOffsets offsets(shape_, max_ranges());
    return {.totals = reinterpret_cast<WorkTotals*>(base + offsets.totals),
            .ranges = reinterpret_cast<WorkRange*>(base + offsets.ranges),
            .cuts = reinterpret_cast<int32_t*>(base + offsets.cuts),
            .counts = reinterpret_cast<int32_t*>(base + offsets.counts),
            .starts = reinterpret_cast<int32_t*>(base + offsets.starts),
            .mixed = reinterpret_cast<int32_t*>(base + offsets.mixed),
            .entries = reinterpret_cast<PageEntry*>(base + offsets.entries),
            .entry_stride = static_cast<int>(shape_.max_pages)};
}

WorkList AttentionWorkspace::plan_list(int64_t window, int64_t sequences) {
    auto planned = std::ranges::find(planned_, window, &Planned::window);
    if (planned == planned_.end()) {
        require(planned_.size() < max_lists_,
                "split attention: the workspace is for {} sliding windows, {} is one more",
                max_lists_, window);
        planned = planned_.insert(planned, {window, sequences});
    }
    planned->sequences = sequences;
    return list_at(static_cast<size_t>(planned - planned_.begin()));
}

WorkList AttentionWorkspace::list(int64_t window, int64_t sequences) const {
    const auto planned = std::ranges::find(planned_, window, &Planned::window);
    require(planned != planned_.end() && planned->sequences == sequences,
            "split attention: no plan for sliding window {} and {} sequences", window, sequences);
    return list_at(static_cast<size_t>(planned - planned_.begin()));
}

AttentionMachine current_attention_machine() {
    AttentionMachine machine;
    machine.sms = current_sms();
    return machine;
}

void plan_decode_attention(const AttentionArgs& args, const AttentionConfig& config,
                           AttentionWorkspace& workspace, cudaStream_t stream) {
    const AttentionBatch& batch = args.batch;
    const AttentionShape& shape = workspace.shape();
    require(batch.sequences > 0 && batch.sequences <= shape.max_sequences,
            "split attention: {} sequences, but the workspace is for {}", batch.sequences,
            shape.max_sequences);
    check_config(config, workspace);
    PlanParams params{};
    params.lengths = batch.lengths;
    params.pages = batch.pages;
    params.pages_stride = batch.pages_stride;
    params.list = workspace.plan_list(args.sliding_window, batch.sequences);
    params.sequences = static_cast<int>(batch.sequences);
    params.kv_heads = static_cast<int>(args.kv.layout.num_kv_heads);
    params.ctas = config.ctas;
    params.remote_ctas = config.remote_ctas;
    params.num_local_pages = static_cast<int>(args.kv.num_local_pages);
    params.sliding_window = static_cast<int>(args.sliding_window);
    launch_plan(params, stream);
    check(cudaGetLastError(), "split attention: plan");
}

namespace {

void check_workspace(const AttentionArgs& args, const AttentionWorkspace& workspace) {
    const KvPageLayout& layout = args.kv.layout;
    const AttentionShape& shape = workspace.shape();
    require(layout.head_dim == shape.head_dim && layout.num_kv_heads == shape.num_kv_heads &&
                args.num_heads == shape.num_heads && layout.dtype == shape.dtype,
            "split attention: the workspace is for other heads than this cache has");
    require(args.batch.sequences <= shape.max_sequences,
            "split attention: {} sequences, but the workspace is for {}", args.batch.sequences,
            shape.max_sequences);
}

}  // namespace

void decode_attention(const AttentionArgs& args, const AttentionConfig& config,
                      const AttentionWorkspace& workspace, cudaStream_t stream, bool programmatic) {
    check_args(args);
    const KvPageLayout& layout = args.kv.layout;
    check_workspace(args, workspace);
    check_config(config, workspace);
    require(args.kv.remote == nullptr || workspace.shape().remote_pages,
            "split attention: the workspace is for a cache without remote pages");
    const ScoreScales scales = score_scales(args);
    DecodeAttentionParams params{};
    params.q = args.q;
    params.out = args.out;
    params.ldq = args.ldq;
    params.ldo = args.ldo;
    params.local = reinterpret_cast<const uint8_t*>(args.kv.local);
    params.remote = reinterpret_cast<const uint8_t*>(args.kv.remote);
    params.list = workspace.list(args.sliding_window, args.batch.sequences);
    params.parts = workspace.parts();
    params.taken = workspace.counters() + 2;
    params.max_ranges = workspace.max_ranges();
    params.sequences = static_cast<int>(args.batch.sequences);
    params.kv_heads = static_cast<int>(layout.num_kv_heads);
    params.head_group = head_group(args);
    params.slots = config.slots;
    params.remote_slots = config.remote_slots;
    params.query_slots = config.query_slots;
    params.result_slots = config.result_slots;
    params.score_scale = scales.score;
    params.cap_scale = scales.cap;
    params.programmatic = programmatic;
    const auto head_dim = static_cast<int>(layout.head_dim);
    const int rows = decode_rows(params.head_group);
    const void* kernel = layout.dtype == DType::kBF16
                             ? decode_attention_kernel<__nv_bfloat16>(head_dim, rows)
                             : decode_attention_kernel<__half>(head_dim, rows);
    launch(kernel, config.ctas, decode_threads(rows),
           decode_shared_bytes(head_dim, params.head_group, config.slots, config.query_slots,
                               config.result_slots),
           programmatic, stream, &params);
}

namespace {

/// Enqueues the copying of the remote pages that a prefill needs, beside which it may run.
void copy_remote_pages(const PrefillAttentionParams& prefill, const KvPageLayout& layout,
                       const AttentionConfig& config, cudaStream_t stream, bool programmatic) {
    CopyPagesParams params{};
    params.copies = prefill.copies;
    params.remote = prefill.remote;
    params.lengths = prefill.lengths;
    params.query_starts = prefill.query_starts;
    params.pages = prefill.pages;
    params.pages_stride = prefill.pages_stride;
    params.num_local_pages = prefill.num_local_pages;
    params.sequences = prefill.sequences;
    params.kv_heads = prefill.kv_heads;
    params.sliding_window = prefill.sliding_window;
    params.block_bytes = static_cast<uint32_t>(layout.block_bytes());
    params.slots = std::min(config.remote_slots + 1, kMaxDecodeSlots);
    launch(copy_pages_kernel(), config.remote_ctas, kCopyThreads,
           params.block_bytes * static_cast<uint32_t>(params.slots), programmatic, stream, &params);
}

}  // namespace

void prefill_attention(const AttentionArgs& args, int64_t max_query_tokens,
                       const AttentionConfig& config, const AttentionWorkspace& workspace,
                       cudaStream_t stream, bool programmatic) {
    check_args(args);
    check_workspace(args, workspace);
    check_config(config, workspace);
    require(args.batch.query_starts != nullptr && max_query_tokens > 0,
            "split attention: prefill needs query_starts and at least one new token");
    const KvPageLayout& layout = args.kv.layout;
    const ScoreScales scales = score_scales(args);
    PrefillAttentionParams params{};
    params.q = args.q;
    params.out = args.out;
    params.ldq = args.ldq;
    params.ldo = args.ldo;
    params.local = reinterpret_cast<const uint8_t*>(args.kv.local);
    params.remote = reinterpret_cast<const uint8_t*>(args.kv.remote);
    params.lengths = args.batch.lengths;
    params.query_starts = args.batch.query_starts;
    params.pages = args.batch.pages;
    params.pages_stride = args.batch.pages_stride;
    if (args.kv.remote != nullptr) params.copies = workspace.copies();
    params.counters = workspace.counters();
    params.num_local_pages = static_cast<int>(args.kv.num_local_pages);
    params.sequences = static_cast<int>(args.batch.sequences);
    params.kv_heads = static_cast<int>(layout.num_kv_heads);
    params.head_group = head_group(args);
    params.sliding_window = static_cast<int>(args.sliding_window);
    params.score_scale = scales.score;
    params.cap_scale = scales.cap;
    const auto head_dim = static_cast<int>(layout.head_dim);
    const void* kernel = layout.dtype == DType::kBF16
                             ? prefill_attention_kernel<__nv_bfloat16>(head_dim)
                             : prefill_attention_kernel<__half>(head_dim);
    const int64_t most_tiles =
        args.batch.sequences * layout.num_kv_heads *
        ceil_div(max_query_tokens * params.head_group, int64_t{kPrefillTileRows});
    const auto ctas = static_cast<int>(std::min(int64_t{workspace.ctas()}, most_tiles));
    if (params.copies.capacity > 0) {
        copy_remote_pages(params, layout, config, stream, programmatic);
        programmatic = true;
    }
    launch(kernel, ctas, kPrefillAttentionThreads, prefill_attention_bytes(head_dim), programmatic,
           stream, &params);
}

}  // namespace dak::cuda
