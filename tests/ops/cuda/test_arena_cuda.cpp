#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "memory/arena.h"

namespace dak {
namespace {

bool has_gpu() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

/// In more pieces than a writer has buffers.
void write(const Arena& arena, std::byte* to, const std::vector<std::byte>& from) {
    constexpr int64_t kPiece = kMiB / 4;
    const auto writers = arena.writers(1);
    ArenaWriter& writer = *writers.front();
    const auto size = static_cast<int64_t>(from.size());
    for (int64_t at = 0; at < size; at += kPiece) {
        const int64_t bytes = std::min(kPiece, size - at);
        writer.write(to + at, bytes, [&](std::byte* target) {
            std::memcpy(target, from.data() + at, static_cast<size_t>(bytes));
        });
    }
    writer.finish();
}

TEST(CudaArena, DeviceMemoryHoldsWhatIsCopiedIn) {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
    Arena arena = Arena::device("weights", 3 * kMiB);
    std::byte* memory = arena.allocate(2 * kMiB);
    const std::vector<std::byte> in(2 * kMiB, std::byte{0x5a});
    std::vector<std::byte> out(2 * kMiB);
    ASSERT_EQ(cudaMemcpy(memory, in.data(), in.size(), cudaMemcpyDefault), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(out.data(), memory, out.size(), cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(in, out);
}

TEST(CudaArena, ThreadsWriteWithTheGpuOfTheArena) {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) GTEST_SKIP() << "no GPU";
    const int gpu = gpus - 1;  // a new thread's is 0, so one GPU shows little
    ASSERT_EQ(cudaSetDevice(gpu), cudaSuccess);
    Arena own = Arena::device("weights", 2 * kMiB);
    Arena peer = Arena::peer("remote weights", 2 * kMiB, 0);
    std::vector<std::byte> in(2 * kMiB - 5);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i % 251);
    for (Arena* arena : {&own, &peer}) {
        std::byte* memory = arena->allocate(2 * kMiB);
        int used = -1;
        std::thread([&] {
            write(*arena, memory, in);
            cudaGetDevice(&used);
        }).join();
        EXPECT_EQ(used, gpu) << arena->name();
        std::vector<std::byte> out(in.size());
        ASSERT_EQ(cudaMemcpy(out.data(), memory, out.size(), cudaMemcpyDefault), cudaSuccess);
        EXPECT_EQ(in, out) << arena->name();
    }
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST(CudaArena, PinnedHostMemoryIsReadableByTheGpu) {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
    // Large enough that several threads touch it.
    const int64_t bytes = kGiB + 2 * kMiB;
    Arena host = Arena::pinned_host("offloaded weights", bytes);
    std::byte* memory = host.allocate(bytes);
    std::memset(memory + kGiB - kMiB, 0x17, 2 * kMiB);
    Arena device = Arena::device("copy", 2 * kMiB);
    std::byte* copy = device.allocate(2 * kMiB);
    ASSERT_EQ(cudaMemcpy(copy, memory + kGiB - kMiB, 2 * kMiB, cudaMemcpyDefault), cudaSuccess);
    std::vector<std::byte> out(2 * kMiB);
    ASSERT_EQ(cudaMemcpy(out.data(), copy, out.size(), cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(out, std::vector<std::byte>(2 * kMiB, std::byte{0x17}));
    cudaPointerAttributes attributes{};
    ASSERT_EQ(cudaPointerGetAttributes(&attributes, memory), cudaSuccess);
    EXPECT_EQ(attributes.devicePointer, memory);
}

TEST(CudaArena, PeerMemoryIsReadableByTheGpu) {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < 2) GTEST_SKIP() << "one GPU";
    Arena peer = Arena::remote("peer:1", "offloaded weights", 2 * kMiB);
    Arena local = Arena::device("copy", 2 * kMiB);
    std::byte* memory = peer.allocate(2 * kMiB);
    std::byte* copy = local.allocate(2 * kMiB);
    const std::vector<std::byte> in(2 * kMiB, std::byte{0x2b});
    write(peer, memory, in);
    ASSERT_EQ(cudaMemcpy(copy, memory, 2 * kMiB, cudaMemcpyDefault), cudaSuccess);
    std::vector<std::byte> out(2 * kMiB);
    ASSERT_EQ(cudaMemcpy(out.data(), copy, out.size(), cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(out, in);
    cudaPointerAttributes attributes{};
    ASSERT_EQ(cudaPointerGetAttributes(&attributes, memory), cudaSuccess);
    EXPECT_EQ(attributes.device, 1);
    int current = -1;
    ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, 0);
}

TEST(CudaArena, RefusesAPeerThatIsNotThere) {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
    try {
        Arena::remote("peer:99", "KV cache", kMiB);
        FAIL() << "memory of GPU 99";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("there is no GPU 99"), std::string::npos)
            << error.what();
    }
}

TEST(CudaArena, RefusalSaysHowMuchWasAsked) {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
    try {
        Arena::device("KV cache", int64_t{1} << 50);
        FAIL() << "a PiB was granted";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("KV cache"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("GiB"), std::string::npos) << error.what();
    }
}

TEST(CudaArena, EmptyArenasNeedNoGpu) {
    EXPECT_EQ(Arena::device("none", 0).capacity_bytes(), 0);
    EXPECT_EQ(Arena::pinned_host("none", 0).capacity_bytes(), 0);
}

}  // namespace
}  // namespace dak
