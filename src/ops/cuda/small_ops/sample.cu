#include <cooperative_groups.h>

#include <cfloat>
#include <climits>

#include "base/random.h"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/small_ops/sample_params.h"
#include "ops/sampling/rules.h"

// One cluster of CTAs a sequence; each holds a slice of the vocabulary in shared memory, so logits
// are read from memory once. Each warp works on a contiguous part of the slice. While a sequence is
// drawn, the logits of one that will run here later are on their way to the L2.
//
// A token's rank is a 64-bit number: its logit's order, then the lower id first. Ranks differ, so
// "the k likeliest" and "the likeliest that reach p" are all tokens from some rank on. The maxima
// of single threads tell a rank that a few thousand tokens exceed; when these hold what is asked
// for, the first CTA collects them and goes on alone. The rank is then found by bisection: tokens
// above a pivot are counted, and when few are left between the bounds, these are compared with each
// other. Probabilities are added as integers, whose sums do not depend on the order.

namespace dak::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kWarps = kSampleThreads / 32;
constexpr int kMaxPartials = kMaxSampleCluster * kWarps;
/// Tokens that a warp reads together, four a lane.
constexpr int kStep = 128;
/// Tokens that are compared with each other instead of bisected, by one thread each.
constexpr unsigned kFewTokens = 128;
static_assert(kFewTokens <= kSampleThreads);
/// Tokens that a warp can hand to the first CTA.
constexpr unsigned kListTokens = 128;
/// Probability 1, that of the likeliest token, as an integer.
constexpr float kOne = 0x1p31f;
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
__device__ __forceinline__ float minus_infinity() { return -__int_as_float(0x7f800000); }
/// The lowest rank of the tokens with a logit of `value` or more.
__device__ __forceinline__ uint64_t rank_from(float value) { return rank_of(order_of(value), ~0u); }
/// Of every token that may be drawn: those of logit -inf may not.
__device__ __forceinline__ uint64_t lowest_rank() { return rank_from(-FLT_MAX); }

