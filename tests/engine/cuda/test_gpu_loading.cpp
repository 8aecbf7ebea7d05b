#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <vector>

#include "model/loading.h"

// A program of its own: it looks at the memory of its process. DAK_TEST_MODEL names a model folder
// to load instead of a random one.

namespace dak {
namespace {

using testing_support::Loading;

TEST(GpuLoading, HoldsNothingTwiceAndReadsAtTheRateOfTheFiles) {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) GTEST_SKIP() << "no GPU";
    std::optional<testing_support::TempFolder> folder;
    std::filesystem::path model;
    if (const char* given = std::getenv("DAK_TEST_MODEL")) {
        model = given;
    } else {
        model = folder.emplace().path();
        // 4 GiB, or 1.3 where the disk is small.
        const bool large = std::filesystem::space(model).available > uint64_t{8 * kGiB};
        testing_support::write_llama(*folder, {4096, 11008, large ? 9 : 2, 32000});
    }
    ASSERT_EQ(cudaFree(nullptr), cudaSuccess);  // the driver's own memory comes first
    const TierMemory memory = TierMemory::gpu_and("host");
    constexpr std::array<double, 2> kRatios = {0.0, 0.3};
    std::vector<Loading> loadings;
    for (const double ratio : kRatios) {
        loadings.push_back(testing_support::measure_loading(model, memory, ratio));
    }
    const double read = testing_support::reading_seconds(model, memory.remote);
    const auto upload = testing_support::measure_upload(memory.local, loadings.front().bytes);
    std::cout << fmt::format(
        "| reading alone {:.3f} s, into fresh memory {:.3f} s; copying to the GPU alone {:.3f} s "
        "after {:.3f} s to start\n",
        read, testing_support::reading_seconds(model, Arena::host), upload.copy_seconds,
        upload.start_seconds);
    for (size_t i = 0; i < kRatios.size(); ++i) {
        const Loading& loading = loadings[i];
        // Local bytes are read and copied: from the page cache the link is the slower.
        const double least = std::max(read, (1 - kRatios[i]) * upload.copy_seconds);
        std::cout << loading
                  << fmt::format(", {:.2f} of the rate of reading and of copying alone\n",
                                 least / loading.seconds);
        EXPECT_LE(loading.extra_bytes, loading.bytes / 20 + kGiB);
        EXPECT_GE(least / loading.seconds, 0.8);
    }
}

}  // namespace
}  // namespace dak
