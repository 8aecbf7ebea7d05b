#include "ops/cuda/small_ops/sample.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/small_ops/sample_params.h"

namespace dak::cuda {
namespace {

/// Slices small enough that two CTAs, all that an SM has registers for, share its memory.
constexpr int64_t kSmallSlice = 24 * 1024;

int64_t slice_of(int64_t vocab, int64_t cluster) { return round_up(ceil_div(vocab, cluster), 4); }

/// As many SMs for each sequence as there are, as long as all of them are drawn at once.
int64_t choose_cluster(const SampleArgs& args) {
    int64_t cluster = kMaxSampleCluster;
    const int64_t at_once = 2 * current_sms();
    while (cluster > 1 && args.sequences * cluster > at_once &&
           slice_of(args.vocab, cluster / 2) <= kSmallSlice) {
        cluster /= 2;
    }
    return cluster;
}

}  // namespace

void sample(const SampleArgs& args, cudaStream_t stream, bool programmatic) {
    require(args.vocab > 0 && args.vocab <= kMaxSampleVocab,
            "sampling: a vocabulary of {} tokens; at most {} can be drawn from", args.vocab,
            kMaxSampleVocab);
    require(args.ld % 4 == 0 && args.ld >= args.vocab &&
                reinterpret_cast<uintptr_t>(args.logits) % 16 == 0,
            "sampling needs 16-byte aligned rows of at least {} logits, not stride {} at {}",
            args.vocab, args.ld, static_cast<const void*>(args.logits));
    if (args.sequences == 0) return;
    const int64_t cluster = choose_cluster(args);
    const SampleParams params{.args = args,
                              .slice = static_cast<int>(slice_of(args.vocab, cluster))};
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.sequences * cluster)),
                            .threads = kSampleThreads,
                            .shared_bytes = static_cast<unsigned>(params.slice) * 4,
                            .cluster = static_cast<unsigned>(cluster)};
    check(cudaFuncSetAttribute(sample_kernel(), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          "sampling: shared memory");
    launch(sample_kernel(), shape, params, stream, programmatic, "sampling");
}

}  // namespace dak::cuda
