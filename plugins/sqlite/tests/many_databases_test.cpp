// docs/sqlite.md, "Many databases": what an open database costs in descriptors, threads and memory.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "support/process_memory.hpp"
#include "support/temp_folder.hpp"
#include "words.hpp"

namespace memlith::test {
namespace {

constexpr std::uint64_t kDescriptorsEach = 3;
constexpr std::uint64_t kThreadsOfAll = 7;  // store/background.hpp
constexpr std::uint64_t kBytesEach = 1024 * 1024;

TEST(ManyDatabases, AHundredCostLittleEach) {
  constexpr std::uint64_t kCount = 100;
  (void)registered_vfs();
  const TempFolder folder;
  {
    const Db first("file:" + (folder / "first.db"), "memlith");  // what the process needs once
    ASSERT_RUNS(first, "create table t(a); insert into t values(1)");
  }
  const std::uint64_t descriptors = descriptor_count();
  const std::uint64_t threads = thread_count();
  const std::uint64_t bytes = resident_bytes();
  std::vector<Db> all;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    Db& db = all.emplace_back("file:" + (folder / (std::to_string(i) + ".db")) + "?log_mib=1", "memlith");
    ASSERT_RUNS(db, "create table t(a integer primary key, v); insert into t values(1, zeroblob(2000))");
    for (int round = 0; round < 3; ++round) ASSERT_RUNS(db, "update t set v = randomblob(2000)");
  }
  const double each = static_cast<double>(kCount);
  std::printf("each of %.0f databases: %.2f descriptors, %.2f threads, %.0f KiB resident\n", each,
              static_cast<double>(descriptor_count() - descriptors) / each,
              static_cast<double>(thread_count() - threads) / each,
              static_cast<double>(resident_bytes() - bytes) / 1024 / each);
  EXPECT_LE(descriptor_count(), descriptors + kDescriptorsEach * kCount + 2);
  EXPECT_LE(thread_count(), threads + kThreadsOfAll);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(resident_bytes(), bytes + kBytesEach * kCount);
#endif
  all.clear();
  EXPECT_EQ(thread_count_down_to(threads), threads);
  EXPECT_EQ(descriptor_count(), descriptors);
}

}  // namespace
}  // namespace memlith::test
