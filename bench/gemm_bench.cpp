#include "gemm_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "fill.h"
#include "ops/cuda/check.h"
#include "ops/cuda/staging.h"
#include "remote_tier.h"

namespace dak::bench {

using namespace dak::cuda;

const std::vector<Model> kModels = {
    {"OPT-30B", 10, {{21504, 7168}, {7168, 7168}, {28672, 7168}, {7168, 28672}}},
    {"OPT-6.7B", 32, {{12288, 4096}, {4096, 4096}, {16384, 4096}, {4096, 16384}}},
    {"Llama-2-7B", 32, {{12288, 4096}, {4096, 4096}, {22016, 4096, true}, {4096, 11008}}},
    {"Llama-3-8B", 32, {{6144, 4096}, {4096, 4096}, {28672, 4096, true}, {4096, 14336}}},
};

const std::vector<Layer> kShapes = {{7168, 7168},  {21504, 7168}, {28672, 7168}, {7168, 28672},
                                    {4096, 4096},  {12288, 4096}, {22016, 4096}, {4096, 11008},
                                    {16384, 4096}, {4096, 16384}, {6144, 4096},  {28672, 4096},
                                    {4096, 14336}};

namespace {

constexpr double kDensePeakTflops = 989;     // H200 datasheet, bf16
constexpr int64_t kColdBytes = 400'000'000;  // weights rotated through: many times the L2
constexpr int64_t kMaxTokens = 4096, kMaxWidth = 28672;
constexpr size_t kBlasWorkspace = 64 << 20;

std::byte* take(std::byte* base, int64_t capacity, int64_t& used, int64_t bytes) {
    require(bytes <= capacity, "benchmark: {} wanted of {}", format_bytes(bytes),
            format_bytes(capacity));
    if (used + bytes > capacity) used = 0;
    std::byte* memory = base + used;
    used += round_up(bytes, Arena::kAlignment);
    return memory;
}

GemmMachine machine_of(const HardwareProfile& profile) {
    GemmMachine machine = current_gemm_machine();
    machine.local_gbps = profile.local_gbps;
    machine.remote_gbps = profile.remote_direct_gbps;
    machine.window_bytes = profile.window_bytes;
    return machine;
}

}  // namespace

Bench::Bench(const std::string& remote_tier, int64_t device_gib, int64_t remote_gib)
    : remote(remote_tier),
      machine(machine_of(remote_profile(remote))),
      workspace(machine),
      local_(Arena::device("weights", device_gib * kGiB)),
      remote_(Arena::remote(remote, "offloaded weights", remote_gib * kGiB)) {
    check(cudaStreamCreate(&stream), "stream");
    local_base_ = local_.allocate(local_.capacity_bytes());
    remote_base_ = remote_.allocate(remote_.capacity_bytes());
    fill_random(local_base_, local_.capacity_bytes() / 2, 1, 1.0f / 85, stream);
    for (int64_t at = 0; at < remote_.capacity_bytes(); at += kGiB) {
        check(cudaMemcpyAsync(remote_base_ + at, local_base_,
                              static_cast<size_t>(std::min(kGiB, remote_.capacity_bytes() - at)),
                              cudaMemcpyDefault, stream),
              "filling remote memory");
    }
    for (void*& buffer : activations) {
        check(cudaMalloc(&buffer, kMaxTokens * kMaxWidth * 2), "activations");
        fill_random(buffer, kMaxTokens * kMaxWidth, 7, 1.0f, stream);
    }
    require(cublasCreate(&blas_) == CUBLAS_STATUS_SUCCESS, "cuBLAS does not start");
    cublasSetStream(blas_, stream);
    check(cudaMalloc(&blas_workspace_, kBlasWorkspace), "cuBLAS workspace");
    cublasSetWorkspace(blas_, blas_workspace_, kBlasWorkspace);
    check(cudaStreamSynchronize(stream), "filling memory");
    measure_link();
}

void Bench::measure_link() {
    const Layer layer{7168, 7168};
    std::vector<Contestant> contestants;
    for (const int ctas : {4, 8, 16, 32}) {
        GemmConfig config = choose_gemm_config(shape_for(layer, 8, 1.0), machine);
        config.remote_workers = ctas;
        contestants.push_back(repeated(*this, "stream", layer, 1.0, 8, 4, config));
    }
    constexpr int64_t kPiece = 64 * kMiB;
    contestants.push_back({"copy engine", 8,
                           [this](int i, cudaStream_t copies) {
                               check(cudaMemcpyAsync(local_base_ + i * kPiece,
                                                     remote_base_ + i * kPiece, kPiece,
                                                     cudaMemcpyDefault, copies),
                                     "copying");
                           },
                           nullptr});
    const std::vector<double> us = measure(contestants, stream);
    machine.remote_gbps = weight_bytes(layer) / *std::min_element(us.begin(), us.end() - 1) / 1e3;
    staged_gbps = static_cast<double>(kPiece) / us.back() / 1e3;
    std::printf("remote tier %s: SMs read %.1f GB/s, the copy engine %.1f; window %s\n",
                remote.c_str(), machine.remote_gbps, staged_gbps,
                format_bytes(machine.window_bytes).c_str());
}

SplitTensor Bench::weight(Layer layer, double ratio) {
    SplitTensor tensor;
    tensor.shape = {layer.m, layer.k, DType::kBF16};
    tensor.remote_atoms = std::llround(ratio * static_cast<double>(tensor.shape.atoms()));
    tensor.local = take(local_base_, local_.capacity_bytes(), local_used_, tensor.local_bytes());
    tensor.remote =
        take(remote_base_, remote_.capacity_bytes(), remote_used_, tensor.remote_bytes());
    return tensor;
}

GemmArgs Bench::product(Layer layer, double ratio, int64_t tokens, int parity) {
    GemmArgs args;
    args.weight = weight(layer, ratio);
    args.x = activations[parity];
    args.ldx = layer.k;
    args.tokens = tokens;
    args.y = activations[2 + parity];
    args.out_features = layer.gated ? layer.m / 2 : layer.m;
    args.ldy = args.out_features;
    args.epilogue.gated = layer.gated;
    args.epilogue.activation = layer.gated ? Activation::kSilu : Activation::kNone;
    return args;
}

void Bench::cublas(Layer layer, const void* weight, int64_t tokens, int parity) const {
    const float one = 1.0f, zero = 0.0f;
    const cublasStatus_t status = cublasGemmEx(
        blas_, CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(layer.m), static_cast<int>(tokens),
        static_cast<int>(layer.k), &one, weight, CUDA_R_16BF, static_cast<int>(layer.k),
        activations[parity], CUDA_R_16BF, static_cast<int>(layer.k), &zero, activations[2 + parity],
        CUDA_R_16BF, static_cast<int>(layer.m), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    require(status == CUBLAS_STATUS_SUCCESS, "cuBLAS: status {}", static_cast<int>(status));
}

/// Four significant digits: more is noise.
static double rounded(double value) {
    return value == 0 ? 0 : std::stod(fmt::format("{:.4g}", value));
}

void add_row(Bench& bench, const Row& r) {
    const double flops = 2.0 * static_cast<double>(r.m * r.k) * static_cast<double>(r.n);
    const double light_speed = std::max({r.local_bytes / bench.machine.local_gbps / 1e3,
                                         r.remote_bytes / bench.machine.remote_gbps / 1e3,
                                         flops / kDensePeakTflops / 1e6});
    bench.rows.push_back({{"section", r.section},
                          {"m", r.m},
                          {"n", r.n},
                          {"k", r.k},
                          {"dtype", "bf16"},
                          {"ratio", r.ratio},
                          {"tier", r.tier},
                          {"us", rounded(r.us)},
                          {"gbps_local", rounded(r.local_bytes / r.us / 1e3)},
                          {"gbps_remote", rounded(r.remote_bytes / r.us / 1e3)},
                          {"tflops", rounded(flops / r.us / 1e6)},
                          {"light_speed_us", rounded(light_speed)},
                          {"ref", r.ref},
                          {"ref_us", rounded(r.ref_us)},
                          {"link_bytes", r.link_bytes},
                          {"offloaded_bytes", r.remote_bytes},
                          {"config", r.config}});
}

GemmShape shape_for(Layer layer, int64_t tokens, double ratio) {
    GemmShape shape;
    shape.tokens = tokens;
    shape.weight = {layer.m, layer.k, DType::kBF16};
    shape.gated = layer.gated;
    shape.direct_remote_atoms = std::llround(ratio * static_cast<double>(shape.weight.atoms()));
    return shape;
}

double weight_bytes(Layer layer) { return static_cast<double>(layer.m * layer.k) * 2; }

double remote_bytes(Layer layer, double ratio) {
    return static_cast<double>(shape_for(layer, 1, ratio).direct_remote_atoms * kAtomBytes);
}

int operations_for(const Bench& bench, Layer layer, int64_t tokens, double ratio) {
    const double bytes = weight_bytes(layer);
    const double us = std::max({bytes / 4e6, bytes * static_cast<double>(tokens) / 700e6,
                                remote_bytes(layer, ratio) / bench.machine.remote_gbps / 1e3}) +
                      2;
    const int cold = ratio > 0 ? 2 : static_cast<int>(kColdBytes / static_cast<int64_t>(bytes)) + 1;
    return std::max({2, cold, std::min(100, static_cast<int>(3000 / us))});
}

Contestant repeated(Bench& bench, const std::string& name, Layer layer, double ratio,
                    int64_t tokens, int operations, const GemmConfig& config, bool programmatic) {
    auto products = std::make_shared<std::vector<GemmArgs>>();
    for (int i = 0; i < operations; ++i) {
        products->push_back(bench.product(layer, ratio, tokens, i % 2));
    }
    return {name, operations,
            [&bench, products, config, programmatic](int i, cudaStream_t stream) {
                split_gemm((*products)[static_cast<size_t>(i)], config, bench.workspace, stream,
                           programmatic);
            },
            nullptr};
}

Contestant repeated_staged(Bench& bench, Layer layer, double ratio, int64_t tokens,
                           int operations) {
    auto products = std::make_shared<std::vector<GemmArgs>>();
    for (int i = 0; i < operations; ++i) {
        products->push_back(bench.product(layer, ratio, tokens, i % 2));
        products->back().staged = true;
    }
    auto ring = std::make_shared<StagingRing>(products->front().weight.remote_bytes(), 4);
    const GemmConfig config = choose_gemm_config(shape_of(products->front()), bench.machine);
    return {"staged", operations,
            [&bench, products, ring, config](int i, cudaStream_t stream) {
                if (i == 0) ring->begin(stream);
                GemmArgs args = (*products)[static_cast<size_t>(i)];
                args.weight = ring->stage(args.weight, stream);
                split_gemm(args, config, bench.workspace, stream);
                ring->release(stream);
            },
            [ring](cudaStream_t stream) { ring->end(stream); }};
}

Contestant repeated_cublas(Bench& bench, Layer layer, int64_t tokens, int operations, bool mapped) {
    auto weights = std::make_shared<std::vector<const void*>>();
    for (int i = 0; i < operations; ++i) {
        const SplitTensor weight = bench.weight(layer, mapped ? 1.0 : 0.0);
        weights->push_back(mapped ? weight.remote : weight.local);
    }
    return {"cuBLAS", operations,
            [&bench, weights, layer, tokens](int i, cudaStream_t) {
                bench.cublas(layer, (*weights)[static_cast<size_t>(i)], tokens, i % 2);
            },
            nullptr};
}

}  // namespace dak::bench
