#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "memory/split_tensor.h"
#include "ops/cuda/handles.h"

namespace dak::cuda {

/// The staged transport: the copy engine brings the remote part of weights into a ring of slots in
/// device memory, ahead of the kernels that read them, so that every remote byte crosses the link
/// once whatever reads it how often. Works the same under stream capture.
///
///     ring.begin(stream);
///     for each product:  args.weight = ring.stage(weight, stream);  args.staged = true;
///                        split_gemm(args, ...);  ring.release(stream);
///     ring.end(stream);
class StagingRing {
  public:
    /// `slot_bytes` is the most that one stage() brings. With one slot copies cannot run ahead; 2
    /// to 4 suffice. Throws Error when the device has no room.
    StagingRing(int64_t slot_bytes, int slots);
    StagingRing(const StagingRing&) = delete;
    StagingRing& operator=(const StagingRing&) = delete;
    ~StagingRing();

    /// Copies may start once what `stream` holds now has finished.
    void begin(cudaStream_t stream);

    /// Enqueues the copy of the weight's remote part into the next slot, for when the slot's last
    /// reader is done, and lets `stream` wait for it. Returns the weight with its remote part
    /// there.
    SplitTensor stage(const SplitTensor& weight, cudaStream_t stream);

    /// The newest slot's readers are the work that `stream` holds now.
    void release(cudaStream_t stream);

    /// Joins the copies into `stream`.
    void end(cudaStream_t stream);

    int64_t bytes() const { return slot_bytes_ * static_cast<int64_t>(slots_.size()); }

  private:
    struct Slot {
        std::byte* memory = nullptr;
        Event copied;
        Event released;
        bool in_use = false;  ///< `released` has been recorded since begin()
    };

    int64_t slot_bytes_;
    std::vector<Slot> slots_;
    size_t next_ = 0;
    Stream copies_;
    Event fork_;
    std::byte* memory_ = nullptr;
};

}  // namespace dak::cuda
