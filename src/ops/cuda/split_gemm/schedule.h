#pragma once

#include <cstdint>

// Who computes what, as plain arithmetic that the kernels run and the CPU tests prove. A weight's
// row blocks (1 or 2 row tiles) are laid on a line, each block as `k_atoms` units; a worker (one
// CTA, or one cluster of CTAs) takes one contiguous range of the line. Remote atoms come first in
// the packed order, so the units that hold any are a prefix of the line: remote workers share that
// prefix, local workers the rest. A block that several workers share is summed by the first of
// them, its head, to which each other one hands one partial sum; since a range that does not start
// with its block's first unit can only start in the middle of one block, a worker hands over at
// most one, before anything else it does.

namespace dak {

/// The least, respectively greatest, of two values (usable on the device).
constexpr int smaller(int a, int b) { return a < b ? a : b; }
constexpr int larger(int a, int b) { return a > b ? a : b; }

/// One worker's share of one block: units [k_begin, k_end) of `block`. The block's contributors are
/// the workers head..last (those among them with an empty range contribute nothing).
struct Segment {
    int block = 0;
    int k_begin = 0;
    int k_end = 0;
    int head = 0;
    int last = 0;

    constexpr int length() const { return k_end - k_begin; }
};

/// The line and its division among the workers.
struct WorkLine {
    int k_atoms = 1;         ///< units of a block
    int blocks = 0;          ///< blocks on the line
    int remote_units = 0;    ///< the prefix that remote workers share
    int remote_workers = 0;  ///< numbered first
    int local_workers = 1;
    int alignment = 1;  ///< cuts stand at multiples of this inside a block; k_atoms: whole blocks

    constexpr int units() const { return blocks * k_atoms; }
    constexpr int workers() const { return remote_workers + local_workers; }
    constexpr bool is_remote(int worker) const { return worker < remote_workers; }

    /// First unit of a worker; begin(workers()) is the end of the line. Every worker of a tier gets
    /// the same number of units, give or take the alignment.
    constexpr int begin(int worker) const {
        if (worker >= workers()) return units();
        if (worker < remote_workers) {
            return aligned(static_cast<int>(int64_t{remote_units} * worker / remote_workers));
        }
        const int local = worker - remote_workers;
        if (local == 0) return remote_units;
        const int64_t share = int64_t{units() - remote_units} * local / local_workers;
        return larger(remote_units, aligned(remote_units + static_cast<int>(share)));
    }

    /// The worker whose range holds `unit`.
    constexpr int owner(int unit) const {
        const bool remote = unit < remote_units;
        const int first = remote ? 0 : remote_units;
        const int length = remote ? remote_units : units() - remote_units;
        const int count = remote ? remote_workers : local_workers;
        int worker = (remote ? 0 : remote_workers) +
                     static_cast<int>(int64_t{unit - first} * count / length);
        while (begin(worker) > unit) --worker;
        while (begin(worker + 1) <= unit) ++worker;
        return worker;
    }

    /// The part of [unit, end) that lies in unit's block.
    constexpr Segment segment(int unit, int end) const {
        Segment s;
        s.block = unit / k_atoms;
        const int start = s.block * k_atoms;
        s.k_begin = unit - start;
        s.k_end = smaller(k_atoms, end - start);
        const int worker = owner(unit);
        s.head = s.k_begin == 0 ? worker : owner(start);
        s.last = s.k_end == k_atoms ? worker : owner(start + k_atoms - 1);
        return s;
    }

  private:
    constexpr int aligned(int unit) const {
        const int within = unit % k_atoms;
        return unit - within % alignment;
    }
};

/// How many units of the line hold a remote atom. A block's `row_tiles` row tiles advance through K
/// together, the packed order finishes one row tile before the next: with two row tiles, the one
/// block that the boundary cuts has units of mixed tiers, and they count as remote.
constexpr int remote_units(int64_t remote_atoms, int k_atoms, int row_tiles) {
    const int64_t per_block = int64_t{k_atoms} * row_tiles;
    const int64_t rest = remote_atoms % per_block;
    return static_cast<int>(remote_atoms / per_block * k_atoms +
                            (rest < k_atoms ? rest : k_atoms));
}

/// The position inside the head's own segment at which it adds the partial sum of the one other
/// contributor, so that nothing is left to do at the end: when the other, whose `other_units` are
/// the first it computes, must long be done if all workers advance alike. 1/8 is the spread seen
/// between workers, `slack` the units one takes to publish a sum. `units_before` is what the head
/// computes before this segment. At or past the segment's length means: at its end.
constexpr int add_position(int other_units, int units_before, int slack) {
    return larger(0, other_units + other_units / 8 + slack - units_before);
}

/// The order of (row block, token tile) pairs: groups of `group` row blocks, inside a group token
/// tile by token tile, so that the tiles that run at one time share both operands in L2.
struct TileOrder {
    int row_blocks = 0;
    int token_tiles = 1;
    int group = 8;

    constexpr int tiles() const { return row_blocks * token_tiles; }
    constexpr int row_block(int tile) const {
        const int g = tile / (group * token_tiles);
        return g * group + (tile - g * group * token_tiles) % group_size(g);
    }
    constexpr int token_tile(int tile) const {
        const int g = tile / (group * token_tiles);
        return (tile - g * group * token_tiles) / group_size(g);
    }

  private:
    constexpr int group_size(int g) const { return smaller(group, row_blocks - g * group); }
};

}  // namespace dak
