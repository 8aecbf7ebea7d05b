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

/// Divides numbers from 0 to 2^31 - 1 by one that is known before, with a product: kernels that are
/// short of room in the instruction cache divide often (a division is 30 instructions), and a
/// 64-bit one costs them 0.2 us.
class Divisor {
  public:
    constexpr Divisor() = default;
    constexpr explicit Divisor(int divisor) : value_(divisor) {
        while ((int64_t{1} << shift_) < divisor) ++shift_;
        const uint64_t excess = (uint64_t{1} << shift_) - static_cast<uint64_t>(divisor);
        magic_ = static_cast<uint32_t>((excess << 32) / static_cast<uint64_t>(divisor) + 1);
    }
    constexpr int value() const { return value_; }
    constexpr int quotient(int number) const {
        const auto n = static_cast<uint32_t>(number);
        const auto high = static_cast<uint32_t>((uint64_t{magic_} * n) >> 32);
        return static_cast<int>((high + n) >> shift_);
    }

  private:
    int value_ = 1;
    uint32_t magic_ = 1;
    uint32_t shift_ = 0;
};

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

/// `count` things divided among workers, the first of whom get one more where it does not come out
/// even.
struct Shares {
    int quotient = 0;
    int remainder = 0;

    static constexpr Shares of(int count, int workers) {
        return workers == 0 ? Shares{} : Shares{count / workers, count % workers};
    }
    constexpr int begin(int worker) const { return worker * quotient + smaller(worker, remainder); }
    constexpr int owner(int thing) const {
        const int larger_shares = remainder * (quotient + 1);
        return thing < larger_shares ? thing / (quotient + 1)
                                     : remainder + (thing - larger_shares) / quotient;
    }
};

/// The same, whose owners kernels ask for.
class QuickShares {
  public:
    constexpr QuickShares() = default;
    constexpr QuickShares(int count, int workers)
        : shares_(Shares::of(count, workers)),
          smaller_(larger(1, shares_.quotient)),
          larger_(shares_.quotient + 1) {}

    constexpr int begin(int worker) const { return shares_.begin(worker); }
    constexpr int owner(int thing) const {
        const int rest = thing - shares_.remainder * larger_.value();
        return rest < 0 ? larger_.quotient(thing) : shares_.remainder + smaller_.quotient(rest);
    }

  private:
    Shares shares_;
    Divisor smaller_, larger_;  // sizes of a share
};

/// The line and its division among the workers: the remote prefix and the local rest are each cut
/// into equal shares, at multiples of `alignment` units. Or, with `split` > 1, every block is cut
/// into that many parts, one for each worker of a cluster.
class WorkLine {
  public:
    constexpr WorkLine() = default;
    constexpr WorkLine(int k_atoms, int blocks, int remote_units, int remote_workers,
                       int local_workers, int alignment)
        : k_atoms_(k_atoms),
          blocks_(blocks),
          remote_units_(remote_units),
          remote_workers_(remote_workers),
          local_workers_(local_workers),
          alignment_(alignment),
          local_base_(remote_units - remote_units % alignment),
          remote_(round_up(remote_units) / alignment, remote_workers),
          local_(round_up(blocks * k_atoms - local_base_) / alignment, local_workers) {}

    /// No remote units; blocks * split workers.
    static constexpr WorkLine of_split_blocks(int k_atoms, int blocks, int split, int alignment) {
        WorkLine line(k_atoms, blocks, 0, 0, blocks * split, alignment);
        line.split_ = Divisor(split);
        line.part_ = Divisor(line.round_up((k_atoms + split - 1) / split));
        return line;
    }

    constexpr int k_atoms() const { return k_atoms_.value(); }
    constexpr int blocks() const { return blocks_; }
    constexpr int units() const { return blocks_ * k_atoms(); }
    constexpr int remote_units() const { return remote_units_; }
    constexpr int remote_workers() const { return remote_workers_; }
    constexpr int local_workers() const { return local_workers_; }
    constexpr int workers() const { return remote_workers_ + local_workers_; }
    constexpr int alignment() const { return alignment_.value(); }
    constexpr int split() const { return split_.value(); }
    /// The first of `count` things that part `part` of a split block has.
    constexpr int begin_of_part(int count, int part) const { return split_.quotient(count * part); }
    /// The block that holds `unit`.
    constexpr int block(int unit) const { return k_atoms_.quotient(unit); }
    constexpr bool is_remote(int worker) const { return worker < remote_workers_; }

    /// First unit of a worker (remote ones are numbered first); begin(workers()) is the end.
    constexpr int begin(int worker) const {
        if (split() > 1) {
            const int block = split_.quotient(worker);
            const int part = worker - block * split();
            return block * k_atoms() + smaller(k_atoms(), part * part_.value());
        }
        if (worker < remote_workers_) {
            return smaller(remote_units_, remote_.begin(worker) * alignment());
        }
        const int cut = local_base_ + local_.begin(worker - remote_workers_) * alignment();
        return smaller(units(), larger(remote_units_, cut));
    }

    /// The worker whose range holds `unit`.
    constexpr int owner(int unit) const {
        if (split() > 1) {
            const int of = block(unit);
            return of * split() + part_.quotient(unit - of * k_atoms());
        }
        if (unit < remote_units_) return remote_.owner(alignment_.quotient(unit));
        return remote_workers_ + local_.owner(alignment_.quotient(unit - local_base_));
    }

    /// The part of [unit, end) that lies in unit's block; the range is `worker`'s.
    constexpr Segment segment(int unit, int end, int worker) const {
        Segment s;
        s.block = block(unit);
        const int start = s.block * k_atoms();
        s.k_begin = unit - start;
        s.k_end = smaller(k_atoms(), end - start);
        s.head = s.k_begin == 0 ? worker : owner(start);
        s.last = s.k_end == k_atoms() ? worker : owner(start + k_atoms() - 1);
        return s;
    }

  private:
    constexpr int round_up(int units) const {
        return (units + alignment() - 1) / alignment() * alignment();
    }

    Divisor k_atoms_;
    int blocks_ = 0;
    int remote_units_ = 0;
    int remote_workers_ = 0;
    int local_workers_ = 0;
    Divisor alignment_;
    Divisor split_;
    Divisor part_;
    int local_base_ = 0;  ///< where the grid of local cuts starts
    QuickShares remote_, local_;
};

/// How many units of the line hold a remote atom. A block's `row_tiles` row tiles advance through K
/// together, the packed order finishes one row tile before the next: with two row tiles, the one
/// block that the boundary cuts has units of mixed tiers, and they count as remote.
constexpr int remote_units(int64_t remote_atoms, int k_atoms, int row_tiles) {
    const int64_t per_block = int64_t{k_atoms} * row_tiles;
    const int64_t rest = remote_atoms % per_block;
    return static_cast<int>(remote_atoms / per_block * k_atoms + (rest < k_atoms ? rest : k_atoms));
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
