#include "ops/cuda/small_ops/sample.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/small_ops/sample_params.h"

namespace dak::cuda {
namespace {

constexpr int64_t kCtasPerSm = 2;  // all that an SM has registers for
/// Slices small enough that so many share an SM's memory.
constexpr int64_t kSmallSlice = 20'480;
/// Of the tokens of a slice, so many are usually above the guess from which filters start.
constexpr int64_t kGatheredTokens = 1280;

int64_t slice_of(int64_t vocab, int64_t cluster) { return round_up(ceil_div(vocab, cluster), 4); }

/// As many SMs for each sequence as there are, as long as all of them are drawn at once.
int64_t choose_cluster(const SampleArgs& args, int64_t ctas_at_once) {
    int64_t cluster = kMaxSampleCluster;
    while (cluster > 1 && args.sequences * cluster > ctas_at_once &&
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
    const int64_t ctas_at_once = kCtasPerSm * current_sms();
    const int64_t cluster = choose_cluster(args, ctas_at_once);
    const int64_t slice = slice_of(args.vocab, cluster);
    const int64_t room = round_up(std::max(slice / 2, cluster * kGatheredTokens), 4);
    const SampleParams params{.args = args,
                              .slice = static_cast<int>(slice),
                              .room = static_cast<int>(room),
                              .at_once = static_cast<int>(ctas_at_once / cluster)};
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.sequences * cluster)),
                            .threads = kSampleThreads,
                            .shared_bytes = static_cast<unsigned>(params.words()) * 4,
                            .cluster = static_cast<unsigned>(cluster)};
    check(cudaFuncSetAttribute(sample_kernel(), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          "sampling: shared memory");
    launch(sample_kernel(), shape, params, stream, programmatic, "sampling");
}

}  // namespace dak::cuda
