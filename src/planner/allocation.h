#pragma once

#include <span>
#include <vector>

namespace dak {

/// A stretch of a cost curve: moving each of its bytes to the remote tier changes the time by
/// `slope` seconds.
struct CostSegment {
    double bytes = 0;
    double slope = 0;
};

/// How the time of an operation changes with its remote bytes: stretches from none to all of them
/// remote. The time is convex, so slopes ascend.
using CostCurve = std::vector<CostSegment>;

/// Remote bytes of each operation that minimise the sum of the times when `offload_bytes` in all
/// are remote (as many as there are, if fewer). The paper's phases fall out of the order of the
/// slopes: negative ones (memory-bound operations up to their turning point), zero (compute-bound
/// ones up to theirs), positive. Stretches of equal slope are filled evenly, so that like
/// operations are split alike.
std::vector<double> allocate_greedy(std::span<const CostCurve> curves, double offload_bytes);

/// Bytes by the sign of their slope: negative, zero, positive.
struct PhaseBytes {
    double gaining = 0;
    double free = 0;
    double costing = 0;
};
/// Of all that the curves have.
PhaseBytes phases(std::span<const CostCurve> curves);
/// Of the first `bytes` of a curve; those that reach less than `unit` into a stretch count with the
/// one before.
PhaseBytes phases(const CostCurve& curve, double bytes, double unit);

}  // namespace dak
