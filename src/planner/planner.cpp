#include "planner/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "planner/cost.h"
#include "planner/division.h"
#include "planner/operations.h"
#include "planner/ring.h"

namespace dak {

namespace {

constexpr double kGiga = 1e9;
/// No plan has sums of sizes beyond 64 bits: neither memory nor a budget may reach an eighth.
constexpr int64_t kMostBytes = int64_t{1} << 60;

/// Refusals tell offload ratios to four decimals, sweeps to a tenth of a percent: what is given may
/// be off by half of that, and by what floating point adds.
constexpr int64_t kRatioSteps = 10'000;
constexpr double kRatioRounding = 0.5001e-3;

/// "llama-3-8b with batch 8, prompt 32, output 32"
std::string job_name(const ModelConfig& config, const Workload& workload,
                     const PlanOptions& options) {
    return fmt::format("{} with batch {}, prompt {}, output {}",
                       options.model_name.empty() ? config.architecture : options.model_name,
                       workload.batch, workload.prompt, workload.output);
}

void check(const ModelConfig& config, const Workload& workload, const Budgets& budgets,
           const PlanOptions& options) {
    require(workload.batch > 0 && workload.prompt > 0 && workload.output > 0,
            "a workload needs at least one sequence, one prompt token and one output token, not "
            "batch {}, prompt {}, output {}",
            workload.batch, workload.prompt, workload.output);
    require(workload.prompt <= config.max_position &&
                workload.output <= config.max_position - workload.prompt,
            "prompt {} and output {} exceed the model's context of {} tokens", workload.prompt,
            workload.output, config.max_position);
    require(options.prefill_chunk > 0, "the prefill chunk must be above 0, not {}",
            options.prefill_chunk);
    if (options.offload_ratio) {
        require(*options.offload_ratio >= 0 && *options.offload_ratio <= 1,
                "offload ratio {} is not between 0 and 1", *options.offload_ratio);
    }
    const double bytes = rough_bytes(config, workload, options);
    require(bytes < static_cast<double>(kMostBytes),
            "{}: {:.3g} bytes are more than can be planned; use a smaller batch or shorter prompts",
            job_name(config, workload, options), bytes);
    for (const int64_t budget : {budgets.gpu_bytes, budgets.host_bytes}) {
        require(budget >= 0 && budget < kMostBytes,
                "a memory budget must be from 0 to 2^60 bytes, not {}", budget);
    }
}

/// A way to run the workload: a transport, and how much of each operation is remote.
struct Draft {
    TransportRates rates;
    StagingPlan ring;
    std::vector<int64_t> remote_units;
    std::vector<CostCurve> curves;
    double seconds = 0;
    double gain = 0;  ///< share of the time that offloading more than needed saves
};

class Planner {
  public:
    Planner(const ModelConfig& config, const Workload& workload, const HardwareProfile& profile,
            const Budgets& budgets, const PlanOptions& options)
        : config_(config),
          workload_(workload),
          profile_(profile),
          budgets_(budgets),
          options_(options),
          operations_(model_operations(config, workload, profile, options)),
          other_(other_work(config, workload, profile, options)),
          fixed_(fixed_memory(config, workload, options)),
          division_(operations_) {}

    Plan make() const {
        if (options_.offload_ratio) check_ratio();
        std::vector<Draft> drafts;
        for (const Transport transport : {Transport::kDirect, Transport::kStaged}) {
            if (options_.transport.value_or(transport) != transport) continue;
            if (auto draft = draft_with(transport)) drafts.push_back(*std::move(draft));
        }
        if (drafts.empty()) refuse();
        const bool staged = drafts.size() > 1 && pays(drafts[1].seconds, drafts[0].seconds);
        const Draft& best = drafts[staged ? 1 : 0];
        Plan plan = describe(best);
        explain(best, drafts, plan);
        return plan;
    }

    /// The ratio up to which every remote byte makes the workload faster, when SMs read it.
    double turning_ratio() const {
        return (phases(curves_for(rates_of(Transport::kDirect, {}))).gaining +
                static_cast<double>(division_.pinned_bytes())) /
               static_cast<double>(stored_bytes());
    }

