#include "ops/cuda/split_attention/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "ops/cuda/split_attention/params.h"

namespace dak::cuda {
namespace {

// Two kernels overlap under programmatic launch, on one SM and on the link. Instances whose
// registers fill an SM have all of its shared memory.
constexpr int64_t kSharedBytesOfTwo = 110 * kKiB;
constexpr int64_t kSharedBytesOfOne = 200 * kKiB;
constexpr int kOverlappingKernels = 2;
// In flight of a remote CTA: a few of them saturate the link.
constexpr int64_t kRemoteRingBytes = 64 * kKiB;

void check_shape(const AttentionShape& shape) {
    require(shape.dtype == DType::kBF16 || shape.dtype == DType::kF16,
            "split attention: the KV cache must be bf16 or fp16, not {}", name_of(shape.dtype));
    require(serves_heads(shape.num_heads, shape.num_kv_heads, shape.head_dim),
            "split attention: no kernel for {} query heads over {} KV heads of size {}; sizes are "
            "64, 80, 96, 128, 256 and the ratio 1 to {}",
            shape.num_heads, shape.num_kv_heads, shape.head_dim, kMaxHeadGroup);
    require(shape.max_sequences > 0 && shape.max_sequences <= kMaxSequences,
            "split attention: {} sequences; at most {} at once", shape.max_sequences,
            kMaxSequences);
    require(shape.max_pages > 0, "split attention: sequences need room for at least one page");
}

}  // namespace

bool serves_heads(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim) {
    constexpr int64_t kHeadDims[] = {64, 80, 96, 128, 256};
    return std::ranges::find(kHeadDims, head_dim) != std::end(kHeadDims) && num_kv_heads > 0 &&
           num_heads > 0 && num_heads % num_kv_heads == 0 &&
           num_heads / num_kv_heads <= kMaxHeadGroup;
}

std::string AttentionConfig::to_string() const {
    return fmt::format("{} CTAs, {} of them remote ({} slots), ring {}, queries {}, results {}",
                       ctas, remote_ctas, remote_slots, slots, query_slots, result_slots);
}

AttentionConfig choose_attention_config(const AttentionShape& shape,
                                        const AttentionMachine& machine) {
    check_shape(shape);
    const auto head_dim = static_cast<int>(shape.head_dim);
    const auto group = static_cast<int>(shape.num_heads / shape.num_kv_heads);
    AttentionConfig config;
    config.ctas = machine.sms;
    // Short segments follow each other quickly where a KV head has few query heads.
    config.query_slots = group <= 2 ? 4 : 2;
    config.result_slots = group == 1 ? 4 : group == 2 ? 2 : 1;
    const int64_t block = kv_block_bytes(head_dim);
    const int64_t fixed =
        decode_shared_bytes(head_dim, group, 0, config.query_slots, config.result_slots);
    const int64_t room = decode_ctas_per_sm(head_dim, decode_rows(group)) == 2 ? kSharedBytesOfTwo
                                                                               : kSharedBytesOfOne;
    // Slots are taken in pairs of K and V; an odd one helps all the same.
    config.slots = static_cast<int>(std::min((room - fixed) / block, int64_t{kMaxDecodeSlots}));
    config.remote_slots = static_cast<int>(
        std::clamp(kRemoteRingBytes / block, int64_t{2}, static_cast<int64_t>(config.slots)));
    const int64_t in_flight = config.remote_slots * block;
    const double cta_gbps = static_cast<double>(in_flight) / machine.remote_latency_us / 1e3;
    const auto by_rate = static_cast<int64_t>(2 * machine.remote_gbps / cta_gbps) + 1;
    const int64_t by_window = machine.window_bytes / (kOverlappingKernels * in_flight);
    config.remote_ctas = static_cast<int>(
        std::clamp(std::min(by_rate, by_window), int64_t{1}, int64_t{machine.sms} / 2));
    return config;
}

}  // namespace dak::cuda
