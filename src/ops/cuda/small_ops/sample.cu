#include <cooperative_groups.h>

#include "base/random.h"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/small_ops/sample_params.h"
#include "ops/sampling/rules.h"

// One cluster of CTAs a sequence; each holds a slice of the vocabulary in shared memory, so logits
// are read from memory once.
//
// A token's rank is a 64-bit number: its logit's order, then the lower id first. Ranks differ, so
// "the k likeliest" and "the likeliest that reach p" are all tokens from some rank on, which is
// found by bisection: the cluster counts the tokens above a pivot. A CTA of whose tokens few are
// above the lower bound lists them and goes on with these; when few of the cluster's are left
// between the bounds, they are compared with each other. Probabilities are added as integers, whose
// sums do not depend on the order.

namespace dak::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kWarps = kSampleThreads / 32;
constexpr int kMaxPartials = kMaxSampleCluster * kWarps;
/// Tokens that are compared with each other instead of bisected, by one thread each.
constexpr unsigned kFewTokens = 256;
static_assert(kFewTokens <= kSampleThreads);
/// Tokens that a CTA has room to list.
constexpr unsigned kListTokens = 2048;
/// Probability 1 of the likeliest token as an integer: 2^18 tokens of it can be added.
constexpr float kOne = 0x1p44f;
/// Pivots by value; then, should these have converged too slowly, by the middle of the ranks.
constexpr int kValuePivots = 48;

constexpr uint32_t kSeen = uint32_t{1} << 31;  // a token of the history, beside its count

/// A monotone map of floats that are not NaN to integers.
__device__ __forceinline__ uint32_t order_of(float value) {
    const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 becomes 0
    return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}
__device__ __forceinline__ float value_of(uint32_t order) {
    return __uint_as_float(order & 0x80000000u ? order ^ 0x80000000u : ~order);
}
__device__ __forceinline__ uint64_t rank_of(uint32_t order, uint32_t token) {
    return uint64_t{order} << 32 | static_cast<uint32_t>(~token);
}
__device__ __forceinline__ uint32_t order_part(uint64_t rank) {
    return static_cast<uint32_t>(rank >> 32);
}
__device__ __forceinline__ int32_t token_of(uint64_t rank) {
    return static_cast<int32_t>(~static_cast<uint32_t>(rank));
}
__device__ __forceinline__ uint32_t minus_infinity() {
    return order_of(-__int_as_float(0x7f800000));
}

/// Tokens of the cluster from some rank on.
struct Tally {
    uint64_t mass = 0;
    uint64_t count = 0;
    unsigned own = 0;  ///< how many are this CTA's
};
/// The two sums or maxima that a round of the cluster makes.
struct alignas(16) Partial {
    uint64_t a;
    uint64_t b;
};
struct Sum {
    static __device__ __forceinline__ uint64_t of(uint64_t x, uint64_t y) { return x + y; }
};
struct Max {
    static __device__ __forceinline__ uint64_t of(uint64_t x, uint64_t y) { return x > y ? x : y; }
};

template <typename Op>
__device__ __forceinline__ Partial over_warp(Partial p) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        p.a = Op::of(p.a, __shfl_xor_sync(~0u, p.a, step));
        p.b = Op::of(p.b, __shfl_xor_sync(~0u, p.b, step));
    }
    return p;
}

/// Inclusive sum over the lanes up to this one.
__device__ __forceinline__ uint64_t prefix_sum(uint64_t value) {
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (unsigned step = 1; step < 32; step *= 2) {
        const uint64_t below = __shfl_up_sync(~0u, value, step);
        if (lane >= step) value += below;
    }
    return value;
}

struct SampleShared {
    Partial partials[2][kMaxPartials];  ///< of all warps of the cluster, in the order of tokens
    uint64_t found[kFewTokens];         ///< ranks of this CTA's few tokens
    uint64_t few[kFewTokens];           ///< of the cluster's
    uint64_t amounts[kFewTokens];
    uint64_t threshold;
    unsigned found_count;
    uint16_t list[kListTokens];  ///< places in the slice, in the order of tokens
    unsigned list_counts[kWarps];
};

class Sampler {
  public:
    __device__ __forceinline__ Sampler(const SampleParams& p, SampleShared& shared, uint32_t* words)
        : p_(p),
          shared_(shared),
          words_(words),
          cluster_(cg::this_cluster()),
          cta_(static_cast<int>(cluster_.block_rank())),
          ctas_(static_cast<int>(cluster_.num_blocks())),
          sequence_(static_cast<int>(blockIdx.x) / ctas_),
          begin_(cta_ * p.slice),
          count_(max(0, min(p.slice, static_cast<int>(p.args.vocab) - begin_))) {}

