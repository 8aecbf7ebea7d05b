#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/units.h"
#include "engine/staging_schedule.h"
#include "memory/packing.h"

namespace dak {
namespace {

std::vector<int64_t> random_parts(std::mt19937& random) {
    std::vector<int64_t> parts(1 + random() % 60);
    const int64_t most = 1 + static_cast<int64_t>(random() % 400);
    for (int64_t& part : parts) {
        part = random() % 4 == 0 ? 0 : static_cast<int64_t>(random()) % most * kAtomBytes;
    }
    return parts;
}

StagingSizes random_sizes(std::mt19937& random, const std::vector<int64_t>& parts) {
    const int64_t most = std::max(*std::ranges::max_element(parts), kAtomBytes);
    return {most * (4 + static_cast<int64_t>(random() % 12)) / 4,
            kAtomBytes * (1 + static_cast<int64_t>(random() % 200))};
}

/// Runs steps as the engine does, with the latest copies that the schedule's waits allow and the
/// earliest: every product must find its own bytes in the ring either way.
class Simulation {
  public:
    Simulation(const std::vector<int64_t>& parts, const StagingSchedule& schedule)
        : parts_(parts), schedule_(schedule), ring_(schedule.ring_bytes / kAtomBytes, -1) {}

    /// `eager`: a copy runs as soon as the products it waits for have run; otherwise only when a
    /// product needs it.
    void run_steps(int steps, bool eager) {
        for (int piece = 0; piece < schedule_.ahead; ++piece) copy(piece);
        const int pieces = static_cast<int>(schedule_.pieces.size());
        for (int step = 0; step < steps; ++step) {
            int next = schedule_.ahead;
            // Copy order of a step: its own pieces, then those ahead of the next step.
            const auto piece_at = [&](int index) {
                return index < pieces ? index : index - pieces;
            };
            const auto last = pieces + schedule_.ahead;
            for (int read = 0; read < static_cast<int>(parts_.size()); ++read) {
                const auto may_copy = [&] {
                    return schedule_.pieces[static_cast<size_t>(piece_at(next))].overwrites_read <
                           read;
                };
                const int needed = schedule_.last_piece[static_cast<size_t>(read)];
                while (next <= needed) {
                    ASSERT_TRUE(may_copy()) << "product " << read << " waits for piece " << next
                                            << ", which waits for it";
                    copy(piece_at(next++));
                }
                while (eager && next < last && may_copy()) copy(piece_at(next++));
                check(read);
            }
            while (next < last) copy(piece_at(next++));
        }
    }

  private:
    void copy(int index) {
        const StagingSchedule::Piece& piece = schedule_.pieces[static_cast<size_t>(index)];
        for (int64_t at = 0; at < piece.bytes; at += kAtomBytes) {
            ring_.at(static_cast<size_t>((piece.ring_offset + at) / kAtomBytes)) =
                (piece.stream_offset + at) / kAtomBytes;
        }
    }

    void check(int read) {
        const auto index = static_cast<size_t>(read);
        const int64_t begin =
            std::accumulate(parts_.begin(), parts_.begin() + read, int64_t{0}) / kAtomBytes;
        for (int64_t atom = 0; atom < parts_[index] / kAtomBytes; ++atom) {
            ASSERT_EQ(
                ring_.at(static_cast<size_t>(schedule_.ring_offset[index] / kAtomBytes + atom)),
                begin + atom)
                << "product " << read;
        }
    }

    const std::vector<int64_t>& parts_;
    const StagingSchedule& schedule_;
    std::vector<int64_t> ring_;  ///< atom of the stream that each atom of the ring holds
};

TEST(StagingSchedule, EveryProductFindsItsBytesHoweverCopiesRun) {
    std::mt19937 random(1);
    for (int i = 0; i < 2000; ++i) {
        const auto parts = random_parts(random);
        const auto schedule = schedule_staging(parts, random_sizes(random, parts));
        for (const bool eager : {false, true}) {
            Simulation(parts, schedule).run_steps(3, eager);
            if (HasFatalFailure()) FAIL() << "problem " << i << (eager ? ", eager" : ", lazy");
        }
    }
}

TEST(StagingSchedule, PiecesAreTheStreamInOrder) {
    std::mt19937 random(2);
    for (int i = 0; i < 500; ++i) {
        const auto parts = random_parts(random);
        const auto sizes = random_sizes(random, parts);
        const auto schedule = schedule_staging(parts, sizes);
        int64_t offset = 0;
        for (const auto& piece : schedule.pieces) {
            EXPECT_EQ(piece.stream_offset, offset);
            EXPECT_GT(piece.bytes, 0);
            EXPECT_LE(piece.bytes, sizes.piece_bytes);
            EXPECT_LE(piece.ring_offset + piece.bytes, schedule.ring_bytes);
            offset += piece.bytes;
        }
        EXPECT_EQ(offset, std::accumulate(parts.begin(), parts.end(), int64_t{0}));
        EXPECT_EQ(offset, schedule.stream_bytes());
        EXPECT_LE(schedule.ring_bytes, sizes.ring_bytes);
    }
}

TEST(StagingSchedule, NothingRemoteNeedsNothing) {
    const std::vector<int64_t> none(7, 0);
    const auto schedule = schedule_staging(none, {0, kAtomBytes});
    EXPECT_TRUE(schedule.pieces.empty());
    EXPECT_EQ(schedule.ring_bytes, 0);
}

TEST(StagingSchedule, RefusesARingSmallerThanAPart) {
    const std::vector<int64_t> parts = {2 * kAtomBytes};
    EXPECT_THROW(schedule_staging(parts, {kAtomBytes, kAtomBytes}), Error);
}

}  // namespace
}  // namespace dak