    /// The ratios between which the placement rules leave the choice.
    double least_ratio() const { return ratio_of(division_.pinned_bytes()); }
    double most_ratio() const { return ratio_of(division_.largest(stored_bytes())); }

    SweepPoint sweep_point(double ratio) const {
        SweepPoint best;
        best.fits = false;
        double best_seconds = std::numeric_limits<double>::infinity();
        for (const Transport transport : {Transport::kDirect, Transport::kStaged}) {
            if (options_.transport.value_or(transport) != transport) continue;
            const double total = ratio * static_cast<double>(stored_bytes());
            TransportRates rates = rates_of(transport, {});
            const std::vector<double> bytes = spread(curves_for(rates), total, {});
            StagingPlan ring;
            if (transport == Transport::kStaged) {
                ring = ring_for(bytes);
                rates = rates_of(ring.pieces > 0 ? transport : Transport::kDirect, ring);
            }
            const double seconds = seconds_of(bytes, rates);
            const double local = static_cast<double>(stored_bytes()) - total +
                                 static_cast<double>(fixed_.total() + ring_bytes(ring));
            const bool fits = local <= static_cast<double>(budgets_.gpu_bytes) &&
                              total <= static_cast<double>(budgets_.host_bytes);
            const bool better = fits == best.fits ? pays(seconds, best_seconds) : fits;
            if (!better) continue;
            best_seconds = seconds;
            best.offload_ratio = ratio;
            best.transport = rates.transport;
            best.fits = fits;
            best.tpot_seconds = step_time(operations_, shares_of(bytes), Phase::kDecode, rates,
                                          other_.decode_seconds)
                                    .seconds();
        }
        best.effective_bytes_per_second = step_bytes() / best.tpot_seconds;
        return best;
    }

  private:
    /// Whether staging is worth its memory: not for less than predictions are off by.
    static constexpr double kStagingGain = 0.02;
    static bool pays(double staged_seconds, double direct_seconds) {
        return staged_seconds < (1 - kStagingGain) * direct_seconds;
    }

    TransportRates rates_of(Transport transport, const StagingPlan& ring) const {
        TransportRates rates;
        rates.transport = transport;
        rates.direct = profile_.remote_direct_gbps * kGiga;
        const double piece = ring.pieces > 0 ? static_cast<double>(ring.slot_bytes)
                                             : static_cast<double>(kMaxPieceBytes);
        rates.staged = profile_.staged_at(piece) * kGiga;
        rates.write_cost = profile_.staging_write_cost;
        rates.slowdown = profile_.staging_slowdown;
        rates.contention = profile_.staging_contention;
        return rates;
    }

    std::vector<CostCurve> curves_for(const TransportRates& rates) const {
        std::vector<CostCurve> curves;
        for (const Operation& operation : operations_) {
            curves.push_back(operation.fixed_share ? CostCurve() : cost_curve(operation, rates));
        }
        return curves;
    }

    /// Bytes that do not fit the GPU beside a ring of `ring` bytes.
    int64_t overflow(int64_t ring) const {
        return std::max<int64_t>(0, stored_bytes() + fixed_.total() + ring - budgets_.gpu_bytes);
    }

    int64_t stored_bytes() const { return division_.stored_bytes(); }

    double ratio_of(int64_t bytes) const {
        return static_cast<double>(bytes) / static_cast<double>(stored_bytes());
    }

    /// Bytes that a decode step reads.
    double step_bytes() const {
        double bytes = 0;
        for (const Operation& operation : operations_) bytes += operation.decode.read_bytes;
        return bytes;
    }

    std::vector<double> shares_of(std::span<const double> remote_bytes) const {
        std::vector<double> shares;
        for (size_t i = 0; i < operations_.size(); ++i) {
            shares.push_back(remote_bytes[i] / operations_[i].stored_bytes());
        }
        return shares;
    }

    double seconds_of(std::span<const double> remote_bytes, const TransportRates& rates) const {
        return workload_seconds(operations_, shares_of(remote_bytes), rates, other_);
    }

    std::vector<double> bytes_of(const std::vector<int64_t>& units) const {
        std::vector<double> bytes;
        for (size_t i = 0; i < units.size(); ++i) {
            bytes.push_back(static_cast<double>(units[i] * operations_[i].unit_bytes));
        }
        return bytes;
    }

