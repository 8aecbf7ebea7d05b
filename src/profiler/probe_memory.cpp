#include "profiler/probe_memory.h"

#include <utility>

#include "base/error.h"
#include "ops/cuda/check.h"
#include "ops/cuda/small_ops/fill_random.h"

namespace dak::cuda {

namespace {

constexpr int64_t kFillCols = 8192;
constexpr int64_t kFillRowBytes = 2 * kFillCols;
constexpr float kDeviation = 0.01f;  // that of a weight

}  // namespace

ProbeMemory::Region::Region(Arena arena_in, cudaStream_t stream) : arena(std::move(arena_in)) {
    base = arena.allocate(arena.capacity_bytes());
    SplitTensor all;
    all.shape = {arena.capacity_bytes() / kFillRowBytes / kAtomRows * kAtomRows, kFillCols,
                 DType::kBF16};
    all.local = base;
    capacity = all.shape.bytes();
    fill_random({.hash = 1, .deviation = kDeviation, .rows = all.shape.rows, .parts = 1}, all,
                stream);
    check(cudaStreamSynchronize(stream), "filling memory to measure with");
}

std::byte* ProbeMemory::Region::take(int64_t bytes) {
    require(bytes <= capacity, "profile: {} wanted of {}", format_bytes(bytes),
            format_bytes(capacity));
    if (used + bytes > capacity) used = 0;
    std::byte* const memory = base + used;
    used += round_up(bytes, kAtomBytes);
    return memory;
}

ProbeMemory::ProbeMemory(const std::string& remote, int64_t local_bytes, int64_t remote_bytes,
                         cudaStream_t stream)
    : local_(Arena::device("GPU memory to measure with", local_bytes), stream),
      remote_(Arena::remote(remote, "remote memory to measure with", remote_bytes), stream) {}

SplitTensor ProbeMemory::weight(const PackedShape& shape, int64_t remote_atoms) {
    SplitTensor tensor{shape, remote_atoms, nullptr, nullptr};
    tensor.local = local(tensor.local_bytes());
    tensor.remote = remote(tensor.remote_bytes());
    return tensor;
}

}  // namespace dak::cuda
