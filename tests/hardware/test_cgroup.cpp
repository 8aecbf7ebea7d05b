#include <gtest/gtest.h>

#include "base/units.h"
#include "fixture_tree.h"
#include "hardware/cgroup.h"

namespace dak {
namespace {

TEST(Cgroup, NothingWithoutCgroups) {
    const FixtureTree tree;
    const CgroupLimits limits = read_cgroup_limits(tree.root());
    EXPECT_EQ(limits.version, 0);
    EXPECT_FALSE(limits.memory);
    EXPECT_FALSE(limits.cpus);
}

class CgroupV2 : public testing::Test {
  protected:
    CgroupV2() {
        tree_.add("proc/self/mountinfo",
                  "24 1 0:22 / /proc rw - proc proc rw\n"
                  "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw");
        tree_.add("proc/self/cgroup", "0::/work.slice/job.scope");
        tree_.add("sys/fs/cgroup/cgroup.controllers", "cpu memory");
        set("work.slice/", "max", "max 100000");
        set("work.slice/job.scope/", "max", "max 100000");
    }

    void set(const std::string& group, const std::string& memory_max, const std::string& cpu_max) {
        const std::string directory = "sys/fs/cgroup/" + group;
        tree_.add(directory + "memory.max", memory_max);
        tree_.add(directory + "memory.current", "3000");
        tree_.add(directory + "memory.stat", "anon 1500\ninactive_file 1000\nactive_file 500");
        tree_.add(directory + "cpu.max", cpu_max);
    }

    FixtureTree tree_;
};

TEST_F(CgroupV2, MaxIsNoLimit) {
    const CgroupLimits limits = read_cgroup_limits(tree_.root());
    EXPECT_EQ(limits.version, 2);
    EXPECT_FALSE(limits.memory);
    EXPECT_FALSE(limits.cpus);
}

TEST_F(CgroupV2, LimitWithoutDroppableCache) {
    set("work.slice/job.scope/", "10000", "250000 100000");
    const CgroupLimits limits = read_cgroup_limits(tree_.root());
    ASSERT_TRUE(limits.memory);
    EXPECT_EQ(limits.memory->limit_bytes, 10000);
    EXPECT_EQ(limits.memory->used_bytes, 2000);
    EXPECT_EQ(limits.memory->left_bytes(), 8000);
    EXPECT_EQ(limits.cpus, 2.5);
}

TEST_F(CgroupV2, AncestorsBindToo) {
    set("work.slice/", "5000", "100000 100000");
    set("work.slice/job.scope/", "10000", "400000 100000");
    const CgroupLimits limits = read_cgroup_limits(tree_.root());
    ASSERT_TRUE(limits.memory);
    EXPECT_EQ(limits.memory->limit_bytes, 5000);
    EXPECT_EQ(limits.cpus, 1.0);
}

TEST_F(CgroupV2, OverTheLimitLeavesNothing) {
    set("work.slice/job.scope/", "1000", "max 100000");
    EXPECT_EQ(read_cgroup_limits(tree_.root()).memory->left_bytes(), 0);
}

TEST_F(CgroupV2, ContainerNamespaceShowsItsGroupAsTheRoot) {
    tree_.add("proc/self/cgroup", "0::/");
    tree_.add("sys/fs/cgroup/memory.max", "7000");
    ASSERT_TRUE(read_cgroup_limits(tree_.root()).memory);
    EXPECT_EQ(read_cgroup_limits(tree_.root()).memory->limit_bytes, 7000);
}

TEST_F(CgroupV2, GroupOutsideTheNamespaceStaysInTheTree) {
    tree_.add("sys/memory.max", "1");  // what ".." would reach
    tree_.add("proc/self/cgroup", "0::/../../other");
    tree_.add("sys/fs/cgroup/memory.max", "7000");
    EXPECT_EQ(read_cgroup_limits(tree_.root()).memory->limit_bytes, 7000);
}

/// Docker without a cgroup namespace: the group's path is the host's, the mount shows it as root.
class CgroupV1 : public testing::Test {
  protected:
    CgroupV1() {
        tree_.add("proc/self/mountinfo",
                  "33 31 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup "
                  "rw,cpu,cpuacct\n"
                  "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro master:19 - cgroup cgroup "
                  "rw,memory\n"
                  "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw");
        tree_.add("proc/self/cgroup",
                  "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n0::/");
        tree_.add("sys/fs/cgroup/memory/memory.usage_in_bytes", "4000");
        tree_.add("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 3000");
        tree_.add("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
        tree_.add("sys/fs/cgroup/unified/cgroup.procs", "");
    }
    FixtureTree tree_;
};

TEST_F(CgroupV1, HugeNumberIsNoLimit) {
    tree_.add("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
    tree_.add("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
    const CgroupLimits limits = read_cgroup_limits(tree_.root());
    EXPECT_EQ(limits.version, 1);
    EXPECT_FALSE(limits.memory);
    EXPECT_FALSE(limits.cpus);
}

TEST_F(CgroupV1, ReadsLimits) {
    tree_.add("sys/fs/cgroup/memory/memory.limit_in_bytes", "8000");
    tree_.add("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000");
    const CgroupLimits limits = read_cgroup_limits(tree_.root());
    ASSERT_TRUE(limits.memory);
    EXPECT_EQ(limits.memory->limit_bytes, 8000);
    EXPECT_EQ(limits.memory->used_bytes, 1000);
    EXPECT_EQ(limits.cpus, 1.5);
}

TEST_F(CgroupV1, NestedGroupBelowTheMount) {
    tree_.add("proc/self/cgroup", "4:memory:/docker/abc/inner\n0::/");
    tree_.add("sys/fs/cgroup/memory/memory.limit_in_bytes", "8000");
    tree_.add("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "6000");
    tree_.add("sys/fs/cgroup/memory/inner/memory.usage_in_bytes", "5500");
    EXPECT_EQ(read_cgroup_limits(tree_.root()).memory->limit_bytes, 6000);
}

}  // namespace
}  // namespace dak