    /// Where `total` remote bytes belong, before rounding; with `pages`, beside so many pages.
    std::vector<double> spread(std::vector<CostCurve> curves, double total,
                               std::optional<int64_t> pages) const {
        if (options_.policy == PlanPolicy::kUniform)
            return with_fixed(division_.uniform(total, pages), pages);
        if (pages) curves.back().clear();
        const int64_t elsewhere = division_.bytes_of(pages.value_or(0), 0);
        return with_fixed(allocate_greedy(curves, total - static_cast<double>(elsewhere)), pages);
    }

    std::vector<double> with_fixed(std::vector<double> bytes, std::optional<int64_t> pages) const {
        for (size_t i = 0; i < bytes.size(); ++i) {
            const Operation& operation = operations_[i];
            if (operation.fixed_share) {
                bytes[i] = static_cast<double>(division_.pinned_units(i) * operation.unit_bytes);
            } else if (pages && i + 1 == bytes.size()) {
                bytes[i] = static_cast<double>(*pages * operation.unit_bytes);
            }
        }
        return bytes;
    }

    /// How much is to be remote, given what must be.
    double target_bytes(Draft& draft, int64_t needed) const {
        if (options_.offload_ratio) {
            const double ratio = std::clamp(*options_.offload_ratio, least_ratio(), most_ratio());
            return ratio * static_cast<double>(stored_bytes());
        }
        const auto least = static_cast<double>(std::max(needed, division_.pinned_bytes()));
        if (options_.policy == PlanPolicy::kUniform ||
            draft.rates.transport == Transport::kStaged) {
            return least;
        }
        const double most = std::min(static_cast<double>(budgets_.host_bytes),
                                     std::max(least, static_cast<double>(division_.pinned_bytes()) +
                                                         phases(draft.curves).gaining));
        const double before = seconds_of(spread(draft.curves, least, {}), draft.rates);
        const double after = seconds_of(spread(draft.curves, most, {}), draft.rates);
        draft.gain = most > least ? 1 - after / before : 0;
        return draft.gain >= options_.min_gain ? most : least;
    }

    /// Whether a given ratio's bytes are what the budgets allow, to an atom.
    bool is_possible(double target, int64_t needed) const {
        return target + kAtomBytes > static_cast<double>(needed) &&
               target - kAtomBytes < static_cast<double>(budgets_.host_bytes);
    }

    /// The best division with one transport; nothing when it does not fit.
    std::optional<Draft> draft_with(Transport transport) const {
        Draft draft;
        // The ring takes memory, which sends more bytes to the remote tier, which may want a larger
        // ring: it grows until it suffices, at most to its largest size. Where everything remote
        // stands in the ring at once, each byte of it sends another one, so that it would grow in
        // thousands of small steps: then faster.
        constexpr int kSmallSteps = 32;
        int64_t ring = 0;
        int steps = 0;
        do {
            ring = std::max(ring, ring_bytes(draft.ring));
            if (++steps > kSmallSteps) ring += ring / 16;
            draft.rates = rates_of(transport, draft.ring);
            draft.curves = curves_for(draft.rates);
            const int64_t needed = overflow(ring);
            const double target = target_bytes(draft, needed);
            if (options_.offload_ratio && !is_possible(target, needed)) return {};
            auto units = division_.round(
                target, {needed, budgets_.host_bytes},
                [&](double total, std::optional<int64_t> pages) {
                    return spread(draft.curves, total, pages);
                },
                [&](const std::vector<int64_t>& u) {
                    return seconds_of(bytes_of(u), draft.rates);
                });
            if (!units) return {};
            draft.remote_units = *std::move(units);
            draft.ring = StagingPlan();
            if (transport == Transport::kStaged) {
                draft.ring = ring_for(bytes_of(draft.remote_units));
            }
        } while (ring_bytes(draft.ring) > ring);
        if (draft.ring.pieces == 0) draft.rates = rates_of(Transport::kDirect, {});
        draft.seconds = seconds_of(bytes_of(draft.remote_units), draft.rates);
        return draft;
    }

