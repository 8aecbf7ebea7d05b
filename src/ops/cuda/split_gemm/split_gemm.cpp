#include "ops/cuda/split_gemm/split_gemm.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <utility>

#include "base/error.h"
#include "ops/cuda/check.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/split_gemm/kernels.h"
#include "ops/cuda/tensor_map.h"

namespace dak::cuda {
namespace {

static_assert(kGemmAtomBytes == kAtomBytes);

constexpr int64_t kMaxSharedBytes = 227 * kKiB - 2 * kKiB;  // less the static part, rounded up
// The largest partial sum of a CTA: 128 rows x 256 tokens in fp32; and one flag per consumer.
constexpr int64_t kPartialBytes = 128 * 256 * 4;
constexpr int kFlagsPerCta = 2;

uint32_t shared_bytes_of(const GemmConfig& config) {
    if (config.kernel == GemmKernel::kWide) {
        return wide_shared_bytes(config.tokens_per_tile, config.rows_per_tile);
    }
    return config.kernel == GemmKernel::kDecode
               ? decode_shared_bytes(config.tokens_per_tile, config.weight_slots, config.x_slots) +
                     (config.cluster_use == ClusterUse::kSplitK
                          ? decode_exchange_bytes(config.tokens_per_tile, config.row_tiles,
                                                  config.cluster)
                          : 0)
               : prefill_shared_bytes(config.tokens_per_tile);
}

const void* kernel_of(const GemmConfig& config, DType dtype) {
    const bool bf16 = dtype == DType::kBF16;
    if (config.kernel == GemmKernel::kDecode) {
        return bf16 ? decode_kernel<__nv_bfloat16>(config.tokens_per_tile, config.row_tiles)
                    : decode_kernel<__half>(config.tokens_per_tile, config.row_tiles);
    }
    if (config.kernel == GemmKernel::kWide) {
        return bf16 ? wide_kernel<__nv_bfloat16>(config.tokens_per_tile, config.rows_per_tile)
                    : wide_kernel<__half>(config.tokens_per_tile, config.rows_per_tile);
    }
    return bf16 ? prefill_kernel<__nv_bfloat16>(config.tokens_per_tile, config.ctas_per_worker())
                : prefill_kernel<__half>(config.tokens_per_tile, config.ctas_per_worker());
}

void check_args(const GemmArgs& args) {
    const PackedShape& w = args.weight.shape;
    require(
        args.ldx % 8 == 0 && args.ldx >= w.cols && reinterpret_cast<uintptr_t>(args.x) % 16 == 0,
        "split GEMM: x needs 16-byte aligned rows of at least {} elements, not stride {} at {}",
        w.cols, args.ldx, args.x);
    const int64_t most_features =
        args.epilogue.gated ? round_up(w.rows, 2 * kAtomRows) / 2 : w.rows;
    require(args.out_features > 0 && args.out_features <= most_features,
            "split GEMM: {} output features from a weight of {} rows", args.out_features, w.rows);
    require(args.ldy >= args.out_features, "split GEMM: rows of y are {} apart but {} long",
            args.ldy, args.out_features);
    require(args.epilogue.residual == nullptr || args.epilogue.ld_residual >= args.out_features,
            "split GEMM: rows of the residual are {} apart but {} long", args.epilogue.ld_residual,
            args.out_features);
}

void check_norms(const GemmArgs& args, const GemmConfig& config) {
    const GemmEpilogue& e = args.epilogue;
    if (!e.norm_before && !e.norm_after) return;
    require(config.kernel == GemmKernel::kDecode && args.tokens <= kMaxFoldedTokens,
            "split GEMM: a norm cannot be folded into \"{}\"", config.to_string());
    if (e.norm_before) {
        require(e.norm_before->scaled == args.x && e.norm_before->width == args.weight.shape.cols,
                "split GEMM: x is not what the folded norm of {} elements before it stored",
                e.norm_before->width);
        require(e.norm_before->kind == NormKind::kRms || e.norm_before->weight_sums != nullptr,
                "split GEMM: a folded layer norm needs the sums of the weight's rows");
    }
    if (e.norm_after) {
        require(!e.gated && !args.fp32_output && e.norm_after->width == args.out_features,
                "split GEMM: a folded norm of {} elements cannot follow {} of another kind",
                e.norm_after->width, args.out_features);
    }
}

WeightView weight_view(const SplitTensor& weight) {
    return {reinterpret_cast<const uint8_t*>(weight.remote),
            reinterpret_cast<const uint8_t*>(weight.local), weight.remote_atoms,
            static_cast<int>(weight.shape.k_atoms()), static_cast<int>(weight.shape.row_tiles())};
}

NormParams norm_params(const std::optional<FoldedNorm>& norm) {
    if (!norm) return {};
    return {.weight = norm->weight,
            .weight_sums = norm->weight_sums,
            .assumed = norm->assumed,
            .found = norm->found,
            .scaled = norm->scaled,
            .moments = reinterpret_cast<float2*>(norm->moments),
            .ld = norm->ld,
            .width = static_cast<int>(norm->width),
            .eps = norm->eps,
            .centred = norm->kind == NormKind::kLayer};
}

EpilogueParams epilogue_params(const GemmArgs& args, bool tensor_store) {
    const GemmEpilogue& e = args.epilogue;
    return {.y = args.y,
            .bias = e.bias,
            .residual = e.residual,
            .ldy = args.ldy,
            .ld_residual = e.ld_residual,
            .tokens = static_cast<int>(args.tokens),
            .out_features = static_cast<int>(args.out_features),
            .scale = e.scale,
            .activation = e.activation,
            .gated = e.gated,
            .fp32_output = args.fp32_output,
            .plain = e.scale == 1.0f && e.bias == nullptr && e.activation == Activation::kNone &&
                     !e.gated && e.residual == nullptr,
            .tensor_store = tensor_store,
            .norm_before = norm_params(e.norm_before),
            .norm_after = norm_params(e.norm_after)};
}

GemmScratch scratch_of(const GemmWorkspace& workspace) {
    return {static_cast<float4*>(workspace.partials()), workspace.flags()};
}

DecodeParams decode_params(const GemmArgs& args, const GemmConfig& config,
                           const GemmWorkspace& workspace) {
    return {.weight = weight_view(args.weight),
            .epilogue = epilogue_params(args, false),
            .scratch = scratch_of(workspace),
            .line = work_line(shape_of(args), config),
            .x_sharers = config.ctas_per_worker(),
            .weight_slots = config.weight_slots,
            .remote_slots = config.remote_slots,
            .x_slots = config.x_slots,
            .remote_last = config.remote_last,
            .early_weights = config.early_weights};
}

PrefillParams prefill_params(const GemmArgs& args, const GemmConfig& config,
                             const GemmWorkspace& workspace, bool tensor_store) {
    const GemmShape shape = shape_of(args);
    const RowBlocks blocks = row_blocks(shape, config);
    const int groups = token_tiles(shape, config);
    const int local = blocks.total - blocks.remote;
    return {.weight = weight_view(args.weight),
            .epilogue = epilogue_params(args, tensor_store),
            .scratch = scratch_of(workspace),
            .remote_tiles = {blocks.remote, groups, config.group},
            .local_tiles = {local, groups, config.group},
            .line = work_line(shape, config),
            .whole_tiles = local * groups - config.streamed_tiles,
            .remote_stages = config.remote_slots,
            .evict_first = config.evict_first,
            .early_weights = config.early_weights};
}

void launch(const void* kernel, const GemmConfig& config, int threads, bool programmatic,
            cudaStream_t stream, void** params) {
    const uint32_t shared_bytes = shared_bytes_of(config);
    require(kernel != nullptr, "split GEMM: no kernel for \"{}\"", config.to_string());
    require(shared_bytes <= kMaxSharedBytes, "split GEMM: \"{}\" needs {} of shared memory",
            config.to_string(), format_bytes(int64_t{shared_bytes}));
    // Cheap after the first time, and needed on every device.
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          "split GEMM: shared memory");
    launch_kernel(kernel,
                  {.grid = dim3(static_cast<unsigned>(config.ctas())),
                   .threads = static_cast<unsigned>(threads),
                   .shared_bytes = shared_bytes,
                   .cluster = static_cast<unsigned>(config.cluster)},
                  params, stream, programmatic, "split GEMM: launch");
}

int clusters_at_once(int cluster) {
    GemmConfig config;
    config.kernel = GemmKernel::kPrefill;
    config.tokens_per_tile = 256;
    config.cluster = cluster;
    config.cluster_use = ClusterUse::kWeights;
    const void* kernel = kernel_of(config, DType::kBF16);
    const uint32_t shared_bytes = shared_bytes_of(config);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          "split GEMM: shared memory");
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    cudaLaunchConfig_t launch{};
    launch.gridDim = dim3(static_cast<unsigned>(cluster));
    launch.blockDim = dim3(kPrefillThreads);
    launch.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    launch.attrs = &attribute;
    launch.numAttrs = 1;
    int clusters = 0;
    check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &launch), "split GEMM: occupancy");
    return clusters;
}

}  // namespace

