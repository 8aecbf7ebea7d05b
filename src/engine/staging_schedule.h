#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dak {

/// How the copy engine feeds the remote bytes of a step through a ring in local memory, ahead of
/// the products that read them (transport `staged`).
///
/// The products' remote parts, one after the other, are the step's stream. Each part lies in one
/// piece of the ring, so the ring is filled lap by lap: a lap ends where the next part would not
/// fit. The stream is copied in pieces of nearly equal size that never cross a lap. Every step
/// fills the ring in the same way, so addresses are constant; the first pieces of the next step are
/// copied during the present one, and the link never idles.
struct StagingSchedule {
    struct Piece {
        int64_t stream_offset = 0;
        int64_t ring_offset = 0;
        int64_t bytes = 0;
        /// The last product that reads what the piece overwrites: of this step for pieces copied in
        /// their own step, of the step before for those copied ahead. -1: none.
        int overwrites_read = -1;
    };

    int64_t ring_bytes = 0;
    std::vector<int64_t> ring_offset;  ///< of each product's remote part
    std::vector<int> last_piece;       ///< that each product needs; -1: it has no remote part
    std::vector<Piece> pieces;         ///< in the order of the stream
    int ahead = 0;                     ///< pieces copied during the step before

    int64_t stream_bytes() const {
        return pieces.empty() ? 0 : pieces.back().stream_offset + pieces.back().bytes;
    }
};

struct StagingSizes {
    int64_t ring_bytes = 0;   ///< the most the ring may take
    int64_t piece_bytes = 0;  ///< pieces are at most this large
};

/// Plans the stream of products whose remote parts are `remote_bytes` (multiples of 8 KiB), in the
/// order in which they run. Throws Error when a part is larger than the ring.
StagingSchedule schedule_staging(std::span<const int64_t> remote_bytes, const StagingSizes& sizes);

}  // namespace dak