    /// The ring through which the copy engine would bring what it can of the remote bytes.
    StagingPlan ring_for(std::span<const double> remote_bytes) const {
        int64_t step = 0, largest = 0;
        for (size_t i = 0; i < operations_.size(); ++i) {
            if (!operations_[i].staged) continue;
            const auto bytes = static_cast<int64_t>(remote_bytes[i]);
            step += bytes;
            largest = std::max(largest, bytes);
        }
        return plan_ring(step, largest);
    }

    /// A given ratio must be one that the rules leave open.
    void check_ratio() const {
        const double least = least_ratio();
        const double most = most_ratio();
        require(*options_.offload_ratio > least - kRatioRounding &&
                    *options_.offload_ratio < most + kRatioRounding,
                "the placement rules allow offload ratios from {:.4f} to {:.4f}, not {:.4g}", least,
                most, *options_.offload_ratio);
    }

    /// Whether the workload can be run within `budgets` with this offload ratio, or with any.
    bool fits(const Budgets& budgets, std::optional<double> ratio = {}) const {
        Planner other = *this;
        other.budgets_ = budgets;
        other.options_.offload_ratio = ratio;
        return other.draft_with(options_.transport.value_or(Transport::kDirect)).has_value();
    }

    /// The smallest value above `low` for which `holds` is true, as it then stays; it holds at
    /// `high`.
    template <typename Predicate>
    static int64_t first(int64_t low, int64_t high, const Predicate& holds) {
        while (high - low > 1) {
            const int64_t middle = low + (high - low) / 2;
            (holds(middle) ? high : low) = middle;
        }
        return high;
    }

    /// The smallest GPU budget with the given one for the remote tier, and the other way round;
    /// nothing when no budget would do. The direct transport needs no ring, so that its budgets are
    /// sums; for the staged one they are the least.
    int64_t smallest_gpu_bytes() const {
        const int64_t host = budgets_.host_bytes;
        const int64_t direct = stored_bytes() + fixed_.total() - division_.largest(host);
        if (options_.transport != Transport::kStaged || fits({direct, host})) return direct;
        return first(direct, direct + stored_bytes(), [&](int64_t bytes) {
            return fits({bytes, host});
        });
    }
    std::optional<int64_t> smallest_host_bytes() const {
        const int64_t gpu = budgets_.gpu_bytes;
        const auto direct = division_.smallest(overflow(0));
        if (!direct || options_.transport != Transport::kStaged || fits({gpu, *direct})) {
            return direct;
        }
        if (!fits({gpu, stored_bytes()})) return {};
        return first(*direct, stored_bytes(), [&](int64_t bytes) { return fits({gpu, bytes}); });
    }

    /// Of a given ratio that does not fit although another would.
    [[noreturn]] void refuse_ratio(const std::string& job) const {
        const double ratio = *options_.offload_ratio;
        const auto remote = static_cast<int64_t>(ratio * static_cast<double>(stored_bytes()));
        const auto works = [&](int64_t steps) {
            return fits(budgets_, static_cast<double>(steps) / kRatioSteps);
        };
        const auto told = [](std::string_view which, int64_t steps) {
            return fmt::format("; the {} ratio that fits is {:.4f}", which,
                               static_cast<double>(steps) / kRatioSteps);
        };
        const int64_t limit = std::min(budgets_.host_bytes, division_.largest(stored_bytes()));
        const auto most = static_cast<int64_t>(ratio_of(limit) * kRatioSteps);
        require(remote <= budgets_.host_bytes,
                "{}: offload ratio {:.4g} needs {} of memory for the remote tier, but the budget "
                "is {}{}",
                job, ratio, format_bytes(remote), format_bytes(budgets_.host_bytes),
                works(most) ? told("largest", most) : "");
        const int64_t least = std::max(overflow(0), division_.pinned_bytes());
        const auto below = static_cast<int64_t>(std::ceil(ratio_of(least) * kRatioSteps)) - 1;
        fail("{}: offload ratio {:.4g} leaves {} for the GPU, but the budget is {}{}", job, ratio,
             format_bytes(stored_bytes() - remote + fixed_.total()),
             format_bytes(budgets_.gpu_bytes),
             works(most) ? told("smallest", first(below, most, works)) : "");
    }

