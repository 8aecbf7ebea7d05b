#pragma once

#include <cstdint>

#include "planner/planner.h"

namespace dak {

/// The ring for a step in which `step_bytes` remote bytes are staged, `largest` of them of one
/// product.
StagingPlan plan_ring(int64_t step_bytes, int64_t largest);

/// GPU memory of a ring.
inline int64_t ring_bytes(const StagingPlan& ring) { return ring.slot_bytes * ring.slots; }

/// The largest piece that plan_ring cuts, for rates before a ring is known.
inline constexpr int64_t kMaxPieceBytes = 64'000'000;

}  // namespace dak
