#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "model/loading.h"

// A program of its own: it looks at the memory of its process.

namespace dak {
namespace {

using testing_support::Loading;

TEST(Loading, HoldsNothingTwiceAndReadsAtTheRateOfTheFiles) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer takes memory of its own";
#endif
    const testing_support::TempFolder folder;
    testing_support::write_llama(folder, {1024, 2816, 8, 8000});
    const Loading loading =
        testing_support::measure_loading(folder.path(), TierMemory::on_host(), 0.3);
    const double rate =
        testing_support::reading_seconds(folder.path(), Arena::host) / loading.seconds;
    std::cout << loading << fmt::format(", {:.2f} of the rate of reading alone\n", rate);
    EXPECT_GT(loading.bytes, 200 * kMiB);
    EXPECT_LE(loading.extra_bytes, loading.bytes / 20 + 32 * kMiB);
    // Other work on the machine can make any time long.
    if (std::getenv("DAK_TEST_SPEED") != nullptr) {
        EXPECT_GE(rate, 0.8);
    }
}

}  // namespace
}  // namespace dak
