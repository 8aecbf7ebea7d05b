#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <optional>

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
        testing_support::write_llama(*folder, {2048, 5632, 12, 32000});
    }
    ASSERT_EQ(cudaFree(nullptr), cudaSuccess);  // the driver's own memory comes first
    for (const double ratio : {0.0, 0.3}) {
        const Loading loading =
            testing_support::measure_loading(model, TierMemory::gpu_and("host"), ratio);
        std::cout << loading << ", ratio " << ratio << "\n";
        EXPECT_LE(loading.extra_bytes, loading.bytes / 20 + kGiB) << ratio;
        EXPECT_GE(loading.relative_rate(), 0.8) << ratio;
    }
}

}  // namespace
}  // namespace dak
