#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/error.h"
#include "ops/cpu/parallel.h"
#include "ops/ops.h"

namespace dak::ops {
namespace {

TEST(ParallelFor, EveryIndexOnceWhateverTheThreads) {
    for (const int threads : {1, 2, 3, 8}) {
        set_num_threads(threads);
        for (int round = 0; round < 2000; ++round) {
            std::vector<std::atomic<int>> calls(static_cast<size_t>(round % 17));
            parallel_for(static_cast<int64_t>(calls.size()),
                         [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
            for (const auto& count : calls) ASSERT_EQ(count, 1);
        }
    }
    set_num_threads(0);
}

TEST(ParallelFor, MayBeNestedAndCalledFromSeveralThreads) {
    set_num_threads(3);
    std::atomic<int> calls = 0;
    std::vector<std::thread> callers;
    for (int i = 0; i < 4; ++i) {
        callers.emplace_back([&] {
            for (int round = 0; round < 100; ++round) {
                parallel_for(5, [&](int64_t) { parallel_for(3, [&](int64_t) { ++calls; }); });
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(calls, 4 * 100 * 15);
    set_num_threads(0);
}

TEST(ParallelFor, RefusesNegativeThreads) { EXPECT_THROW(set_num_threads(-1), Error); }

}  // namespace
}  // namespace dak::ops