    __device__ __forceinline__ void run() {
        const SampleRequest request = p_.args.requests[sequence_];
        if (request.row < 0) return;
        const ops::Sampling& rules = request.sampling;
        if (ops::has_penalties(rules) && request.length > 0) count_history(request);
        const Partial best = read_logits(request);
        if (best.b != 0 || best.a == 0) {
            finish(request, -1, best.b != 0 ? SampleStatus::kNan : SampleStatus::kImpossible);
            return;
        }
        const int32_t best_token = token_of(best.a);
        max_ = rules.temperature == 0.0f ? 0.0f : value_of(order_part(best.a)) / rules.temperature;
        if (rules.temperature == 0.0f || isinf(max_)) {
            finish(request, best_token, SampleStatus::kDrawn);
            return;
        }
        min_probability_ = rules.min_p;
        draw(request, filter(rules), best_token);
    }

  private:
    /// words_[i] = how often token begin_ + i was generated, with kSeen if it is in the history.
    __device__ __forceinline__ void count_history(const SampleRequest& request) {
        for (int i = threadIdx.x; i < p_.slice; i += kSampleThreads) words_[i] = 0;
        __syncthreads();
        const int32_t* history = p_.args.history + sequence_ * p_.args.history_stride;
        for (int i = threadIdx.x; i < request.length; i += kSampleThreads) {
            const int at = history[i] - begin_;
            if (at < 0 || at >= count_) continue;
            if (i >= request.prompt_length) atomicAdd(&words_[at], 1u);
            atomicOr(&words_[at], kSeen);
        }
        __syncthreads();
    }

