#include <gtest/gtest.h>

#include <algorithm>

#include "memory/split_tensor.h"

namespace dak {
namespace {

TEST(SplitTensor, EveryAtomHasItsOwnPlaceInTheRightTier) {
    const PackedShape shape{200, 130, DType::kBF16};
    ASSERT_EQ(shape.atoms(), 12);
    for (int64_t remote_atoms = 0; remote_atoms <= shape.atoms(); ++remote_atoms) {
        Arena local = Arena::host("local", shape.bytes());
        Arena remote = Arena::host("remote", shape.bytes());
        const SplitTensor tensor = allocate_split(shape, remote_atoms, local, remote);
        EXPECT_EQ(remote.used_bytes(), remote_atoms * kAtomBytes);
        EXPECT_EQ(local.used_bytes() + remote.used_bytes(), shape.bytes());
        for (int64_t atom = 0; atom < shape.atoms(); ++atom) {
            const bool is_remote = atom < remote_atoms;
            EXPECT_EQ(tensor.tier_of(atom), is_remote ? Tier::kRemote : Tier::kLocal);
            const std::byte* expected = is_remote
                                            ? remote.base() + atom * kAtomBytes
                                            : local.base() + (atom - remote_atoms) * kAtomBytes;
            EXPECT_EQ(tensor.atom(atom), expected);
        }
    }
}

TEST(SplitTensor, RefusesImpossibleSplits) {
    Arena local = Arena::host("local", kMiB);
    Arena remote = Arena::host("remote", kMiB);
    EXPECT_THROW(allocate_split({64, 64, DType::kBF16}, 2, local, remote), Error);
    EXPECT_THROW(allocate_split({64, 64, DType::kBF16}, -1, local, remote), Error);
}

TEST(Arena, WritersKeepWhatIsThere) {
    Arena arena = Arena::host("weights", 20 * kMiB);
    std::byte* memory = arena.allocate(20 * kMiB);
    std::fill_n(memory, 20 * kMiB, std::byte{7});
    const auto writers = arena.writers(2);
    ASSERT_EQ(writers.size(), 2);
    writers[1]->write(memory + kMiB, 1, [](std::byte* target) { *target = std::byte{8}; });
    writers[1]->finish();
    EXPECT_EQ(std::count(memory, memory + 20 * kMiB, std::byte{7}), 20 * kMiB - 1);
    EXPECT_EQ(memory[kMiB], std::byte{8});
}

TEST(Arena, RefusesMoreThanItHas) {
    Arena arena = Arena::host("weights", 4096);
    EXPECT_NE(arena.allocate(1), nullptr);
    EXPECT_EQ(arena.allocate(3072) - arena.base(), 1024);
    EXPECT_THROW(arena.allocate(1), Error);
}

}  // namespace
}  // namespace dak
