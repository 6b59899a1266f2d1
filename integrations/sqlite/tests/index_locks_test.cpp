// The locks of the wal-index answer as those of SQLite's own VFS do.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>

#include "base/random.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"
#include "words.hpp"

namespace memlith::test {
namespace {

constexpr int kLocks = 8;
constexpr int kIndexBytes = 32768;

// Three connections of one database, down to their files.
class Index {
 public:
  static constexpr std::size_t kConnections = 3;
  Index(const std::string& path, const char* vfs) {
    for (Db& db : connections_) db = Db(path, vfs);
    EXPECT_RUNS(connections_[0], "create table t(a)");
  }
  int map(std::size_t who) {
    volatile void* memory = nullptr;
    return file(who)->pMethods->xShmMap(file(who), 0, kIndexBytes, 1, &memory);
  }
  int unmap(std::size_t who) { return file(who)->pMethods->xShmUnmap(file(who), 0); }
  int lock(std::size_t who, int first, int count, int flags) {
    return file(who)->pMethods->xShmLock(file(who), first, count, flags);
  }

 private:
  sqlite3_file* file(std::size_t who) {
    sqlite3_file* found = nullptr;
    EXPECT_EQ(sqlite3_file_control(connections_[who].get(), "main", SQLITE_FCNTL_FILE_POINTER, &found), SQLITE_OK);
    return found;
  }
  std::array<Db, kConnections> connections_;
};

class IndexLocks : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { (void)registered_vfs(); }
  TempFolder folder_;
  Index plain_{folder_ / "plain.db", "unix"};
  Index ours_{folder_ / "ours.db", "memlith"};
  void both_map(std::size_t who) {
    ASSERT_EQ(plain_.map(who), SQLITE_OK);
    ASSERT_EQ(ours_.map(who), SQLITE_OK);
  }
  // The answer of both.
  std::optional<int> both_lock(std::size_t who, int first, int count, int flags) {
    const int expected = plain_.lock(who, first, count, flags);
    const int found = ours_.lock(who, first, count, flags);
    EXPECT_EQ(found, expected) << "connection " << who << ", locks " << first << " to " << first + count - 1
                               << ", flags " << flags;
    return found == expected ? std::optional(found) : std::nullopt;
  }
};

TEST_F(IndexLocks, ASharedOneDoesNotBecomeExclusive) {
  if (kSanitized) GTEST_SKIP() << "SQLite's unix VFS keeps memory of locks that are misused, which counts as a leak";
  both_map(0);
  ASSERT_EQ(both_lock(0, 3, 1, SQLITE_SHM_LOCK | SQLITE_SHM_SHARED), SQLITE_OK);
  EXPECT_EQ(both_lock(0, 3, 1, SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE), SQLITE_BUSY);
  EXPECT_EQ(both_lock(0, 2, 3, SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE), SQLITE_BUSY);
  ASSERT_EQ(both_lock(0, 3, 1, SQLITE_SHM_UNLOCK | SQLITE_SHM_SHARED), SQLITE_OK);
  EXPECT_EQ(both_lock(0, 3, 1, SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE), SQLITE_OK);
  EXPECT_EQ(both_lock(0, 3, 1, SQLITE_SHM_LOCK | SQLITE_SHM_SHARED), SQLITE_BUSY);
}

TEST_F(IndexLocks, ThereAreNoneWithoutTheIndex) {
  EXPECT_EQ(both_lock(0, 4, 1, SQLITE_SHM_LOCK | SQLITE_SHM_SHARED), SQLITE_IOERR_SHMLOCK);
  EXPECT_EQ(both_lock(0, 4, 1, SQLITE_SHM_UNLOCK | SQLITE_SHM_SHARED), SQLITE_IOERR_SHMLOCK);
  both_map(0);
  EXPECT_EQ(both_lock(0, 4, 1, SQLITE_SHM_LOCK | SQLITE_SHM_SHARED), SQLITE_OK);
  EXPECT_EQ(both_lock(1, 4, 1, SQLITE_SHM_LOCK | SQLITE_SHM_SHARED), SQLITE_IOERR_SHMLOCK);
  EXPECT_EQ(both_lock(0, 4, 1, SQLITE_SHM_UNLOCK | SQLITE_SHM_SHARED), SQLITE_OK);
  ASSERT_EQ(plain_.unmap(0), SQLITE_OK);
  ASSERT_EQ(ours_.unmap(0), SQLITE_OK);
  EXPECT_EQ(both_lock(0, 4, 1, SQLITE_SHM_LOCK | SQLITE_SHM_SHARED), SQLITE_IOERR_SHMLOCK);
}

// Requests of any kind; unlocked is what the connection holds, as SQLite does it.
TEST_F(IndexLocks, AnyRequests) {
  if (kSanitized) GTEST_SKIP() << "SQLite's unix VFS keeps memory of locks that are misused, which counts as a leak";
  const char* const given = std::getenv("MEMLITH_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("replay with MEMLITH_SEED=%llu\n", static_cast<unsigned long long>(seed));
  core::Random random(seed);
  const auto up_to = [&](std::size_t most) { return static_cast<std::size_t>(random.below(most + 1)); };
  std::array<std::array<int, kLocks>, Index::kConnections> held{};  // flags of each lock
  for (std::size_t who = 0; who < Index::kConnections; ++who) both_map(who);
  int busy = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::size_t who = up_to(Index::kConnections - 1);
    const bool exclusive = up_to(1) == 0;
    const int mode = exclusive ? SQLITE_SHM_EXCLUSIVE : SQLITE_SHM_SHARED;
    const auto first = up_to(kLocks - 1);
    auto count = exclusive ? 1 + up_to(kLocks - 1 - first) : 1;
    auto* const mine = &held[who][first];
    if (up_to(1) == 0) {
      std::size_t same = 0;
      while (same < count && mine[same] == mode) ++same;
      if (same == 0) continue;
      count = same;
      ASSERT_EQ(both_lock(who, static_cast<int>(first), static_cast<int>(count), SQLITE_SHM_UNLOCK | mode), SQLITE_OK);
      std::fill_n(mine, count, 0);
      continue;
    }
    const auto code = both_lock(who, static_cast<int>(first), static_cast<int>(count), SQLITE_SHM_LOCK | mode);
    ASSERT_TRUE(code.has_value()) << "round " << round;
    if (*code == SQLITE_OK) std::fill_n(mine, count, mode);
    busy += *code == SQLITE_BUSY ? 1 : 0;
  }
  EXPECT_GT(busy, 500);
}

}  // namespace
}  // namespace memlith::test
