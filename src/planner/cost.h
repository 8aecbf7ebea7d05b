#pragma once

#include <span>
#include <vector>

#include "planner/allocation.h"
#include "planner/operations.h"

namespace dak {

/// The rates of the remote tier that a transport offers.
struct TransportRates {
    Transport transport = Transport::kDirect;
    double direct = 1;      ///< bytes/s, SMs
    double staged = 1;      ///< bytes/s, copy engine with the plan's pieces
    double write_cost = 0;  ///< HardwareProfile::staging_write_cost
    double slowdown = 1;    ///< HardwareProfile::staging_slowdown
    double contention = 1;  ///< HardwareProfile::staging_contention
};

/// Seconds of one operation in one step of a phase with `remote_share` of its bytes remote.
struct OperationTime {
    double local = 0, remote = 0, compute = 0, fixed = 0;

    /// Tiers and maths overlap, the start and the end of a kernel do not.
    double seconds() const;
    Bound bound() const;
};
OperationTime operation_time(const Operation& operation, const PhaseWork& work,
                             const TransportRates& rates, double remote_share);

/// One step of a phase. `link` counts what must come over the link, which with staging flows beside
/// the kernels of the whole step.
struct StepTime {
    double kernels = 0;
    double link = 0;

    double seconds() const { return kernels > link ? kernels : link; }
};

enum class Phase : uint8_t { kPrefill, kDecode };

/// `remote_shares` are parallel to `operations`; `other_seconds` is what the step does besides.
StepTime step_time(std::span<const Operation> operations, std::span<const double> remote_shares,
                   Phase phase, const TransportRates& rates, double other_seconds);

/// Seconds of the whole workload.
double workload_seconds(std::span<const Operation> operations,
                        std::span<const double> remote_shares, const TransportRates& rates,
                        const OtherWork& other);

/// How the workload's time depends on the operation's remote bytes. With the staged transport: the
/// time on the link, which is what counts once staging pays.
CostCurve cost_curve(const Operation& operation, const TransportRates& rates);

/// x*: the largest ratio that does not make the decode operation slower than any smaller one does.
double turning_point(const Operation& operation, const TransportRates& rates);

}  // namespace dak