GemmShape shape_of(const GemmArgs& args) {
    return {args.tokens, args.weight.shape, args.epilogue.gated,
            args.staged ? 0 : args.weight.remote_atoms};
}

GemmWorkspace::GemmWorkspace(const GemmMachine& machine)
    : ctas_(machine.sms), flag_offset_(machine.sms * kPartialBytes) {
    const int64_t bytes = flag_offset_ + int64_t{sizeof(uint32_t)} * machine.sms * kFlagsPerCta;
    check(cudaMalloc(&memory_, static_cast<size_t>(bytes)), "split GEMM workspace");
    check(cudaMemset(flags(), 0, static_cast<size_t>(bytes - flag_offset_)),
          "split GEMM workspace");
}

GemmWorkspace::GemmWorkspace(GemmWorkspace&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      ctas_(other.ctas_),
      flag_offset_(other.flag_offset_) {}

GemmWorkspace::~GemmWorkspace() {
    if (memory_ != nullptr) cudaFree(memory_);
}

uint32_t* GemmWorkspace::flags() const {
    return reinterpret_cast<uint32_t*>(static_cast<std::byte*>(memory_) + flag_offset_);
}

GemmMachine current_gemm_machine() {
    GemmMachine machine;
    machine.sms = current_sms();
    machine.clusters_of_2 = clusters_at_once(2);
    machine.clusters_of_4 = clusters_at_once(4);
    return machine;
}

void split_gemm(const GemmArgs& args, const GemmConfig& config, const GemmWorkspace& workspace,
                cudaStream_t stream, bool programmatic) {
    check_args(args);
    check_norms(args, config);
    require(config.ctas() <= workspace.ctas(),
            "split GEMM: \"{}\" has more CTAs than can run at once ({})", config.to_string(),
            workspace.ctas());
    const PackedShape& w = args.weight.shape;
    require(config.kernel != GemmKernel::kWide ||
                (!args.epilogue.gated && (args.staged || args.weight.remote_atoms == 0)),
            "split GEMM: \"{}\" computes neither gated weights nor reads of a remote tier",
            config.to_string());
    CUtensorMap x_map =
        tensor_map(w.dtype, args.x, args.tokens, w.cols, args.ldx, config.tokens_per_tile);
    const void* kernel = kernel_of(config, w.dtype);
    if (config.kernel == GemmKernel::kDecode) {
        DecodeParams params = decode_params(args, config, workspace);
        void* pointers[] = {&x_map, &params};
        launch(kernel, config, kDecodeThreads, programmatic, stream, pointers);
        return;
    }
    // Results leave in steps of 16 bytes.
    const bool tensor_store = !args.fp32_output && args.ldy % 8 == 0 &&
                              args.out_features % 8 == 0 &&
                              reinterpret_cast<uintptr_t>(args.y) % 16 == 0;
    CUtensorMap y_map =
        tensor_store ? tensor_map(w.dtype, args.y, args.tokens, args.out_features, args.ldy, 64)
                     : x_map;
    PrefillParams params = prefill_params(args, config, workspace, tensor_store);
    if (config.kernel == GemmKernel::kWide) {
        void* pointers[] = {&x_map, &params};
        launch(kernel, config, kPrefillThreads, programmatic, stream, pointers);
        return;
    }
    void* pointers[] = {&x_map, &y_map, &params};
    launch(kernel, config, kPrefillThreads, programmatic, stream, pointers);
}

}  // namespace dak::cuda
