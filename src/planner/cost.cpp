#include "planner/cost.h"

#include <algorithm>
#include <array>

namespace dak {

namespace {

const PhaseWork& work_of(const Operation& operation, Phase phase) {
    return phase == Phase::kDecode ? operation.decode : operation.prefill;
}

/// Whether the copy engine, not an SM, brings the operation's remote bytes.
bool is_staged(const Operation& operation, const TransportRates& rates) {
    return rates.transport == Transport::kStaged && operation.staged;
}

/// Bytes/s at which SMs read the remote tier: half of the link while copies are under way.
double direct_rate(const TransportRates& rates) {
    return rates.transport == Transport::kStaged ? rates.direct / 2 : rates.direct;
}

/// Seconds of the link for each remote byte that a step reads.
double link_seconds(const Operation& operation, const PhaseWork& work,
                    const TransportRates& rates) {
    return is_staged(operation, rates) ? 1 / rates.staged : work.crossings / direct_rate(rates);
}

/// Remote shares at which one phase's time, max(compute, local, remote), changes its slope.
std::array<double, 3> breakpoints(const PhaseWork& work, const TransportRates& rates) {
    const double all_local = work.read_bytes / work.local_bytes_per_second;
    const double all_remote = work.read_bytes * work.crossings / rates.direct;
    if (all_local <= 0) return {};
    return {all_local / (all_local + all_remote), 1 - work.compute_seconds / all_local,
            work.compute_seconds / all_remote};
}

/// d seconds / d remote share of a phase's step, anywhere between two breakpoints.
double slope(const PhaseWork& work, const TransportRates& rates, double share) {
    const double all_local = work.read_bytes / work.local_bytes_per_second;
    const double all_remote = work.read_bytes * work.crossings / rates.direct;
    const double local = (1 - share) * all_local;
    const double remote = share * all_remote;
    if (work.compute_seconds >= std::max(local, remote)) return 0;
    return local > remote ? -all_local : all_remote;
}

CostCurve direct_curve(const Operation& operation, const TransportRates& rates) {
    std::vector<double> cuts = {0.0, 1.0};
    for (const PhaseWork* work : {&operation.prefill, &operation.decode}) {
        for (const double cut : breakpoints(*work, rates)) {
            if (cut > 0 && cut < 1) cuts.push_back(cut);
        }
    }
    std::ranges::sort(cuts);
    CostCurve curve;
    for (size_t i = 1; i < cuts.size(); ++i) {
        const double middle = (cuts[i - 1] + cuts[i]) / 2;
        double seconds = 0;
        for (const PhaseWork* work : {&operation.prefill, &operation.decode}) {
            seconds += work->steps * slope(*work, rates, middle);
        }
        const double bytes = (cuts[i] - cuts[i - 1]) * operation.stored_bytes();
        if (bytes > 0) curve.push_back({bytes, seconds / operation.stored_bytes()});
    }
    return curve;
}

}  // namespace

double OperationTime::seconds() const { return std::max({local, remote, compute}) + fixed; }

Bound OperationTime::bound() const {
    const double stream = std::max({local, remote, compute});
    if (fixed > stream) return Bound::kOverhead;
    return stream == compute ? Bound::kCompute : stream == remote ? Bound::kRemote : Bound::kLocal;
}

OperationTime operation_time(const Operation& operation, const PhaseWork& work,
                             const TransportRates& rates, double remote_share) {
    OperationTime time;
    time.compute = work.compute_seconds;
    time.fixed = work.fixed_seconds;
    const double remote_bytes = work.read_bytes * remote_share;
    if (is_staged(operation, rates)) {
        // The copy has been made; what it wrote competes with what the kernel reads.
        time.local = (work.read_bytes * rates.slowdown + remote_bytes * rates.write_cost) /
                     work.local_bytes_per_second;
    } else {
        time.local = (work.read_bytes - remote_bytes) / work.local_bytes_per_second;
        time.remote = remote_bytes * work.crossings / direct_rate(rates);
    }
    return time;
}

StepTime step_time(std::span<const Operation> operations, std::span<const double> remote_shares,
                   Phase phase, const TransportRates& rates, double other_seconds) {
    StepTime step;
    step.kernels = other_seconds;
    for (size_t i = 0; i < operations.size(); ++i) {
        const Operation& operation = operations[i];
        const PhaseWork& work = work_of(operation, phase);
        step.kernels += operation_time(operation, work, rates, remote_shares[i]).seconds();
        if (rates.transport == Transport::kStaged) {
            step.link += work.read_bytes * remote_shares[i] * link_seconds(operation, work, rates);
        }
    }
    // Beside kernels copies take longer; what is left when these are done flows at the full rate.
    step.link += (1 - 1 / rates.contention) * std::min(step.link * rates.contention, step.kernels);
    return step;
}

double workload_seconds(std::span<const Operation> operations,
                        std::span<const double> remote_shares, const TransportRates& rates,
                        const OtherWork& other) {
    const double chunks = operations.front().prefill.steps;
    const double decode_steps = operations.front().decode.steps;
    return chunks * step_time(operations, remote_shares, Phase::kPrefill, rates,
                              other.prefill_seconds / chunks)
                        .seconds() +
           decode_steps *
               step_time(operations, remote_shares, Phase::kDecode, rates, other.decode_seconds)
                   .seconds();
}

CostCurve cost_curve(const Operation& operation, const TransportRates& rates) {
    if (operation.units == 0) return {};
    if (rates.transport == Transport::kDirect) return direct_curve(operation, rates);
    double seconds = 0;
    for (const PhaseWork* work : {&operation.prefill, &operation.decode}) {
        seconds += work->steps * work->read_bytes * link_seconds(operation, *work, rates);
    }
    return {{operation.stored_bytes(), seconds / operation.stored_bytes()}};
}

double turning_point(const Operation& operation, const TransportRates& rates) {
    const PhaseWork& work = operation.decode;
    const double all_remote = work.read_bytes * work.crossings / rates.direct;
    if (all_remote <= 0) return 1;
    const auto [balance, unused, compute_limit] = breakpoints(work, rates);
    return std::min(1.0, std::max(balance, compute_limit));
}

}  // namespace dak
