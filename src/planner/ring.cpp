#include "planner/ring.h"

#include <algorithm>

namespace dak {

namespace {

// docs/planner.md: a piece under 16 MB wastes link time on starting copies, one over 64 MB gains
// nothing and costs memory; about 20 pieces a step keep the copies ahead of their readers evenly,
// and with less than 4 slots they wait for each other.
constexpr int64_t kMinSlots = 4;
constexpr int64_t kMinPieceBytes = 16'000'000;
constexpr int64_t kPiecesPerStep = 20;

}  // namespace

StagingPlan plan_ring(int64_t step_bytes, int64_t largest) {
    if (step_bytes == 0) return {};
    const int64_t wanted =
        std::clamp(ceil_div(step_bytes, kPiecesPerStep), kMinPieceBytes, kMaxPieceBytes);
    // A number of pieces that the slots divide: the ring then goes round evenly from step to step.
    const int64_t pieces = round_up(ceil_div(step_bytes, wanted), kMinSlots);
    const int64_t slot_bytes = round_up(ceil_div(step_bytes, pieces), kAtomBytes);
    StagingPlan ring;
    ring.slot_bytes = slot_bytes;
    ring.pieces = ceil_div(step_bytes, slot_bytes);
    // A product's remote bytes stand in the ring at once, while those of the next come in.
    const int64_t needed = std::max(kMinSlots, ceil_div(2 * largest, slot_bytes) + 1);
    ring.slots = std::min(needed, ring.pieces);
    return ring;
}

}  // namespace dak
