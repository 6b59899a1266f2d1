// Mode shared: checkpoints at the end of commits, which a thread makes.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "shared_fixture.hpp"
#include "sqlite/src/shared/connection.hpp"

namespace memlith::test {
namespace {

using sqlite::shared::Handover;

class SharedCheckpoint : public SharedPage {
 protected:
  // The database, with SQLite's own checkpoints when the log has `limit` frames.
  [[nodiscard]] Db make_with_limit(int limit) const {
    Db db = make();
    EXPECT_RUNS(db, "create table t(v)");
    EXPECT_EQ(db.all("pragma wal_checkpoint(truncate)"), "0|0|0");
    EXPECT_EQ(db.all("pragma wal_autocheckpoint=" + std::to_string(limit)), std::to_string(limit));
    return db;
  }
  // Rows of 900 bytes, one on each page.
  static std::string add_rows(int count) {
    return "with recursive n(i) as (select 1 union all select i + 1 from n where i < " + std::to_string(count) +
           ") insert into t select zeroblob(900) from n";
  }
  static int made_behind(const Db& db) {
    const std::string stats = db.all("pragma memlith_stats");
    constexpr std::string_view kName = "checkpoints_behind=";
    return std::atoi(stats.c_str() + stats.find(kName) + kName.size());
  }
};

TEST_F(SharedCheckpoint, ACommitLeavesItToTheThread) {
  Db db = make_with_limit(50);
  const std::string before = read_file(path_);
  std::atomic<int> flushes_of_committer{0};
  const auto me = std::this_thread::get_id();
  Medium::get().during_flush = [&](const std::string& name) {
    if (std::this_thread::get_id() == me && name == path_) ++flushes_of_committer;
  };
  ASSERT_RUNS(db, add_rows(100));
  EXPECT_EQ(flushes_of_committer, 0) << "the commit did not wait for the database";
  EXPECT_TRUE(comes([&] { return made_behind(db) == 1; }));
  EXPECT_EQ(db.all("select count(*) from t"), "100");
  EXPECT_GT(std::filesystem::file_size(path_), before.size()) << "the rows are in the database";
  const std::string log = db.all("pragma wal_checkpoint(passive)");
  ASSERT_RUNS(db, transfer(1));
  EXPECT_EQ(log.substr(0, 2), "0|");
  EXPECT_NE(db.all("pragma wal_checkpoint(passive)"), log) << "the next commit began the log anew";
  Medium::get().during_flush = nullptr;
  EXPECT_EQ(after_cut(), 1);
}

TEST_F(SharedCheckpoint, TheLogOfOneConnectionDoesNotGrow) {
  constexpr int kLimit = 40;
  Db db = make_with_limit(kLimit);
  ASSERT_RUNS(db, "pragma synchronous=normal");
  std::uintmax_t largest = 0;
  for (int i = 1; i <= 2000; ++i) {
    ASSERT_RUNS(db, transfer(i));
    largest = std::max(largest, std::filesystem::file_size(path_ + "-wal"));
  }
  // Commits make their own checkpoints when the thread is eight limits behind; a transaction has three frames.
  constexpr std::uintmax_t kFrameBytes = 1024 + 24;
  EXPECT_LE(largest, 32 + (8 * kLimit + 3) * kFrameBytes);
  EXPECT_GT(made_behind(db), 0);
}

TEST_F(SharedCheckpoint, TheProgramsOwnIsNotLeft) {
  Db db = make_with_limit(20);
  for (int i = 0; i < 100; ++i) {
    ASSERT_RUNS(db, add_rows(30));
    ASSERT_EQ(db.all("pragma wal_checkpoint(truncate)"), "0|0|0") << "round " << i;
    ASSERT_EQ(db.run("delete from t"), SQLITE_OK);
    int frames = 0;
    int stored = -1;
    ASSERT_EQ(sqlite3_wal_checkpoint_v2(db.get(), "main", SQLITE_CHECKPOINT_PASSIVE, &frames, &stored), SQLITE_OK);
    ASSERT_EQ(frames, stored) << "round " << i;
  }
  EXPECT_GT(made_behind(db), 0);
}

TEST_F(SharedCheckpoint, AHookOfTheProgramDecidesForItself) {
  Db db = make_with_limit(20);
  int calls = 0;
  sqlite3_wal_hook(
      db.get(),
      [](void* count, sqlite3* of, const char* schema, int) {
        ++*static_cast<int*>(count);
        int frames = 0;
        int stored = -1;
        EXPECT_EQ(sqlite3_wal_checkpoint_v2(of, schema, SQLITE_CHECKPOINT_PASSIVE, &frames, &stored), SQLITE_OK);
        EXPECT_EQ(frames, stored);
        return SQLITE_OK;
      },
      &calls);
  for (int i = 0; i < 5; ++i) ASSERT_RUNS(db, add_rows(30));
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(made_behind(db), 0);
  ASSERT_RUNS(db, "pragma wal_autocheckpoint=0");
  ASSERT_RUNS(db, add_rows(30));
  EXPECT_EQ(made_behind(db), 0);
}

TEST_F(SharedCheckpoint, TheLastConnectionThatClosesLeavesNoLog) {
  Db made = make_with_limit(20);
  ASSERT_EQ(made.close(), SQLITE_OK);
  for (int i = 0; i < 100; ++i) {
    Db db("file:" + path_ + "?share=1", "memlith");
    ASSERT_OPEN(db);
    ASSERT_RUNS(db, "pragma wal_autocheckpoint=20");
    ASSERT_RUNS(db, add_rows(30));
    if (i % 2 != 0) ::usleep(static_cast<useconds_t>(i) * 10);  // the thread has begun
    ASSERT_EQ(db.close(), SQLITE_OK);
    ASSERT_FALSE(std::filesystem::exists(path_ + "-wal")) << "round " << i;
    ASSERT_FALSE(std::filesystem::exists(path_ + "-memlith")) << "round " << i;
  }
  const Db plain(path_, "unix");
  EXPECT_EQ(plain.all("select count(*) from t"), "3000");
  EXPECT_EQ(integrity(plain), "ok");
}

// Threads commit and read while checkpoints are made behind them, and one opens the database and closes it.
TEST_F(SharedCheckpoint, ConnectionsComeAndGoBesideIt) {
  Db db = make_with_limit(30);
  std::vector<std::thread> threads;
  constexpr int kRounds = 150;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([this] {
      Db mine("file:" + path_ + "?share=1", "memlith");
      sqlite3_busy_timeout(mine.get(), 30000);
      EXPECT_RUNS(mine, "pragma wal_autocheckpoint=30");
      for (int i = 0; i < kRounds; ++i) {
        EXPECT_RUNS(mine,
                    "begin immediate; update a set v = v - 1; update b set v = v + 1; update n set v = v + 1; commit");
      }
    });
  }
  threads.emplace_back([this] {
    for (int i = 0; i < kRounds; ++i) {
      Db mine("file:" + path_ + "?share=1", "memlith");
      sqlite3_busy_timeout(mine.get(), 30000);
      EXPECT_EQ(mine.all("select (select v from a) + (select v from b)"), "0");
      EXPECT_EQ(mine.close(), SQLITE_OK);
    }
  });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(db.all("select v from n"), std::to_string(2 * kRounds));
  EXPECT_EQ(integrity(db), "ok");
  EXPECT_EQ(after_cut(), 2 * kRounds);
}

TEST_F(SharedCheckpoint, AHoldWaitsForWhatIsInHand) {
  Handover handover;
  ASSERT_TRUE(handover.begin());
  EXPECT_FALSE(handover.begin()) << "one at a time";
  std::atomic<bool> has_it{false};
  std::thread holder([&] {
    const Handover::Hold hold(handover);
    has_it = true;
    EXPECT_FALSE(handover.begin()) << "none while one holds";
  });
  EXPECT_TRUE(comes([&] { return handover.is_held(); }));
  EXPECT_FALSE(has_it);
  handover.end(0);
  holder.join();
  EXPECT_TRUE(handover.begin());
  handover.end(UINT64_C(3'600'000'000'000));
  EXPECT_FALSE(handover.begin()) << "after one that was in vain";
}

TEST_F(SharedCheckpoint, ASqliteWithoutThreadsHasNone) {
  sqlite::Api api = linked_api();
  EXPECT_TRUE(sqlite::shared::Checkpointer::can_use(api));
  api.mutex_alloc = [](int) { return reinterpret_cast<sqlite3_mutex*>(8); };  // as with SQLITE_CONFIG_SINGLETHREAD
  EXPECT_FALSE(sqlite::shared::Checkpointer::can_use(api));
  api = linked_api();
  api.threadsafe = [] { return 0; };
  EXPECT_FALSE(sqlite::shared::Checkpointer::can_use(api));
  api = linked_api();
  api.wal_checkpoint_v2 = nullptr;
  EXPECT_FALSE(sqlite::shared::Checkpointer::can_use(api));
}

}  // namespace
}  // namespace memlith::test