    [[noreturn]] void refuse() const {
        const std::string job = job_name(config_, workload_, options_);
        require(division_.pinned_bytes() <= budgets_.host_bytes,
                "{}: the placement rules put {} into the remote tier, whose budget is {}", job,
                format_bytes(division_.pinned_bytes()), format_bytes(budgets_.host_bytes));
        if (options_.offload_ratio && fits(budgets_)) refuse_ratio(job);
        const int64_t gpu = smallest_gpu_bytes();
        const auto host = smallest_host_bytes();
        fail(
            "{} does not fit into {} of GPU memory with {} for the remote tier; the smallest GPU "
            "budget that would do{} is {} ({} bytes){}",
            job, format_bytes(budgets_.gpu_bytes), format_bytes(budgets_.host_bytes),
            options_.offload_ratio ? " at any offload ratio" : "", format_bytes(gpu), gpu,
            host ? fmt::format(", or, with this GPU, {} ({} bytes) for the remote tier",
                               format_bytes(*host), *host)
                 : std::string());
    }

    Plan describe(const Draft& draft) const {
        Plan plan;
        plan.model = options_.model_name.empty() ? config_.architecture : options_.model_name;
        plan.hardware = profile_.name;
        plan.workload = workload_;
        plan.budgets = budgets_;
        plan.transport = draft.ring.pieces > 0 ? Transport::kStaged : Transport::kDirect;
        plan.staging = draft.ring;
        plan.gpu = fixed_;
        plan.gpu.ring_bytes = ring_bytes(draft.ring);
        std::vector<double> shares;
        for (size_t i = 0; i < operations_.size(); ++i) {
            const Operation& operation = operations_[i];
            const int64_t remote_units = draft.remote_units[i];
            const double share = operation.units > 0 ? static_cast<double>(remote_units) /
                                                           static_cast<double>(operation.units)
                                                     : 0;
            shares.push_back(share);
            plan.operations.push_back(describe(operation, draft.rates, remote_units, share));
            const OperationPlan& entry = plan.operations.back();
            if (i + 1 == operations_.size()) {
                plan.kv_remote_pages = remote_units;
                plan.kv_local_pages = operation.units - remote_units;
                plan.gpu.kv_bytes = entry.local_bytes;
                plan.remote_kv_bytes = entry.remote_bytes;
                plan.kv_read_bytes = entry.read_bytes;
            } else {
                plan.placement.push_back(remote_units);
                plan.gpu.weight_bytes += entry.local_bytes;
                plan.remote_weight_bytes += entry.remote_bytes;
                plan.weight_read_bytes += entry.read_bytes;
            }
        }
        OperationPlan rest;
        rest.name = "other kernels";
        rest.bound = Bound::kOverhead;
        rest.seconds = other_.decode_seconds;
        rest.prefill_seconds = other_.prefill_seconds;
        plan.operations.push_back(rest);

        const StepTime decode =
            step_time(operations_, shares, Phase::kDecode, draft.rates, other_.decode_seconds);
        const double chunks = operations_.front().prefill.steps;
        const StepTime prefill = step_time(operations_, shares, Phase::kPrefill, draft.rates,
                                           other_.prefill_seconds / chunks);
        plan.tpot_seconds = decode.seconds();
        plan.link_wait_seconds = decode.seconds() - decode.kernels;
        plan.prefill_seconds = chunks * prefill.seconds();
        set_phases(draft, plan);
        return plan;
    }

    static OperationPlan describe(const Operation& operation, const TransportRates& rates,
                                  int64_t remote_units, double share) {
        OperationPlan entry;
        entry.name = operation.name;
        entry.flops = operation.decode.flops;
        entry.read_bytes = operation.decode.read_bytes;
        entry.remote_bytes = remote_units * operation.unit_bytes;
        entry.local_bytes = operation.units * operation.unit_bytes - entry.remote_bytes;
        entry.turning_point = turning_point(operation, rates);
        const OperationTime decode = operation_time(operation, operation.decode, rates, share);
        entry.seconds = decode.seconds();
        entry.bound = decode.bound();
        entry.prefill_seconds =
            operation.prefill.steps *
            operation_time(operation, operation.prefill, rates, share).seconds();
        return entry;
    }

