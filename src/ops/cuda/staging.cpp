#include "ops/cuda/staging.h"

#include "base/error.h"
#include "base/units.h"

namespace dak::cuda {

StagingRing::StagingRing(int64_t slot_bytes, int slots)
    : slot_bytes_(round_up(slot_bytes, kAtomBytes)), slots_(static_cast<size_t>(slots)) {
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, static_cast<size_t>(bytes()));
    require(status == cudaSuccess,
            "staging ring: the GPU refused {} ({}); leave more of its memory free or use the "
            "direct transport",
            format_bytes(bytes()), cudaGetErrorString(status));
    memory_ = static_cast<std::byte*>(memory);
    for (size_t i = 0; i < slots_.size(); ++i) {
        slots_[i].memory = memory_ + static_cast<int64_t>(i) * slot_bytes_;
    }
}

StagingRing::~StagingRing() { cudaFree(memory_); }

void StagingRing::begin(cudaStream_t stream) {
    check(cudaEventRecord(fork_, stream), "staging ring");
    check(cudaStreamWaitEvent(copies_, fork_), "staging ring");
    for (Slot& slot : slots_) slot.in_use = false;
    next_ = 0;
}

SplitTensor StagingRing::stage(const SplitTensor& weight, cudaStream_t stream) {
    require(weight.remote_bytes() <= slot_bytes_, "staging ring: {} to stage in slots of {}",
            format_bytes(weight.remote_bytes()), format_bytes(slot_bytes_));
    const Slot& slot = slots_[next_];
    if (slot.in_use) check(cudaStreamWaitEvent(copies_, slot.released), "staging ring");
    check(cudaMemcpyAsync(slot.memory, weight.remote, static_cast<size_t>(weight.remote_bytes()),
                          cudaMemcpyDefault, copies_),
          "staging a weight");
    check(cudaEventRecord(slot.copied, copies_), "staging ring");
    check(cudaStreamWaitEvent(stream, slot.copied), "staging ring");
    SplitTensor staged = weight;
    staged.remote = slot.memory;
    return staged;
}

void StagingRing::release(cudaStream_t stream) {
    Slot& slot = slots_[next_];
    check(cudaEventRecord(slot.released, stream), "staging ring");
    slot.in_use = true;
    next_ = (next_ + 1) % slots_.size();
}

void StagingRing::end(cudaStream_t stream) {
    check(cudaEventRecord(fork_, copies_), "staging ring");
    check(cudaStreamWaitEvent(stream, fork_), "staging ring");
}

}  // namespace dak::cuda
