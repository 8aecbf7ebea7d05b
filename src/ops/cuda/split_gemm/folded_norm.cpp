#include "ops/cuda/split_gemm/folded_norm.h"

#include <algorithm>

#include "base/dtype.h"
#include "base/error.h"
#include "memory/arena.h"
#include "ops/cuda/check.h"
#include "ops/cuda/split_gemm/split_gemm.h"

namespace dak::cuda {
namespace {

// A 16-bit number holds 8 or 11 of fp32's 24 bits.
constexpr int64_t kPieces = 3;

}  // namespace

std::vector<float> weight_times(const SplitTensor& weight, const std::vector<float>& vector,
                                const GemmMachine& machine, const GemmWorkspace& workspace) {
    const PackedShape& shape = weight.shape;
    require(static_cast<int64_t>(vector.size()) == shape.cols,
            "a weight of {} columns times a vector of {}", shape.cols, vector.size());
    const int64_t ldx = round_up(shape.cols, 8);
    const int64_t rows = round_up(shape.rows, 2 * kAtomRows);
    Arena arena = Arena::device("weight times vector", kPieces * (ldx * 2 + rows * 4) + kMiB);
    std::byte* x = arena.allocate(kPieces * ldx * 2);
    std::byte* y = arena.allocate(kPieces * rows * 4);

    visit_dtype(shape.dtype, [&]<typename T>(T) {
        std::vector<T> pieces(static_cast<size_t>(kPieces * ldx), from_float<T>(0.0f));
        for (size_t k = 0; k < vector.size(); ++k) {
            float rest = vector[k];
            for (int64_t piece = 0; piece < kPieces; ++piece) {
                T& part = pieces[static_cast<size_t>(piece * ldx) + k];
                part = from_float<T>(rest);
                rest -= to_float(part);
            }
        }
        check(cudaMemcpy(x, pieces.data(), pieces.size() * sizeof(T), cudaMemcpyDefault),
              "weight times vector");
    });
    const GemmArgs args{.weight = weight,
                        .x = x,
                        .ldx = ldx,
                        .tokens = kPieces,
                        .y = y,
                        .ldy = rows,
                        .out_features = shape.rows,
                        .fp32_output = true,
                        .epilogue = {}};
    split_gemm(args, choose_gemm_config(shape_of(args), machine), workspace, nullptr, false);
    std::vector<float> sums(static_cast<size_t>(kPieces * rows));
    check(cudaMemcpy(sums.data(), y, sums.size() * sizeof(float), cudaMemcpyDefault),
          "weight times vector");
    std::vector<float> product(static_cast<size_t>(shape.rows));
    for (size_t m = 0; m < product.size(); ++m) {
        double sum = 0;
        for (int64_t piece = 0; piece < kPieces; ++piece) {
            sum += double{sums[static_cast<size_t>(piece * rows) + m]};
        }
        product[m] = static_cast<float>(sum);
    }
    return product;
}

}  // namespace dak::cuda
