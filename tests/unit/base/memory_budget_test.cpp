// A process keeps to the memory that its control groups leave it.
#include "base/memory_budget.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/units.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

using namespace core;

// The kernel's files, as a machine or a container shows them.
class AllowedMemory : public ::testing::Test {
 protected:
  void put(const std::string& file, const std::string& text) {
    const std::filesystem::path path = folder_.path() + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::uint64_t allowed() { return memory_allowed(folder_.path()); }

  TempFolder folder_;
  const std::uint64_t machine_ = memory_allowed(folder_.path());
};

TEST_F(AllowedMemory, IsTheMachinesWithoutGroups) {
  EXPECT_GT(machine_, 64 * kMiB);
  put("/proc/self/cgroup", "0::/\n");
  put("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(allowed(), machine_);
}

TEST_F(AllowedMemory, IsTheSmallestLimitFromTheGroupUp) {
  put("/proc/self/cgroup", "0::/slice/service\n");
  put("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  put("/sys/fs/cgroup/slice/service/memory.max", "max\n");
  put("/sys/fs/cgroup/slice/memory.max", std::to_string(32 * kMiB) + "\n");
  EXPECT_EQ(allowed(), 32 * kMiB);
  put("/sys/fs/cgroup/slice/service/memory.max", std::to_string(16 * kMiB) + "\n");
  EXPECT_EQ(allowed(), 16 * kMiB);
}

// Version 1, in a container that sees its group's name from the machine's root and only its own folder.
TEST_F(AllowedMemory, IsFoundInAContainerOfVersionOne) {
  put("/proc/self/cgroup", "7:pids:/docker/abc\n5:cpu,memory:/docker/abc\n0::/\n");
  put("/proc/self/mountinfo",
      "41 30 0:35 /docker/abc /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n"
      "42 30 0:36 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,cpu,memory\n");
  put("/sys/fs/cgroup/pids/memory.limit_in_bytes", "1\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(48 * kMiB) + "\n");
  EXPECT_EQ(allowed(), 48 * kMiB);
}

// Half of it is for copies; the other half is what the page cache has of them.
TEST(MemoryBudget, IsUsedUpByHalf) {
  EXPECT_FALSE(MemoryBudget(100).used_up(49));
  EXPECT_TRUE(MemoryBudget(100).used_up(50));
}

TEST(MemoryBudget, OnesThatWereNotToldShare) {
  const MemoryBudget one(0);
  const std::uint64_t half = (memory_allowed() - 64 * kMiB) / 2;
  EXPECT_FALSE(one.used_up(half - 1));
  EXPECT_TRUE(one.used_up(half));
  {
    const MemoryBudget other(0);
    const MemoryBudget told(100);
    EXPECT_TRUE(one.used_up(half / 2));
  }
  EXPECT_FALSE(one.used_up(half / 2));
}

}  // namespace
}  // namespace memlith::test
