#include "planner/division.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/units.h"

namespace dak {

Division::Division(const std::vector<Operation>& operations) : operations_(operations) {
    for (size_t i = 0; i < operations.size(); ++i) {
        const Operation& operation = operations[i];
        stored_bytes_ += operation.units * operation.unit_bytes;
        const bool pages = i + 1 == operations.size();
        if (pages) page_bytes_ = operation.unit_bytes;
        if (operation.fixed_share) {
            pinned_bytes_ += pinned_units(i) * operation.unit_bytes;
        } else if (pages) {
            free_pages_ = operation.units;
        } else {
            free_atoms_ += operation.units;
        }
    }
    if (page_bytes_ > 0) period_ = kAtomBytes / std::gcd(page_bytes_, kAtomBytes);
}

int64_t Division::pinned_units(size_t operation) const {
    const Operation& pinned = operations_[operation];
    return std::llround(pinned.fixed_share.value_or(0) * static_cast<double>(pinned.units));
}

std::vector<double> Division::uniform(double total, std::optional<int64_t> pages) const {
    const int64_t free_bytes = free_atoms_ * kAtomBytes + (pages ? 0 : free_pages_ * page_bytes_);
    const double wanted = total - static_cast<double>(bytes_of(pages.value_or(0), 0));
    const double share = free_bytes > 0 ? wanted / static_cast<double>(free_bytes) : 0;
    std::vector<double> bytes;
    for (const Operation& operation : operations_) {
        bytes.push_back(std::clamp(share, 0.0, 1.0) * operation.stored_bytes());
    }
    return bytes;
}

int64_t Division::bytes_of(int64_t pages, int64_t atoms) const {
    return pinned_bytes_ + pages * page_bytes_ + atoms * kAtomBytes;
}

std::optional<int64_t> Division::atoms_beside(int64_t pages, double target,
                                              const RemoteRange& range) const {
    const int64_t others = bytes_of(pages, 0);
    if (others > range.most) return {};
    const int64_t least = ceil_div(std::max<int64_t>(0, range.least - others), kAtomBytes);
    const int64_t most = std::min(free_atoms_, (range.most - others) / kAtomBytes);
    if (least > most) return {};
    const double wanted = (target - static_cast<double>(others)) / static_cast<double>(kAtomBytes);
    return std::clamp(static_cast<int64_t>(std::llround(wanted)), least, most);
}

std::vector<int64_t> Division::units_of(int64_t pages, int64_t atoms, const Spread& spread) const {
    const std::vector<double> bytes = spread(static_cast<double>(bytes_of(pages, atoms)), pages);
    std::vector<int64_t> units(operations_.size());
    std::vector<size_t> free;
    // Rounding the running total instead of each part keeps the sum exact.
    double running = 0;
    int64_t given = 0;
    for (size_t i = 0; i + 1 < operations_.size(); ++i) {
        if (operations_[i].fixed_share) {
            units[i] = pinned_units(i);
            continue;
        }
        free.push_back(i);
        running += bytes[i] / static_cast<double>(kAtomBytes);
        units[i] = std::clamp<int64_t>(std::llround(running) - given, 0, operations_[i].units);
        given += units[i];
    }
    for (const size_t i : free) {  // what clamping and the rounding of sums left over
        const int64_t change =
            std::clamp(atoms - given, -units[i], operations_[i].units - units[i]);
        units[i] += change;
        given += change;
    }
    units.back() = operations_.back().fixed_share ? pinned_units(units.size() - 1) : pages;
    return units;
}

std::optional<std::vector<int64_t>> Division::round(double target, const RemoteRange& range,
                                                    const Spread& spread,
                                                    const Seconds& seconds) const {
    const double wanted =
        free_pages_ > 0 ? spread(target, {}).back() / static_cast<double>(page_bytes_) : 0;
    const double clamped = std::clamp(wanted, 0.0, static_cast<double>(free_pages_));
    const auto below = static_cast<int64_t>(clamped);
    const auto above = static_cast<int64_t>(std::ceil(clamped));
    std::optional<std::vector<int64_t>> best;
    double best_seconds = std::numeric_limits<double>::infinity();
    const auto consider = [&](int64_t pages) {
        if (pages < 0 || pages > free_pages_) return;
        const auto atoms = atoms_beside(pages, target, range);
        if (!atoms) return;
        std::vector<int64_t> units = units_of(pages, *atoms, spread);
        const double time = seconds(units);
        if (time >= best_seconds) return;
        best_seconds = time;
        best = std::move(units);
    };
    consider(below);
    if (above != below) consider(above);
    if (best) return best;
    // Further away only for a budget that nothing nearer meets: from where it can be met at all,
    // through the remainders that pages leave.
    const int64_t most = pages_within(range.most);
    const int64_t least = pages_needed(range.least - free_atoms_ * kAtomBytes);
    const int64_t first = std::max({int64_t{1}, least - above, below - most});
    for (int64_t distance = first; !best && distance <= first + period_; ++distance) {
        consider(below - distance);
        consider(above + distance);
    }
    return best;
}

int64_t Division::pages_within(int64_t limit) const {
    if (limit < pinned_bytes_) return -1;
    return page_bytes_ == 0 ? 0 : std::min(free_pages_, (limit - pinned_bytes_) / page_bytes_);
}

int64_t Division::pages_needed(int64_t bytes) const {
    if (bytes <= pinned_bytes_ || page_bytes_ == 0) return 0;
    return ceil_div(bytes - pinned_bytes_, page_bytes_);
}

int64_t Division::largest(int64_t limit) const {
    int64_t best = -1;
    const int64_t most = pages_within(limit);
    for (int64_t pages = most; pages >= 0 && pages > most - period_; --pages) {
        const int64_t atoms = std::min(free_atoms_, (limit - bytes_of(pages, 0)) / kAtomBytes);
        best = std::max(best, bytes_of(pages, atoms));
    }
    return best;
}

std::optional<int64_t> Division::smallest(int64_t needed) const {
    std::optional<int64_t> best;
    const int64_t most = std::min(free_pages_, pages_needed(needed));
    for (int64_t pages = most; pages >= 0 && pages >= most - period_; --pages) {
        const int64_t rest = std::max<int64_t>(0, needed - bytes_of(pages, 0));
        const int64_t atoms = ceil_div(rest, kAtomBytes);
        if (atoms > free_atoms_) continue;
        const int64_t bytes = bytes_of(pages, atoms);
        best = std::min(best.value_or(bytes), bytes);
    }
    return best;
}

}  // namespace dak