    /// Keeps the orders of logit / temperature in words_, unless greedy. Returns the highest rank
    /// by logit, 0 if all are -inf, and whether any is NaN.
    __device__ __forceinline__ Partial read_logits(const SampleRequest& request) {
        const ops::Sampling rules = request.sampling;
        const bool penalties = ops::has_penalties(rules) && request.length > 0;
        const float* row = p_.args.logits + request.row * p_.args.ld + begin_;
        float best = -__int_as_float(0x7f800000);
        int best_at = -1;  // the first of equals
        bool nan = false;
        // Four tokens from i on, of which `some` exist.
        const auto take = [&](int i, float4 four, int some) {
            float logits[4] = {four.x, four.y, four.z, four.w};
            auto* words = reinterpret_cast<uint4*>(words_ + i);
            if (penalties) {
                const uint4 history = *words;
                const uint32_t of[4] = {history.x, history.y, history.z, history.w};
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    if (of[j] == 0) continue;
                    logits[j] = ops::penalised(rules, logits[j], of[j] & ~kSeen);
                }
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (j >= some) {
                    logits[j] = -__int_as_float(0x7f800000);  // no token: never a candidate
                    continue;
                }
                nan |= isnan(logits[j]);
                if (logits[j] > best) {
                    best = logits[j];
                    best_at = i + j;
                }
            }
            if (rules.temperature == 0.0f) return;
            *words = make_uint4(
                order_of(logits[0] / rules.temperature), order_of(logits[1] / rules.temperature),
                order_of(logits[2] / rules.temperature), order_of(logits[3] / rules.temperature));
        };
        constexpr int kUnroll = 8;
        constexpr int kStep = kSampleThreads * 4;
        // Rows are whole vectors long, padding included.
        for (int i = threadIdx.x * 4; i < count_; i += kUnroll * kStep) {
            float4 four[kUnroll];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                if (i + u * kStep < count_) {
                    four[u] = *reinterpret_cast<const float4*>(row + i + u * kStep);
                }
            }
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                const int some = count_ - (i + u * kStep);
                if (some > 0) take(i + u * kStep, four[u], some);
            }
        }
        const uint64_t rank = best_at < 0 ? 0 : rank_of(order_of(best), begin_ + best_at);
        return over_cluster<Max>({rank, nan ? uint64_t{1} : uint64_t{0}});
    }

    /// Every warp's partial goes to every CTA; one barrier, then all add up for themselves.
    template <typename Op>
    __device__ __forceinline__ Partial over_cluster(Partial mine) {
        mine = over_warp<Op>(mine);
        const int lane = static_cast<int>(threadIdx.x) % 32;
        Partial* slot = &shared_.partials[phase_][cta_ * kWarps + threadIdx.x / 32];
        if (lane < ctas_) *cluster_.map_shared_rank(slot, lane) = mine;
        cluster_.sync();
        const Partial* all = shared_.partials[phase_];
        Partial total{0, 0};
        for (int i = lane; i < ctas_ * kWarps; i += 32) {
            total.a = Op::of(total.a, all[i].a);
            total.b = Op::of(total.b, all[i].b);
        }
        phase_ ^= 1;  // nobody writes this round's partials before the next round is over
        return over_warp<Op>(total);
    }

    /// How likely a token is beside the likeliest, 0 to 1.
    __device__ __forceinline__ float probability(uint32_t order) const {
        return expf(value_of(order) - max_);
    }
    static __device__ __forceinline__ uint64_t as_mass(float probability) {
        return __float2ull_rz(probability * kOne);
    }

    /// Whether a token may be drawn and its rank is `lowest` or higher.
    __device__ __forceinline__ bool is_from(int i, uint32_t order, uint64_t lowest) const {
        return rank_of(order, begin_ + i) >= lowest && order != minus_infinity();
    }

    /// Mass and number of the tokens from rank `lowest` on, without those of logit -inf.
    __device__ __forceinline__ Tally tally(uint64_t lowest) {
        Partial sum{0, 0};
        if (listed_ >= 0) {
            for_candidates([&](int i, uint32_t order) {
                if (!is_from(i, order, lowest)) return;
                sum.a += as_mass(probability(order));
                sum.b += 1;
            });
            return tally_of(sum);
        }
        for (int i = threadIdx.x * 4; i < count_; i += kSampleThreads * 4) {
            const uint4 four = *reinterpret_cast<const uint4*>(words_ + i);
            const uint32_t orders[4] = {four.x, four.y, four.z, four.w};
            bool in[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) in[j] = is_from(i + j, orders[j], lowest);
            if (!(in[0] || in[1] || in[2] || in[3])) continue;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const uint64_t mass = as_mass(probability(orders[j]));
                sum.a += in[j] ? mass : 0;
                sum.b += in[j] ? 1 : 0;
            }
        }
        return tally_of(sum);
    }
    __device__ __forceinline__ Tally tally_of(Partial sum) {
        const Partial* own = &shared_.partials[phase_][cta_ * kWarps];
        const Partial total = over_cluster<Sum>(sum);
        const unsigned lane = threadIdx.x % 32;
        const auto count = static_cast<unsigned>(lane < kWarps ? own[lane].b : 0);
        return {total.a, total.b, __reduce_add_sync(~0u, count)};
    }

    /// visit(place in the slice, order) for this CTA's tokens, or those listed.
    template <typename Visit>
    __device__ __forceinline__ void for_candidates(Visit&& visit) const {
        const int count = candidates();
        for (int c = threadIdx.x; c < count; c += kSampleThreads) {
            const int i = place_of(c);
            visit(i, words_[i]);
        }
    }
    __device__ __forceinline__ int candidates() const { return listed_ < 0 ? count_ : listed_; }
    __device__ __forceinline__ int place_of(int candidate) const {
        return listed_ < 0 ? candidate : shared_.list[candidate];
    }

    /// A thread's share of `total` things, contiguous and in the order of threads. Of odd length,
    /// so that the threads of a warp find them in different banks.
    __device__ __forceinline__ void thread_share(int total, int& first, int& last) const {
        const int share = (total + kSampleThreads - 1) / kSampleThreads | 1;
        first = min(total, static_cast<int>(threadIdx.x) * share);
        last = min(total, first + share);
    }

    /// Lists this CTA's tokens from rank `lowest` on, at most kListTokens.
    __device__ __forceinline__ void list_candidates(uint64_t lowest) {
        const unsigned lane = threadIdx.x % 32;
        const unsigned warp = threadIdx.x / 32;
        int first, last;
        thread_share(count_, first, last);
        unsigned own = 0;
        for (int i = first; i < last; ++i) own += is_from(i, words_[i], lowest);
        const auto up_to_this = static_cast<unsigned>(prefix_sum(own));
        if (lane == 31) shared_.list_counts[warp] = up_to_this;
        __syncthreads();
        const unsigned others = lane < kWarps ? shared_.list_counts[lane] : 0;
        unsigned at = __reduce_add_sync(~0u, lane < warp ? others : 0) + up_to_this - own;
        listed_ = static_cast<int>(__reduce_add_sync(~0u, others));
        for (int i = first; i < last; ++i) {
            if (is_from(i, words_[i], lowest)) shared_.list[at++] = static_cast<uint16_t>(i);
        }
        __syncthreads();
    }

    /// The lowest rank that top-k and top-p keep.
    __device__ __forceinline__ uint64_t filter(const ops::Sampling& rules) {
        uint64_t lowest = 0;
        const bool by_mass = rules.top_p < 1.0f;
        if (rules.top_k <= 0 && !by_mass) return lowest;
        Tally all = tally(lowest);
        if (rules.top_k > 0 && static_cast<uint64_t>(rules.top_k) < all.count) {
            lowest = select<false>(lowest, all, static_cast<uint64_t>(rules.top_k));
            if (by_mass) all = tally(lowest);
        }
        if (by_mass) {
            const double wanted = ceil(double{rules.top_p} * static_cast<double>(all.mass));
            lowest = select<true>(lowest, all, max(uint64_t{1}, static_cast<uint64_t>(wanted)));
        }
        return lowest;
    }

    template <bool kByMass>
    static __device__ __forceinline__ uint64_t amount(const Tally& tally) {
        return kByMass ? tally.mass : tally.count;
    }

    /// The rank with which the tokens from the top on first reach `target` in mass or number.
    /// `reach` is the tally from `low` on, and no less than the target.
    template <bool kByMass>
    __device__ __forceinline__ uint64_t select(uint64_t low, Tally reach, uint64_t target) {
        if (amount<kByMass>(reach) < target) return low;  // rounding of the target
        uint64_t high = rank_of(order_of(max_) + 1, ~0u);
        Tally above;  // the tally from `high` on, less than the target
        float distance = 4.0f;
        bool bounded = false;
        for (int round = 0; reach.count - above.count > kFewTokens; ++round) {
            list_when_few(low, reach);
            const uint64_t middle = low + (high - low) / 2;
            uint64_t pivot = middle;
            if (round < kValuePivots) {
                const float value =
                    bounded ? 0.5f * value_of(order_part(low)) + 0.5f * value_of(order_part(high))
                            : max_ - distance;
                pivot = rank_of(order_of(value), ~0u);
                distance *= 2.0f;
                if (pivot <= low || pivot >= high) {
                    pivot = middle;
                    bounded = true;
                }
            }
            const Tally sum = tally(pivot);
            if (amount<kByMass>(sum) >= target) {
                low = pivot;
                reach = sum;
                bounded = true;
            } else {
                high = pivot;
                above = sum;
            }
        }
        list_when_few(low, reach);
        return select_of_few<kByMass>(low, high, target - amount<kByMass>(above));
    }

    /// What is below the lower bound will not be kept.
    __device__ __forceinline__ void list_when_few(uint64_t low, const Tally& reach) {
        if (listed_ < 0 && reach.own <= kListTokens) list_candidates(low);
    }

    /// The same where at most kFewTokens lie between the bounds.
    template <bool kByMass>
    __device__ __forceinline__ uint64_t select_of_few(uint64_t low, uint64_t high,
                                                      uint64_t target) {
        if (threadIdx.x == 0) shared_.found_count = 0;
        __syncthreads();
        for_candidates([&](int i, uint32_t order) {
            const uint64_t rank = rank_of(order, begin_ + i);
            if (is_from(i, order, low) && rank < high) {
                shared_.found[atomicAdd(&shared_.found_count, 1u)] = rank;
            }
        });
        cluster_.sync();
        // Thread t takes the t-th of all CTAs' lists.
        unsigned total = 0;
        uint64_t mine = 0;
        bool taken = false;
        for (int cta = 0; cta < ctas_; ++cta) {
            const unsigned count = *cluster_.map_shared_rank(&shared_.found_count, cta);
            const unsigned at = threadIdx.x - total;
            if (threadIdx.x >= total && at < count) {
                mine = cluster_.map_shared_rank(shared_.found, cta)[at];
                taken = true;
            }
            total += count;
        }
        uint64_t amount = 0;
        if (taken) {
            amount = kByMass ? as_mass(probability(order_part(mine))) : 1;
            shared_.few[threadIdx.x] = mine;
            shared_.amounts[threadIdx.x] = amount;
        }
        if (threadIdx.x == 0) shared_.threshold = low;
        __syncthreads();
        if (taken) {
            uint64_t before = 0;
            for (unsigned i = 0; i < total; ++i) {
                if (shared_.few[i] > mine) before += shared_.amounts[i];
            }
            if (before < target && target <= before + amount) shared_.threshold = mine;
        }
        cluster_.sync();  // the lists have been read
        return shared_.threshold;
    }

    /// Mass of a candidate in the draw.
    __device__ __forceinline__ uint64_t kept_mass(int candidate, uint64_t lowest) const {
        const int i = place_of(candidate);
        const uint32_t order = words_[i];
        if (rank_of(order, begin_ + i) < lowest) return 0;
        const float p = probability(order);
        return p >= min_probability_ ? as_mass(p) : 0;
    }

    /// Lays the kept tokens' masses end to end in the order of their ids and takes the one at a
    /// random place.
    __device__ __forceinline__ void draw(const SampleRequest& request, uint64_t lowest,
                                         int32_t best_token) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int warp = static_cast<int>(threadIdx.x) / 32;
        int first, last;
        thread_share(candidates(), first, last);
        Partial sum{0, 0};
        for (int c = first; c < last; ++c) sum.a += kept_mass(c, lowest);
        const Partial* partials = shared_.partials[phase_];
        const uint64_t total = over_cluster<Sum>(sum).a;
        if (total == 0) {
            finish(request, best_token, SampleStatus::kDrawn);
            return;
        }
        const auto number = static_cast<uint64_t>(request.length - request.prompt_length);
        const double place =
            uniform_value(request.sampling.seed, number) * static_cast<double>(total);
        const uint64_t target = min(static_cast<uint64_t>(place), total - 1);
        uint64_t before = 0;
        for (int i = lane; i < cta_ * kWarps + warp; i += 32) before += partials[i].a;
        before = over_warp<Sum>({before, 0}).a;
        const uint64_t end = before + prefix_sum(sum.a);
        const unsigned reached = __ballot_sync(~0u, end > target);
        if (target < before || reached == 0) return;
        // The thread whose share the place falls into; the warp goes through it together.
        const int owner = __ffs(static_cast<int>(reached)) - 1;
        before = __shfl_sync(~0u, end - sum.a, owner);
        first = __shfl_sync(~0u, first, owner);
        last = __shfl_sync(~0u, last, owner);
        for (int c = first; c < last; c += 32) {
            const int mine = c + lane;
            const uint64_t here = before + prefix_sum(mine < last ? kept_mass(mine, lowest) : 0);
            const unsigned found = __ballot_sync(~0u, here > target);
            if (found != 0) {
                if (lane == __ffs(static_cast<int>(found)) - 1) {
                    store(request, begin_ + place_of(mine), SampleStatus::kDrawn);
                }
                return;
            }
            before = __shfl_sync(~0u, here, 31);
        }
    }

    __device__ __forceinline__ void finish(const SampleRequest& request, int32_t token,
                                           SampleStatus status) const {
        if (cta_ == 0 && threadIdx.x == 0) store(request, token, status);
    }
    __device__ __forceinline__ void store(const SampleRequest& request, int32_t token,
                                          SampleStatus status) const {
        const SampleArgs& args = p_.args;
        args.tokens[sequence_] = token;
        args.status[sequence_] = status;
        if (args.history != nullptr && token >= 0 && request.length < args.history_stride) {
            args.history[sequence_ * args.history_stride + request.length] = token;
        }
    }

    const SampleParams& p_;
    SampleShared& shared_;
    uint32_t* words_;  ///< of this CTA's slice: history counts, then orders
    cg::cluster_group cluster_;
    int cta_, ctas_;
    int sequence_;
    int begin_, count_;  ///< this CTA's tokens
    int phase_ = 0;
    int listed_ = -1;   ///< this CTA's tokens in the list; -1: all of the slice are candidates
    float max_ = 0.0f;  ///< the largest logit / temperature
    float min_probability_ = 0.0f;
};

__global__ void __launch_bounds__(kSampleThreads, 2)
    sample_rows(const __grid_constant__ SampleParams p) {
    extern __shared__ __align__(16) uint32_t words[];
    __shared__ SampleShared shared;
    ptx::cluster_sync();  // no shared memory is written to before its CTA runs
    ptx::grid_wait();
    ptx::grid_launch_dependents();
    Sampler(p, shared, words).run();
}

}  // namespace

const void* sample_kernel() { return reinterpret_cast<const void*>(&sample_rows); }

}  // namespace dak::cuda
