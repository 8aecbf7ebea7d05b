#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "memory/arena.h"
#include "memory/split_tensor.h"

namespace dak::cuda {

/// Bytes to read in a probe, in both tiers, filled with random values: zeros would draw less power
/// and flatter the rates. Hands its memory out round and round, so that what a chain reads has left
/// the L2 cache before it comes again.
class ProbeMemory {
  public:
    /// Takes memory from the current GPU and from the remote tier.
    ProbeMemory(const std::string& remote, int64_t local_bytes, int64_t remote_bytes,
                cudaStream_t stream);

    int64_t local_bytes() const { return local_.capacity; }
    int64_t remote_bytes() const { return remote_.capacity; }
    /// The next `bytes` of the tier, 8 KiB aligned. Throws Error when it has less in all.
    std::byte* local(int64_t bytes) { return local_.take(bytes); }
    std::byte* remote(int64_t bytes) { return remote_.take(bytes); }
    /// A weight whose atoms are the next ones of both tiers.
    SplitTensor weight(const PackedShape& shape, int64_t remote_atoms);

  private:
    struct Region {
        Arena arena;
        std::byte* base = nullptr;
        int64_t capacity = 0;
        int64_t used = 0;

        Region(Arena arena_in, cudaStream_t stream);
        std::byte* take(int64_t bytes);
    };

    Region local_, remote_;
};

}  // namespace dak::cuda
