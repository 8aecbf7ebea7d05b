#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "planner/allocation.h"
#include "planner/cost.h"

// The greedy division against an exact solver that knows nothing of turning points: dynamic
// programming over whole units, on the time formula itself.

namespace dak {
namespace {

constexpr int kProblems = 4000;

/// A random operation of at most `max_units` units, memory-bound, compute-bound or in between.
Operation random_operation(std::mt19937_64& random, int64_t max_units) {
    const auto uniform = [&](double low, double high) {
        return std::uniform_real_distribution<double>(low, high)(random);
    };
    Operation operation;
    operation.units = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(max_units));
    operation.unit_bytes = 1'000'000;
    const int kind = static_cast<int>(random() % 4);
    operation.staged = kind != 0;
    for (PhaseWork* work : {&operation.decode, &operation.prefill}) {
        work->steps = work == &operation.decode ? 10 : static_cast<double>(random() % 3);
        work->local_bytes_per_second = 4e12;
        // A cache whose pages are partly filled, a table of which few rows are read.
        work->read_bytes = operation.stored_bytes() * (kind == 0 ? uniform(0.01, 1) : 1.0);
        const double stream = work->read_bytes / work->local_bytes_per_second;
        work->compute_seconds = kind == 1   ? 0
                                : kind == 2 ? stream * uniform(0.8, 1)
                                            : stream * uniform(0, 5);
        work->fixed_seconds = uniform(0, 5e-6);
        work->crossings = work == &operation.prefill ? 1 + static_cast<double>(random() % 3) : 1;
    }
    return operation;
}

struct Problem {
    std::vector<Operation> operations;
    TransportRates rates;
    OtherWork other;
    int64_t offload_units = 0;

