#include "planner/allocation.h"

#include <algorithm>
#include <cmath>

namespace dak {

namespace {

struct Stretch {
    size_t curve;
    CostSegment segment;
};

/// Slopes that differ by rounding only are one.
bool same_slope(double a, double b) {
    return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

std::vector<Stretch> cheapest_first(std::span<const CostCurve> curves) {
    std::vector<Stretch> stretches;
    for (size_t i = 0; i < curves.size(); ++i) {
        for (const CostSegment& segment : curves[i]) stretches.push_back({i, segment});
    }
    std::ranges::stable_sort(stretches, {}, [](const Stretch& s) { return s.segment.slope; });
    return stretches;
}

double& phase_of(const CostSegment& segment, PhaseBytes& phases) {
    return segment.slope < 0 ? phases.gaining : segment.slope == 0 ? phases.free : phases.costing;
}

}  // namespace

std::vector<double> allocate_greedy(std::span<const CostCurve> curves, double offload_bytes) {
    std::vector<double> remote(curves.size(), 0.0);
    const std::vector<Stretch> stretches = cheapest_first(curves);
    double left = offload_bytes;
    for (size_t begin = 0, end = 0; begin < stretches.size() && left > 0; begin = end) {
        double bytes = 0;
        while (end < stretches.size() &&
               same_slope(stretches[begin].segment.slope, stretches[end].segment.slope)) {
            bytes += stretches[end++].segment.bytes;
        }
        const double share = bytes > left ? left / bytes : 1.0;
        for (size_t i = begin; i < end; ++i) {
            remote[stretches[i].curve] += share * stretches[i].segment.bytes;
        }
        left -= bytes;
    }
    return remote;
}

PhaseBytes phases(std::span<const CostCurve> curves) {
    PhaseBytes result;
    for (const CostCurve& curve : curves) {
        for (const CostSegment& segment : curve) phase_of(segment, result) += segment.bytes;
    }
    return result;
}

PhaseBytes phases(const CostCurve& curve, double bytes, double unit) {
    PhaseBytes result;
    double left = bytes;
    for (const CostSegment& segment : curve) {
        const double taken = left < segment.bytes + unit ? left : segment.bytes;
        phase_of(segment, result) += taken;
        left -= taken;
    }
    return result;
}

}  // namespace dak
