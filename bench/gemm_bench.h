#pragma once

#include <cublas_v2.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "measure.h"
#include "ops/cuda/split_gemm/split_gemm.h"

// What the sections of bench_gemm share: shapes, memory, contestants and result rows.

namespace dak::bench {

struct Layer {
    int64_t m, k;
    bool gated = false;
};

struct Model {
    const char* name;
    int layers;  ///< enough that a chain is far larger than L2 and runs for milliseconds
    std::vector<Layer> shapes;
};

extern const std::vector<Model> kModels;
extern const std::vector<Layer> kShapes;

/// Memory that the sections carve their operands out of, and the rows they write.
class Bench {
  public:
    /// `remote`: "host" or "peer:N". Measures the link.
    Bench(const std::string& remote, int64_t device_gib, int64_t remote_gib);

    /// The next weight, of random values, with `ratio` of its atoms remote. Memory is reused from
    /// the start when it has been gone through.
    cuda::GemmArgs product(Layer layer, double ratio, int64_t tokens, int parity);
    SplitTensor weight(Layer layer, double ratio);

    void cublas(Layer layer, const void* weight, int64_t tokens, int parity) const;

    const std::string remote;
    cuda::GemmMachine machine;  ///< remote_gbps is measured, the window the profile's
    double staged_gbps = 0;     ///< what the copy engine moves from the remote tier
    cuda::GemmWorkspace workspace;
    cudaStream_t stream = nullptr;
    void* activations[4] = {};  ///< two inputs, two outputs
    int rounds = 7;
    Json rows = Json::array();

  private:
    void measure_link();

    Arena local_, remote_;
    std::byte *local_base_ = nullptr, *remote_base_ = nullptr;
    int64_t local_used_ = 0, remote_used_ = 0;
    cublasHandle_t blas_ = nullptr;
    void* blas_workspace_ = nullptr;
};

/// One line of the result file; bytes are those of one operation.
struct Row {
    std::string section;
    int64_t m = 0, n = 0, k = 0;
    double ratio = 0;
    std::string tier = "local";
    double us = 0;
    double local_bytes = 0, remote_bytes = 0, link_bytes = 0;
    std::string ref = {};
    double ref_us = 0;
    std::string config = {};
};
void add_row(Bench& bench, const Row& row);

cuda::GemmShape shape_for(Layer layer, int64_t tokens, double ratio = 0);

/// Bytes of a layer's weight, and the remote ones among them.
double weight_bytes(Layer layer);
double remote_bytes(Layer layer, double ratio);

/// How often to repeat a product so that its weights are cold and the graph runs for milliseconds.
int operations_for(const Bench& bench, Layer layer, int64_t tokens, double ratio = 0);

/// One product over rotating weights.
Contestant repeated(Bench& bench, const std::string& name, Layer layer, double ratio,
                    int64_t tokens, int operations, const cuda::GemmConfig& config,
                    bool programmatic = true);

/// The same through the staging ring.
Contestant repeated_staged(Bench& bench, Layer layer, double ratio, int64_t tokens, int operations);

/// cuBLAS on row-major weights, in local memory or, with `mapped`, read from the remote tier in
/// place.
Contestant repeated_cublas(Bench& bench, Layer layer, int64_t tokens, int operations,
                           bool mapped = false);

// The sections.
void bench_shapes(Bench& bench, const std::vector<int64_t>& tokens);
void bench_variants(Bench& bench, const std::vector<int64_t>& tokens);
void bench_chain_variants(Bench& bench, const std::vector<int64_t>& tokens);
void bench_chains(Bench& bench, const std::vector<int64_t>& tokens);
void bench_splits(Bench& bench);
void bench_window(Bench& bench);
void bench_congestion(Bench& bench);
void bench_remote_workers(Bench& bench);
void bench_multicast(Bench& bench);
void bench_alignment(Bench& bench);
void bench_amplification(Bench& bench, const std::vector<int64_t>& tokens);
void bench_zero_copy(Bench& bench);

}  // namespace dak::bench
