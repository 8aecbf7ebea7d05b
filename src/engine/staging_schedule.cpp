#include "engine/staging_schedule.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/units.h"
#include "memory/packing.h"

namespace dak {

namespace {

int64_t sum(std::span<const int64_t> values) {
    return std::accumulate(values.begin(), values.end(), int64_t{0});
}

int64_t largest(std::span<const int64_t> values) {
    return values.empty() ? 0 : *std::ranges::max_element(values);
}

/// The last of the products [0, count) whose part overlaps [begin, end) of the ring; -1: none.
int last_read(std::span<const int64_t> remote_bytes, const StagingSchedule& schedule, size_t count,
              int64_t begin, int64_t end) {
    for (size_t i = count; i-- > 0;) {
        const int64_t part = schedule.ring_offset[i];
        if (remote_bytes[i] > 0 && part < end && begin < part + remote_bytes[i]) {
            return static_cast<int>(i);
        }
    }
    return -1;
}

/// Cuts the lap of products [first, last), which starts at `stream_offset`, into pieces.
void add_lap(std::span<const int64_t> remote_bytes, size_t first, size_t last,
             int64_t stream_offset, int64_t piece_bytes, StagingSchedule& schedule) {
    const int64_t bytes = sum(remote_bytes.subspan(first, last - first));
    if (bytes == 0) return;
    const auto first_piece = static_cast<int>(schedule.pieces.size());
    const int64_t count = ceil_div(bytes, piece_bytes);
    const int64_t size = round_up(ceil_div(bytes, count), kAtomBytes);
    for (int64_t at = 0; at < bytes; at += size) {
        const int64_t end = std::min(at + size, bytes);
        schedule.pieces.push_back(
            {.stream_offset = stream_offset + at,
             .ring_offset = at,
             .bytes = end - at,
             .overwrites_read = last_read(remote_bytes, schedule, first, at, end)});
    }
    for (size_t i = first; i < last; ++i) {
        if (remote_bytes[i] == 0) continue;
        const int64_t end = schedule.ring_offset[i] + remote_bytes[i];
        schedule.last_piece[i] = first_piece + static_cast<int>(ceil_div(end, size)) - 1;
    }
}

}  // namespace

StagingSchedule schedule_staging(std::span<const int64_t> remote_bytes, const StagingSizes& sizes) {
    const int64_t most = largest(remote_bytes);
    require(most <= sizes.ring_bytes, "a staging ring of {} cannot hold {} of one product",
            format_bytes(sizes.ring_bytes), format_bytes(most));
    require(sizes.piece_bytes > 0, "staging pieces of no bytes");
    const int64_t total = sum(remote_bytes);
    // Laps of equal size: a short last one would leave little to copy ahead into.
    const int64_t laps =
        std::max<int64_t>(ceil_div(total, std::max<int64_t>(sizes.ring_bytes, 1)), 1);
    const int64_t target = ceil_div(total, laps);

    StagingSchedule schedule;
    schedule.ring_offset.resize(remote_bytes.size());
    schedule.last_piece.assign(remote_bytes.size(), -1);
    size_t first = 0;
    int64_t stream_offset = 0;
    int64_t lap_bytes = 0;
    for (size_t i = 0; i < remote_bytes.size(); ++i) {
        if (lap_bytes >= target || lap_bytes + remote_bytes[i] > sizes.ring_bytes) {
            add_lap(remote_bytes, first, i, stream_offset, sizes.piece_bytes, schedule);
            stream_offset += lap_bytes;
            first = i;
            lap_bytes = 0;
        }
        schedule.ring_offset[i] = lap_bytes;
        lap_bytes += remote_bytes[i];
        schedule.ring_bytes = std::max(schedule.ring_bytes, lap_bytes);
    }
    add_lap(remote_bytes, first, remote_bytes.size(), stream_offset, sizes.piece_bytes, schedule);

    // The pieces of the first half of the first lap are copied ahead. What they overwrite then is
    // what the step before left there.
    for (StagingSchedule::Piece& piece : schedule.pieces) {
        const bool first_lap = piece.stream_offset == piece.ring_offset;
        if (!first_lap || piece.ring_offset >= schedule.ring_bytes / 2) break;
        piece.overwrites_read = last_read(remote_bytes, schedule, remote_bytes.size(),
                                          piece.ring_offset, piece.ring_offset + piece.bytes);
        ++schedule.ahead;
    }
    return schedule;
}

}  // namespace dak