    double seconds(const std::vector<double>& bytes) const {
        std::vector<double> shares;
        for (size_t i = 0; i < operations.size(); ++i) {
            shares.push_back(bytes[i] / operations[i].stored_bytes());
        }
        double total = 0;
        for (size_t i = 0; i < operations.size(); ++i) total += seconds_of(i, shares[i]);
        return total;
    }
    double seconds_of(size_t i, double share) const {
        double total = 0;
        for (const PhaseWork* work : {&operations[i].decode, &operations[i].prefill}) {
            total += work->steps * operation_time(operations[i], *work, rates, share).seconds();
        }
        return total;
    }
    int64_t units() const {
        int64_t sum = 0;
        for (const Operation& operation : operations) sum += operation.units;
        return sum;
    }
    std::vector<CostCurve> curves() const {
        std::vector<CostCurve> curves;
        for (const Operation& operation : operations)
            curves.push_back(cost_curve(operation, rates));
        return curves;
    }
    std::vector<double> greedy() const {
        return allocate_greedy(curves(), 1e6 * static_cast<double>(offload_units));
    }
};

Problem random_problem(std::mt19937_64& random, int64_t max_operations, int64_t max_units) {
    Problem problem;
    problem.rates.direct = (random() % 2 == 0 ? 51.4e9 : 450e9);
    const int64_t count =
        1 + static_cast<int64_t>(random() % static_cast<uint64_t>(max_operations));
    for (int64_t i = 0; i < count; ++i) {
        problem.operations.push_back(random_operation(random, max_units));
    }
    problem.offload_units =
        static_cast<int64_t>(random() % static_cast<uint64_t>(problem.units() + 1));
    return problem;
}

/// The least time with exactly `offload_units` remote units.
double exact_seconds(const Problem& problem) {
    const auto total = static_cast<size_t>(problem.offload_units);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    std::vector<double> best(total + 1, kInfinity);
    best[0] = 0;
    for (size_t i = 0; i < problem.operations.size(); ++i) {
        const auto units = static_cast<size_t>(problem.operations[i].units);
        std::vector<double> cost(units + 1);
        for (size_t u = 0; u <= units; ++u) {
            cost[u] = problem.seconds_of(i, static_cast<double>(u) / static_cast<double>(units));
        }
        std::vector<double> next(total + 1, kInfinity);
        for (size_t all = 0; all <= total; ++all) {
            for (size_t u = 0; u <= std::min(units, all); ++u) {
                next[all] = std::min(next[all], best[all - u] + cost[u]);
            }
        }
        best = std::move(next);
    }
    return best[total];
}

TEST(Allocation, NeverWorseThanTheExactOptimum) {
    std::mt19937_64 random(1);
    for (int i = 0; i < kProblems; ++i) {
        const Problem problem = random_problem(random, 6, 12);
        const std::vector<double> bytes = problem.greedy();
        // Whole units bind the exact solver only, so greedy may be better but never worse.
        EXPECT_LE(problem.seconds(bytes), exact_seconds(problem) * (1 + 1e-9)) << "problem " << i;
        const double sum = std::accumulate(bytes.begin(), bytes.end(), 0.0);
        EXPECT_NEAR(sum, 1e6 * static_cast<double>(problem.offload_units), 1) << "problem " << i;
        for (size_t k = 0; k < bytes.size(); ++k) {
            EXPECT_GE(bytes[k], 0);
            EXPECT_LE(bytes[k], problem.operations[k].stored_bytes() * (1 + 1e-12));
        }
    }
}

TEST(Allocation, TheExactSolverIsBeatenByRoundingOnly) {
    // With many units the two optima meet: greedy is not better for leaving something out.
    std::mt19937_64 random(2);
    for (int i = 0; i < 200; ++i) {
        const Problem problem = random_problem(random, 3, 150);
        double unit_seconds = 0;  // the most that one unit can cost
        for (const Operation& operation : problem.operations) {
            for (const PhaseWork* work : {&operation.decode, &operation.prefill}) {
                unit_seconds = std::max(unit_seconds, 12 * operation.unit_bytes * work->crossings /
                                                          problem.rates.direct);
            }
        }
        const double rounding = unit_seconds * static_cast<double>(problem.operations.size());
        EXPECT_LE(exact_seconds(problem), problem.seconds(problem.greedy()) + rounding);
    }
}

/// Decode alone, each byte read once: the paper's setting.
Problem paper_problem(std::mt19937_64& random) {
    Problem problem = random_problem(random, 8, 100);
    for (Operation& operation : problem.operations) {
        operation.prefill.steps = 0;
        operation.decode.read_bytes = operation.stored_bytes();
        const double stream = operation.stored_bytes() / operation.decode.local_bytes_per_second;
        operation.decode.compute_seconds =
            random() % 2 == 0 ? 0
                              : stream * std::uniform_real_distribution<double>(1.001, 6)(random);
    }
    return problem;
}

bool memory_bound(const Operation& operation) { return operation.decode.compute_seconds == 0; }

/// Bytes up to the turning points of the memory-bound operations, and of all.
std::pair<double, double> threshold_bytes(const Problem& problem) {
    double memory = 0, all = 0;
    for (const Operation& operation : problem.operations) {
        const double bytes = turning_point(operation, problem.rates) * operation.stored_bytes();
        all += bytes;
        if (memory_bound(operation)) memory += bytes;
    }
    return {memory, all};
}

/// A random division of `total` bytes in which operation i gets at most `most[i]`.
std::vector<double> random_division(std::mt19937_64& random, const std::vector<double>& most,
                                    double total) {
    std::vector<double> bytes(most.size(), 0.0);
    std::vector<size_t> order(most.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::shuffle(order, random);
    for (const size_t i : order) {
        bytes[i] = std::min(most[i], total);
        total -= bytes[i];
    }
    return bytes;
}

TEST(Allocation, Theorem1MemoryBoundOperationsFirstInAnyDivision) {
    std::mt19937_64 random(3);
    for (int i = 0; i < 1000; ++i) {
        Problem problem = paper_problem(random);
        const auto [memory, all] = threshold_bytes(problem);
        problem.offload_units = static_cast<int64_t>(
            std::uniform_real_distribution<double>(0, 1)(random) * memory / 1e6);
        const std::vector<double> bytes = problem.greedy();
        std::vector<double> most;
        for (size_t k = 0; k < bytes.size(); ++k) {
            const Operation& operation = problem.operations[k];
            const double limit = turning_point(operation, problem.rates) * operation.stored_bytes();
            most.push_back(memory_bound(operation) ? limit : 0);
            EXPECT_LE(bytes[k], most.back() * (1 + 1e-9) + 1e-3);
        }
        const auto other =
            random_division(random, most, 1e6 * static_cast<double>(problem.offload_units));
        EXPECT_NEAR(problem.seconds(other), problem.seconds(bytes), 1e-9 * problem.seconds(bytes));
    }
}

TEST(Allocation, Theorem2ThenComputeBoundOnesUpToTheirThreshold) {
    std::mt19937_64 random(4);
    for (int i = 0; i < 1000; ++i) {
        Problem problem = paper_problem(random);
        const auto [memory, all] = threshold_bytes(problem);
        const double share = std::uniform_real_distribution<double>(0, 1)(random);
        const auto units = static_cast<int64_t>((memory + share * (all - memory)) / 1e6);
        problem.offload_units = std::max(units, static_cast<int64_t>(std::ceil(memory / 1e6)));
        if (1e6 * static_cast<double>(problem.offload_units) > all) continue;
        const std::vector<double> bytes = problem.greedy();
        std::vector<double> most;
        double left = 1e6 * static_cast<double>(problem.offload_units);
        for (size_t k = 0; k < bytes.size(); ++k) {
            const Operation& operation = problem.operations[k];
            const double limit = turning_point(operation, problem.rates) * operation.stored_bytes();
            if (memory_bound(operation)) {
                EXPECT_NEAR(bytes[k], limit, 1e-6 * limit);
                left -= limit;
            } else {
                EXPECT_LE(bytes[k], limit * (1 + 1e-9) + 1e-3);
            }
            most.push_back(memory_bound(operation) ? 0 : limit);
        }
        auto other = random_division(random, most, left);
        for (size_t k = 0; k < bytes.size(); ++k) {
            if (memory_bound(problem.operations[k])) other[k] = bytes[k];
        }
        EXPECT_NEAR(problem.seconds(other), problem.seconds(bytes), 1e-9 * problem.seconds(bytes));
    }
}

TEST(Allocation, Theorem3BeyondAllThresholdsAnyDivisionIsOptimal) {
    std::mt19937_64 random(5);
    for (int i = 0; i < 1000; ++i) {
        Problem problem = paper_problem(random);
        const auto [memory, all] = threshold_bytes(problem);
        const auto least = static_cast<int64_t>(std::ceil(all / 1e6));
        if (least > problem.units()) continue;
        problem.offload_units =
            least +
            static_cast<int64_t>(random() % static_cast<uint64_t>(problem.units() - least + 1));
        const std::vector<double> bytes = problem.greedy();
        std::vector<double> room, limits;
        for (size_t k = 0; k < bytes.size(); ++k) {
            const Operation& operation = problem.operations[k];
            limits.push_back(turning_point(operation, problem.rates) * operation.stored_bytes());
            room.push_back(operation.stored_bytes() - limits.back());
            EXPECT_GE(bytes[k], limits.back() * (1 - 1e-9));
        }
        auto other =
            random_division(random, room, 1e6 * static_cast<double>(problem.offload_units) - all);
        for (size_t k = 0; k < bytes.size(); ++k) other[k] += limits[k];
        EXPECT_NEAR(problem.seconds(other), problem.seconds(bytes), 1e-9 * problem.seconds(bytes));
    }
}

TEST(Allocation, FillsStretchesOfEqualSlopeEvenly) {
    const std::vector<CostCurve> curves = {{{100, -1}, {100, 1}}, {{300, -1}}, {{50, 0}}};
    const auto early = allocate_greedy(curves, 200);
    EXPECT_DOUBLE_EQ(early[0], 50);
    EXPECT_DOUBLE_EQ(early[1], 150);
    EXPECT_DOUBLE_EQ(early[2], 0);
    const auto all = allocate_greedy(curves, 1e9);
    EXPECT_DOUBLE_EQ(all[0] + all[1] + all[2], 550);
    const PhaseBytes bytes = phases(curves);
    EXPECT_DOUBLE_EQ(bytes.gaining, 400);
    EXPECT_DOUBLE_EQ(bytes.free, 50);
    EXPECT_DOUBLE_EQ(bytes.costing, 100);
}

TEST(Allocation, TurningPoints) {
    Operation operation;
    operation.units = 1000;
    operation.unit_bytes = 1'000'000;
    operation.decode.read_bytes = 1e9;
    operation.decode.local_bytes_per_second = 4e12;
    TransportRates rates;
    rates.direct = 450e9;
    EXPECT_NEAR(turning_point(operation, rates), 450.0 / 4450, 1e-12);
    operation.decode.compute_seconds = 1e9 / 1e12;  // 1 TB/s of weights
    EXPECT_NEAR(turning_point(operation, rates), 0.45, 1e-12);
    operation.decode.compute_seconds = 1;
    EXPECT_DOUBLE_EQ(turning_point(operation, rates), 1);
}

}  // namespace
}  // namespace dak