    /// Each operation's remote bytes by its own curve. What a whole unit reaches beyond a stretch
    /// counts with the stretch.
    void set_phases(const Draft& draft, Plan& plan) const {
        PhaseBytes sum;
        for (size_t i = 0; i < operations_.size(); ++i) {
            const auto unit = static_cast<double>(operations_[i].unit_bytes);
            const auto bytes = static_cast<double>(draft.remote_units[i]) * unit;
            const CostCurve curve = cost_curve(operations_[i], draft.rates);
            const PhaseBytes part = phases(curve, bytes, unit);
            sum.gaining += part.gaining;
            sum.free += part.free;
        }
        const int64_t remote = plan.remote_weight_bytes + plan.remote_kv_bytes;
        const int64_t gaining = std::min<int64_t>(remote, std::llround(sum.gaining));
        const int64_t free = std::min<int64_t>(remote - gaining, std::llround(sum.free));
        plan.phase_bytes = {gaining, free, remote - gaining - free};
    }

    void explain(const Draft& best, const std::vector<Draft>& drafts, Plan& plan) const {
        const int64_t needed = overflow(plan.gpu.ring_bytes);
        const int64_t pinned = division_.pinned_bytes();
        if (needed > 0) {
            plan.why.push_back(fmt::format(
                "{} of weights and KV cache must leave the GPU: they and {} of other needs exceed "
                "its {}.",
                format_bytes(needed), format_bytes(fixed_.total() + plan.gpu.ring_bytes),
                format_bytes(budgets_.gpu_bytes)));
        } else {
            plan.why.push_back(fmt::format(
                "Everything {} the GPU: {} of {}.", pinned > 0 ? "would fit" : "fits",
                format_bytes(stored_bytes() + fixed_.total()), format_bytes(budgets_.gpu_bytes)));
        }
        if (pinned > 0) {
            plan.why.push_back(fmt::format(
                "The placement rules put {} into the remote tier{}.", format_bytes(pinned),
                pinned <= needed ? std::string()
                : needed == 0
                    ? ", which memory does not demand"
                    : fmt::format(", {} more than memory demands", format_bytes(pinned - needed))));
        }
        if (options_.offload_ratio) {
            plan.why.push_back(
                fmt::format("The offload ratio was given: {:.4g}.", *options_.offload_ratio));
        } else if (best.gain >= options_.min_gain) {
            plan.why.push_back(fmt::format(
                "Reading both memories at once makes the workload {:.1f}% faster, so that as much "
                "is offloaded as pays.",
                100 * best.gain));
        } else if (best.gain > 0) {
            plan.why.push_back(fmt::format(
                "Offloading more than needed would gain {:.1f}%, less than the {:.1f}% that count.",
                100 * best.gain, 100 * options_.min_gain));
        }
        if (options_.transport == Transport::kStaged && plan.transport == Transport::kDirect) {
            plan.why.emplace_back(
                "The staged transport has nothing to do: no weight that a step streams is remote.");
        } else if (drafts.size() == 2 && drafts[0].rates.transport != drafts[1].rates.transport) {
            const Draft& other = &best == &drafts[0] ? drafts[1] : drafts[0];
            plan.why.push_back(fmt::format(
                "Transport {}: {:.4g} s for the workload; {} would take {:.4g} s{}.",
                name_of(best.rates.transport), best.seconds, name_of(other.rates.transport),
                other.seconds,
                other.seconds < best.seconds
                    ? fmt::format(", which is less than {:.0f}% better", 100 * kStagingGain)
                    : ""));
        }
        explain_engine(plan);
    }

    /// What `dak run` refuses.
    void explain_engine(Plan& plan) const {
        const DType kv_dtype = options_.kv_dtype.value_or(config_.dtype);
        if (config_.dtype == DType::kF32) {
            plan.why.emplace_back(
                "The GPU engine does not run it: it takes bf16 and fp16 weights.");
        } else if (kv_dtype != config_.dtype) {
            plan.why.push_back(fmt::format(
                "The GPU engine does not run it: its KV cache has the type of the weights, {}.",
                name_of(config_.dtype)));
        }
    }

