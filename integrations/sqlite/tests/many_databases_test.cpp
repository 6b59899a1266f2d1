// docs/sqlite.md, "Many databases": what an open database costs in descriptors, threads and memory.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
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
constexpr std::uint64_t kBytesOnce = 1024 * 1024;  // of the allocator, for a few databases

// True if the process may have that number of descriptors; asks for them if it may not yet.
bool may_have_descriptors(std::uint64_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  if (limit.rlim_cur >= count) return true;
  limit.rlim_cur = std::min<rlim_t>(count, limit.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= count;
}

class ManyDatabases : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(ManyDatabases, CostLittleEach) {
  const std::uint64_t count = GetParam();
  if (!may_have_descriptors(kDescriptorsEach * count + 200)) GTEST_SKIP() << "RLIMIT_NOFILE is too low";
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
  for (std::uint64_t i = 0; i < count; ++i) {
    Db& db = all.emplace_back("file:" + (folder / (std::to_string(i) + ".db")) + "?log_mib=1", "memlith");
    ASSERT_RUNS(db, "create table t(a integer primary key, v); insert into t values(1, zeroblob(2000))");
    for (int round = 0; round < 3; ++round) ASSERT_RUNS(db, "update t set v = randomblob(2000)");
  }
  const double each = static_cast<double>(count);
  std::printf("each of %.0f databases: %.2f descriptors, %.2f threads, %.0f KiB resident\n", each,
              static_cast<double>(descriptor_count() - descriptors) / each,
              static_cast<double>(thread_count() - threads) / each,
              static_cast<double>(resident_bytes() - bytes) / 1024 / each);
  EXPECT_LE(descriptor_count(), descriptors + kDescriptorsEach * count + 4);
  EXPECT_LE(thread_count(), threads + kThreadsOfAll);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(resident_bytes(), bytes + kBytesOnce + kBytesEach * count);
#endif
  all.clear();
  EXPECT_EQ(thread_count_down_to(threads), threads);
  EXPECT_EQ(descriptor_count(), descriptors);
}

// A thousand take a while: MEMLITH_DATABASES=1000.
std::vector<std::uint64_t> counts() {
  const char* const asked = std::getenv("MEMLITH_DATABASES");
  if (asked != nullptr) return {std::strtoull(asked, nullptr, 10)};
  return {10, 100};
}

INSTANTIATE_TEST_SUITE_P(Of, ManyDatabases, ::testing::ValuesIn(counts()), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace memlith::test