/// The larger, or NaN if one is.
__device__ __forceinline__ float max_or_nan(float a, float b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/// Called for few tokens, from many places.
__device__ __noinline__ float penalised(const ops::Sampling& rules, float logit,
                                        uint32_t generated) {
    return ops::penalised(rules, logit, generated);
}

/// Tokens from some rank on.
struct Tally {
    uint64_t mass = 0;
    uint64_t count = 0;
    uint64_t mass_of_all = 0;  ///< of the tokens below, too
};
/// What a round adds up or takes the maximum of.
struct Partial {
    uint64_t a = 0;
    uint64_t b = 0;
    unsigned count = 0;  ///< always added
};
struct Candidate {
    uint32_t logit;  ///< a float's bits
    uint32_t token;
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
    p.count = __reduce_add_sync(~0u, p.count);
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
    Candidate lists[kWarps][kListTokens];
    uint64_t found[kFewTokens];  ///< ranks of this CTA's few tokens
    uint64_t few[kFewTokens];    ///< of the cluster's
    uint64_t amounts[kFewTokens];
    uint64_t threshold;
    unsigned found_count;
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
          begin_(cta_ * p.slice) {
        hold(max(0, min(p.slice, static_cast<int>(p.args.vocab) - begin_)));
    }

    /// Between cluster_arrive and its wait, which this does.
    __device__ __forceinline__ void run() {
        const SampleRequest request = p_.args.requests[sequence_];
        const int later_row = row_for_later();
        if (request.row < 0) {
            prefetch(later_row);
            ptx::cluster_wait();
            return;
        }
        const ops::Sampling& rules = request.sampling;
        Partial best;
        if (ops::has_penalties(rules) && request.length > 0) {
            count_history(request);
            best = read_logits<true>(request);
        } else {
            best = read_logits<false>(request);
        }
        prefetch(later_row);
        ptx::cluster_wait();
        best = over_cluster<Max>(best);
        if (best.a == 0) {
            finish(request, -1, SampleStatus::kImpossible);
            return;
        }
        max_ = value_of(order_part(best.a));
        if (isnan(max_)) {
            finish(request, -1, SampleStatus::kNan);
            return;
        }
        const int32_t best_token = token_of(best.a);
        if (rules.temperature == 0.0f || isinf(max_ / rules.temperature)) {
            finish(request, best_token, SampleStatus::kDrawn);
            return;
        }
        constexpr float kLog2E = 1.442695041f;
        scale_ = fminf(kLog2E / rules.temperature, FLT_MAX);
        const uint64_t lowest = filter(rules, max(best.b, lowest_rank()));
        if (!retired()) draw(request, lowest, best_token);
    }

  private:
    /// The words from the first on are `count` tokens' logits, shared evenly by the warps.
    __device__ __forceinline__ void hold(int count) {
        const int each = (count + kWarps * 4 - 1) / (kWarps * 4) * 4;
        count_ = count;
        first_ = min(count, warp() * each);
        last_ = min(count, first_ + each);
    }

    /// The row of the logits that will be drawn from here when this one is done; negative: none.
    __device__ __forceinline__ int row_for_later() const {
        const int64_t later = int64_t{sequence_} + p_.at_once;
        return threadIdx.x == 0 && count_ > 0 && later < p_.args.sequences
                   ? p_.args.requests[later].row
                   : -1;
    }
    __device__ __forceinline__ void prefetch(int row) const {
        if (row >= 0) {
            ptx::prefetch_l2(p_.args.logits + row * p_.args.ld + begin_,
                             static_cast<uint32_t>(count_ + 3) / 4 * 16);
        }
        __syncwarp();  // whole warps wait for the cluster
    }

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

    /// Keeps the logits in words_, unless greedy. Returns this thread's highest rank, NaN above all
    /// and 0 if all logits are -inf, and a rank that some token of every thread of the warp has or
    /// exceeds.
    template <bool kPenalties>
    __device__ __forceinline__ Partial read_logits(const SampleRequest& request) {
        const ops::Sampling& rules = request.sampling;
        const float* row = p_.args.logits + request.row * p_.args.ld + begin_;
        float best = minus_infinity();
        int best_at = -1;  // the first of equals
        const auto take = [&](int i, float4 four) {
            float logits[4] = {four.x, four.y, four.z, four.w};
            auto* words = reinterpret_cast<uint4*>(words_ + i);
            if constexpr (kPenalties) {
                const uint4 history = *words;
                const uint32_t of[4] = {history.x, history.y, history.z, history.w};
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    if (of[j] == 0) continue;
                    logits[j] = penalised(rules, logits[j], of[j] & ~kSeen);
                }
            }
            if (i + 4 > count_) {
#pragma unroll
                for (int j = 1; j < 4; ++j) {
                    if (i + j >= count_) logits[j] = minus_infinity();  // no token
                }
            }
            const float largest =
                max_or_nan(max_or_nan(logits[0], logits[1]), max_or_nan(logits[2], logits[3]));
            if (!(largest <= best)) {
                best = max_or_nan(best, largest);
                best_at = i + (logits[0] == largest   ? 0
                               : logits[1] == largest ? 1
                               : logits[2] == largest ? 2
                                                      : 3);
            }
            if (rules.temperature == 0.0f) return;
            *words = make_uint4(__float_as_uint(logits[0]), __float_as_uint(logits[1]),
                                __float_as_uint(logits[2]), __float_as_uint(logits[3]));
        };
        constexpr int kUnroll = kPenalties ? 4 : 8;
        // Rows are whole vectors long, padding included.
        for (int i = first_ + lane() * 4; i < last_; i += kUnroll * kStep) {
            float4 four[kUnroll];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                if (i + u * kStep < last_) {
                    four[u] = __ldcs(reinterpret_cast<const float4*>(row + i + u * kStep));
                }
            }
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                if (i + u * kStep < last_) take(i + u * kStep, four[u]);
            }
        }
        const uint32_t order = order_of(best);
        return {best_at < 0 ? 0 : rank_of(order, static_cast<uint32_t>(begin_ + best_at)),
                rank_of(__reduce_min_sync(~0u, order), ~0u)};
    }

    static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
    static __device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / 32; }

    /// Of the CTAs that still work on the sequence.
    __device__ __forceinline__ void sync() const {
        if (ctas_ == 1) {
            __syncthreads();
        } else {
            cluster_.sync();
        }
    }

    /// Every warp's partial goes to every CTA; one barrier, then all add up for themselves.
    template <typename Op>
    __device__ __forceinline__ Partial over_cluster(Partial mine) {
        mine = over_warp<Op>(mine);
        Partial* slot = &shared_.partials[phase_][cta_ * kWarps + warp()];
        if (lane() < ctas_) *cluster_.map_shared_rank(slot, lane()) = mine;
        sync();
        const Partial* all = shared_.partials[phase_];
        Partial total;
        for (int i = lane(); i < ctas_ * kWarps; i += 32) {
            total.a = Op::of(total.a, all[i].a);
            total.b = Op::of(total.b, all[i].b);
            total.count += all[i].count;
        }
        phase_ ^= 1;  // nobody writes this round's partials before the next round is over
        return over_warp<Op>(total);
    }
    /// All warps' partials of the latest round.
    __device__ __forceinline__ const Partial* latest_partials() const {
        return shared_.partials[phase_ ^ 1];
    }

    /// How likely a token is beside the likeliest, 0 to 1.
    __device__ __forceinline__ float probability(float logit) const {
        return exp2_fast((logit - max_) * scale_);
    }
    static __device__ __forceinline__ uint32_t as_mass(float probability) {
        return __float2uint_rn(probability * kOne);
    }

    __device__ __forceinline__ float logit_at(int i) const { return __uint_as_float(words_[i]); }
    __device__ __forceinline__ uint32_t token_at(int i) const {
        return alone_ ? words_[p_.room + i] : static_cast<uint32_t>(begin_ + i);
    }

    /// A rank as this CTA compares it, without looking at ids: places are in their order.
    struct Limit {
        float value;
        int last;  ///< the last place of those with this very logit that is in

        __device__ __forceinline__ bool holds(int i, float logit) const {
            return (logit > value) | ((logit == value) & (i <= last));
        }
    };
    __device__ __forceinline__ Limit limit_of(uint64_t lowest) const {
        const uint32_t order = order_part(lowest);
        const float value = value_of(order);
        const auto token = static_cast<uint32_t>(token_of(lowest));
        // No token has the order below that of 0, which is -0.
        if (token > INT_MAX || order == order_of(0.0f) - 1) return {value, INT_MAX};
        if (!alone_) return {value, static_cast<int>(token) - begin_};
        int in = 0, out = count_;  // places up to here are, from here on are not
        while (in < out) {
            const int middle = (in + out) / 2;
            if (token_at(middle) <= token) {
                in = middle + 1;
            } else {
                out = middle;
            }
        }
        return {value, in - 1};
    }

    /// visit(place, logits) for this warp's tokens four by four, all lanes at once; a lane past the
    /// end sees logits of -inf, as does the end of the last four.
    template <typename Visit>
    __device__ __forceinline__ void for_fours(Visit&& visit) const {
#pragma unroll 1
        for (int i = first_ + lane() * 4; i - lane() * 4 < last_; i += kStep) {
            float logits[4] = {minus_infinity(), minus_infinity(), minus_infinity(),
                               minus_infinity()};
            if (i < last_) {
                const uint4 four = *reinterpret_cast<const uint4*>(words_ + i);
                logits[0] = __uint_as_float(four.x);
                logits[1] = __uint_as_float(four.y);
                logits[2] = __uint_as_float(four.z);
                logits[3] = __uint_as_float(four.w);
            }
            visit(i, logits);
        }
    }

    /// The tokens from rank `lowest` on; their mass only if asked for.
    __device__ __forceinline__ Tally tally(uint64_t lowest, bool by_mass) {
        const Limit limit = limit_of(lowest);
        Partial sum;
        for_fours([&](int i, const float(&logits)[4]) {
            bool in[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                in[j] = limit.holds(i + j, logits[j]);
                sum.count += in[j] ? 1 : 0;
            }
            if (!by_mass) return;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const uint32_t mass = as_mass(probability(logits[j]));
                sum.a += in[j] ? mass : 0;
                sum.b += mass;
            }
        });
        sum = over_cluster<Sum>(sum);
        return {sum.a, sum.count, sum.b};
    }

    /// The first CTA collects the tokens from rank `low` on, in the order of their ids, and goes on
    /// alone, if it has room. Follows tally(low).
    __device__ __forceinline__ void gather(uint64_t low, const Tally& reach) {
        const Partial* partials = latest_partials();
        const int this_warp = cta_ * kWarps + warp();
        unsigned before = 0, most = 0;
        for (int i = lane(); i < ctas_ * kWarps; i += 32) {
            most = max(most, partials[i].count);
            before += i < this_warp ? partials[i].count : 0;
        }
        most = __reduce_max_sync(~0u, most);
        if (most > kListTokens || reach.count > static_cast<unsigned>(p_.room)) return;
        before = __reduce_add_sync(~0u, before);

        const Limit limit = limit_of(low);
        Candidate* list = shared_.lists[warp()];
        unsigned listed = 0;
        for_fours([&](int i, const float(&logits)[4]) {
            bool in[4];
            unsigned at = listed;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                in[j] = limit.holds(i + j, logits[j]);
                const unsigned lanes = __ballot_sync(~0u, in[j]);
                at += __popc(lanes & ((1u << lane()) - 1));
                listed += __popc(lanes);
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (in[j]) list[at++] = {__float_as_uint(logits[j]), token_at(i + j)};
            }
        });
        cluster_.sync();  // no slice will be read again
        uint32_t* logits = cluster_.map_shared_rank(words_, 0);
        uint32_t* tokens = logits + p_.room;
        for (unsigned i = lane(); i < listed; i += 32) {
            logits[before + i] = list[i].logit;
            tokens[before + i] = list[i].token;
        }
        const auto count = static_cast<unsigned>(reach.count);
        if (cta_ == 0 && threadIdx.x < (4 - count % 4) % 4) {
            logits[count + threadIdx.x] = __float_as_uint(minus_infinity());
        }
        cluster_.sync();
        alone_ = true;
        ctas_ = 1;
        hold(static_cast<int>(count));
    }
    __device__ __forceinline__ bool retired() const { return alone_ && cta_ != 0; }

    /// Between which ranks a threshold lies.
    struct Bounds {
        uint64_t low, high;
        Tally reach;  ///< from `low` on
        Tally above;  ///< from `high` on: less than what is wanted
    };
    static __device__ __forceinline__ uint64_t amount(const Tally& tally, bool by_mass) {
        return by_mass ? tally.mass : tally.count;
    }

    /// The lowest rank that top-k and top-p keep, or one that is not above it. Starts at `guess`.
    __device__ __forceinline__ uint64_t filter(const ops::Sampling& rules, uint64_t guess) {
        bool by_mass = rules.top_k <= 0;
        if (by_mass && rules.top_p >= 1.0f) return lowest_rank();
        const auto wanted = [&](const Tally& tally) {
            if (!by_mass) return static_cast<uint64_t>(rules.top_k);
            const double mass = ceil(double{rules.top_p} * static_cast<double>(tally.mass_of_all));
            return max(uint64_t{1}, static_cast<uint64_t>(mass));
        };
        const uint64_t above_all = rank_of(order_of(max_) + 1, ~0u);

        Bounds bounds{guess, above_all, tally(guess, by_mass), {}};
        uint64_t target = wanted(bounds.reach);
        if (amount(bounds.reach, by_mass) >= target) {
            gather(guess, bounds.reach);
            if (retired()) return guess;
        } else {
            const uint64_t all = lowest_rank();
            bounds = {all, guess, tally(all, by_mass), bounds.reach};
        }
        while (true) {
            const bool drops_some = target < amount(bounds.reach, by_mass);
            if (drops_some) bounds.low = select(bounds, target, by_mass);
            if (by_mass || rules.top_p >= 1.0f) return bounds.low;
            by_mass = true;  // of what top-k has kept
            bounds = {bounds.low, above_all, tally(bounds.low, by_mass), {}};
            bounds.reach.mass_of_all = bounds.reach.mass;
            target = wanted(bounds.reach);
        }
    }

    /// The rank with which the tokens from the top on first reach `target` in mass or number.
    __device__ __forceinline__ uint64_t select(Bounds bounds, uint64_t target, bool by_mass) {
        auto& [low, high, reach, above] = bounds;
        float distance = 4.0f / scale_;
        bool bounded = low != lowest_rank();
        const float top = value_of(order_part(high));
        for (int round = 0; reach.count - above.count > kFewTokens; ++round) {
            const uint64_t middle = low + (high - low) / 2;
            uint64_t pivot = middle;
            if (round < kValuePivots) {
                const float value =
                    bounded ? 0.5f * value_of(order_part(low)) + 0.5f * value_of(order_part(high))
                            : top - distance;
                pivot = rank_from(value);
                distance *= 2.0f;
                if (pivot <= low || pivot >= high) {
                    pivot = middle;
                    bounded = true;
                }
            }
            const Tally sum = tally(pivot, by_mass);
            if (amount(sum, by_mass) >= target) {
                low = pivot;
                reach = sum;
                bounded = true;
            } else {
                high = pivot;
                above = sum;
            }
        }
        return select_of_few(low, high, target - amount(above, by_mass), by_mass);
    }

    /// The same where at most kFewTokens lie between the bounds.
    __device__ __forceinline__ uint64_t select_of_few(uint64_t low, uint64_t high, uint64_t target,
                                                      bool by_mass) {
        const Limit limit = limit_of(low);
        if (threadIdx.x == 0) shared_.found_count = 0;
        __syncthreads();
        for_fours([&](int i, const float(&logits)[4]) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (!limit.holds(i + j, logits[j])) continue;
                const uint64_t rank = rank_of(order_of(logits[j]), token_at(i + j));
                if (rank < high) shared_.found[atomicAdd(&shared_.found_count, 1u)] = rank;
            }
        });
        sync();
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
            amount = by_mass ? as_mass(probability(value_of(order_part(mine)))) : 1;
            shared_.few[threadIdx.x] = mine;
            shared_.amounts[threadIdx.x] = amount;
        }
        if (threadIdx.x == 0) shared_.threshold = low;
        __syncthreads();
        if (taken) {
            uint64_t before = 0;
#pragma unroll 4
            for (unsigned i = 0; i < total; ++i) {
                before += shared_.few[i] > mine ? shared_.amounts[i] : 0;
            }
            if (before < target && target <= before + amount) shared_.threshold = mine;
        }
        sync();  // the lists have been read
        return shared_.threshold;
    }

    /// Mass of a token in the draw.
    __device__ __forceinline__ uint32_t kept_mass(int i, float logit, const Limit& limit,
                                                  float min_p) const {
        const float p = probability(logit);
        const uint32_t mass = as_mass(p);
        return (p >= min_p) & limit.holds(i, logit) ? mass : 0;
    }

    /// Lays the kept tokens' masses end to end in the order of their ids and takes the one at a
    /// random place.
    __device__ __forceinline__ void draw(const SampleRequest& request, uint64_t lowest,
                                         int32_t best_token) {
        const float min_p = request.sampling.min_p;
        const Limit limit = limit_of(lowest);
        Partial sum;
        for_fours([&](int i, const float(&logits)[4]) {
#pragma unroll
            for (int j = 0; j < 4; ++j) sum.a += kept_mass(i + j, logits[j], limit, min_p);
        });
        const uint64_t total = over_cluster<Sum>(sum).a;
        if (total == 0) {
            finish(request, best_token, SampleStatus::kDrawn);
            return;
        }
        const auto number = static_cast<uint64_t>(request.length - request.prompt_length);
        const double place =
            uniform_value(request.sampling.seed, number) * static_cast<double>(total);
        const uint64_t target = min(static_cast<uint64_t>(place), total - 1);
        const Partial* partials = latest_partials();
        const int this_warp = cta_ * kWarps + warp();
        Partial up_to_here;
        for (int i = lane(); i < this_warp; i += 32) up_to_here.a += partials[i].a;
        uint64_t before = over_warp<Sum>(up_to_here).a;
        if (target < before || target - before >= partials[this_warp].a) return;

        // The warp that the place falls into. A lane's share is of odd length, so that the lanes
        // find theirs in different banks.
        const int share = (last_ - first_ + 31) / 32 | 1;
        int first = min(last_, first_ + lane() * share);
        int last = min(last_, first + share);
        uint64_t mass = 0;
        for (int i = first; i < last; ++i) mass += kept_mass(i, logit_at(i), limit, min_p);
        const uint64_t end = before + prefix_sum(mass);
        const int owner = __ffs(static_cast<int>(__ballot_sync(~0u, end > target))) - 1;
        before = __shfl_sync(~0u, end - mass, owner);
        first = __shfl_sync(~0u, first, owner);
        last = __shfl_sync(~0u, last, owner);
        for (int i = first; i < last; i += 32) {
            const int mine = i + lane();
            const uint64_t here =
                before +
                prefix_sum(mine < last ? kept_mass(mine, logit_at(mine), limit, min_p) : 0);
            const unsigned found = __ballot_sync(~0u, here > target);
            if (found != 0) {
                if (lane() == __ffs(static_cast<int>(found)) - 1) {
                    store(request, static_cast<int32_t>(token_at(mine)), SampleStatus::kDrawn);
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
    /// Of this CTA's slice: history counts, then logits. When alone: the gathered tokens' logits,
    /// and from p_.room on their ids.
    uint32_t* words_;
    cg::cluster_group cluster_;
    int cta_, ctas_;
    int sequence_;
    int begin_;         ///< of the slice in the vocabulary
    int count_;         ///< tokens in words_
    int first_, last_;  ///< of them, this warp's
    int phase_ = 0;
    bool alone_ = false;  ///< only the first CTA goes on
    float max_ = 0.0f;    ///< the largest logit
    float scale_ = 0.0f;  ///< log2(e) / temperature
};

__global__ void __launch_bounds__(kSampleThreads, 2)
    sample_rows(const __grid_constant__ SampleParams p) {
    extern __shared__ __align__(16) uint32_t words[];
    __shared__ SampleShared shared;
    ptx::cluster_arrive();  // no shared memory is written to before its CTA runs
    ptx::grid_wait();
    ptx::grid_launch_dependents();
    Sampler(p, shared, words).run();
}

}  // namespace

const void* sample_kernel() { return reinterpret_cast<const void*>(&sample_rows); }

}  // namespace dak::cuda