    const ModelConfig& config_;
    const Workload& workload_;
    const HardwareProfile& profile_;
    Budgets budgets_;
    PlanOptions options_;
    std::vector<Operation> operations_;
    OtherWork other_;
    GpuMemory fixed_;
    Division division_;
};

}  // namespace

std::string_view name_of(Transport transport) {
    return transport == Transport::kDirect ? "direct" : "staged";
}

std::string_view name_of(Bound bound) {
    constexpr std::array<std::string_view, 4> kNames = {"HBM", "link", "compute", "overhead"};
    return kNames[static_cast<size_t>(bound)];
}

double OperationPlan::ratio() const {
    const int64_t bytes = local_bytes + remote_bytes;
    return bytes > 0 ? static_cast<double>(remote_bytes) / static_cast<double>(bytes) : 0;
}

int64_t GpuMemory::total() const {
    return weight_bytes + vector_bytes + kv_bytes + ring_bytes + activation_bytes + reserve_bytes;
}

double Plan::offload_ratio() const {
    const int64_t remote = remote_weight_bytes + remote_kv_bytes;
    const int64_t all = remote + gpu.weight_bytes + gpu.kv_bytes;
    return static_cast<double>(remote) / static_cast<double>(all);
}

double Plan::total_seconds() const {
    return prefill_seconds + static_cast<double>(workload.output) * tpot_seconds;
}

double Plan::tokens_per_second() const {
    return static_cast<double>(workload.batch) / tpot_seconds;
}

double Plan::effective_bytes_per_second() const {
    return (weight_read_bytes + kv_read_bytes) / tpot_seconds;
}

double Plan::weight_bytes_per_second() const {
    return static_cast<double>(gpu.weight_bytes + remote_weight_bytes) / tpot_seconds;
}

PlacementRule parse_placement_rule(std::string_view text) {
    const size_t equals = text.rfind('=');
    require(equals != std::string_view::npos && equals > 0,
            "placement '{}' is not of the form PATTERN=remote, PATTERN=local or PATTERN=SHARE",
            text);
    const std::string value(text.substr(equals + 1));
    PlacementRule rule{std::string(text.substr(0, equals)), 0};
    if (value == "local") return rule;
    if (value == "remote") {
        rule.remote_share = 1;
        return rule;
    }
    char* end = nullptr;
    rule.remote_share = std::strtod(value.c_str(), &end);
    require(!value.empty() && *end == '\0' && rule.remote_share >= 0 && rule.remote_share <= 1,
            "placement '{}': '{}' is neither local, remote nor a share between 0 and 1", text,
            value);
    return rule;
}

Plan make_plan(const ModelConfig& config, const Workload& workload, const HardwareProfile& profile,
               const Budgets& budgets, const PlanOptions& options) {
    check(config, workload, budgets, options);
    return Planner(config, workload, profile, budgets, options).make();
}

std::optional<SweepPoint> peak_of(const std::vector<SweepPoint>& sweep) {
    std::optional<SweepPoint> peak;
    for (const SweepPoint& point : sweep) {
        if (!point.fits) continue;
        if (peak && point.effective_bytes_per_second <= peak->effective_bytes_per_second) continue;
        peak = point;
    }
    return peak;
}

std::vector<SweepPoint> sweep_offload_ratio(const ModelConfig& config, const Workload& workload,
                                            const HardwareProfile& profile, const Budgets& budgets,
                                            const PlanOptions& options) {
    check(config, workload, budgets, options);
    const Planner planner(config, workload, profile, budgets, options);
    const double least = planner.least_ratio();
    const double most = planner.most_ratio();
    std::vector<double> ratios = {least, most};
    for (int percent = 0; percent <= 100; percent += 5) ratios.push_back(percent / 100.0);
    for (const double factor : {0.5, 0.9, 1.0, 1.1, 1.5}) {
        ratios.push_back(factor * planner.turning_ratio());
    }
    std::erase_if(ratios, [&](double ratio) { return ratio < least || ratio > most; });
    std::ranges::sort(ratios);
    ratios.erase(std::unique(ratios.begin(), ratios.end()), ratios.end());
    std::vector<SweepPoint> points;
    for (const double ratio : ratios) points.push_back(planner.sweep_point(ratio));
    // Where no ratio fits, a plan says what would.
    if (std::ranges::none_of(points, &SweepPoint::fits)) planner.make();
    return points;
}

}  // namespace dak
