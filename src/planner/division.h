#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "planner/operations.h"

namespace dak {

/// Bounds on the remote bytes of a plan, both included.
struct RemoteRange {
    int64_t least = 0;
    int64_t most = 0;
};

/// How bytes become whole atoms and pages. Of the operations, the last one counts pages, which are
/// large, the others atoms, which are small; those that a rule fixes keep their share.
class Division {
  public:
    /// Keeps a reference.
    explicit Division(const std::vector<Operation>& operations);

    int64_t stored_bytes() const { return stored_bytes_; }
    /// Remote bytes of the operations that rules fix.
    int64_t pinned_bytes() const { return pinned_bytes_; }
    int64_t pinned_units(size_t operation) const;
    /// Remote bytes of the fixed operations, `pages` of the cache and `atoms` of the weights that
    /// are not.
    int64_t bytes_of(int64_t pages, int64_t atoms) const;

    /// The same share of every operation that is not fixed, `total` bytes with those that are; with
    /// `pages`, so many pages and the same share of every weight.
    std::vector<double> uniform(double total, std::optional<int64_t> pages) const;

    using Spread =
        std::function<std::vector<double>(double total_bytes, std::optional<int64_t> pages)>;
    using Seconds = std::function<double(const std::vector<int64_t>& units)>;

    /// Whole units of each operation, `target` bytes as nearly as they allow and within `range`.
    /// `spread` says where how many bytes belong, given the number of remote pages or not; of the
    /// two numbers of pages next to its own, the one of fewer `seconds` is taken. Nothing when no
    /// division lies within the range.
    std::optional<std::vector<int64_t>> round(double target, const RemoteRange& range,
                                              const Spread& spread, const Seconds& seconds) const;

    /// The most remote bytes, up to `limit`, that whole units can make; negative when the fixed
    /// ones alone exceed it.
    int64_t largest(int64_t limit) const;

    /// The fewest remote bytes that whole units can make, from `needed` on; nothing when all of
    /// them are not enough.
    std::optional<int64_t> smallest(int64_t needed) const;

  private:
    /// Atoms beside `pages` remote pages such that the bytes are in range and near `target`.
    std::optional<int64_t> atoms_beside(int64_t pages, double target,
                                        const RemoteRange& range) const;
    std::vector<int64_t> units_of(int64_t pages, int64_t atoms, const Spread& spread) const;
    /// The most pages of at most `limit` bytes with the fixed operations, negative when those are
    /// more; and the fewest that with them make `bytes`, however many there are.
    int64_t pages_within(int64_t limit) const;
    int64_t pages_needed(int64_t bytes) const;

    const std::vector<Operation>& operations_;
    int64_t stored_bytes_ = 0;
    int64_t pinned_bytes_ = 0;
    int64_t free_atoms_ = 0;  ///< of the operations that no rule fixes
    int64_t free_pages_ = 0;  ///< zero when a rule fixes the KV cache
    int64_t page_bytes_ = 0;
    int64_t period_ = 1;  ///< so many pages on, what atoms leave over is the same again
};

}  // namespace dak
