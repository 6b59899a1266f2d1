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
  static int stat(const Db& db, const std::string& name) {
    const std::string stats = " " + db.all("pragma memlith_stats");
    const std::size_t at = stats.find(" " + name + "=");
    return at != std::string::npos ? std::atoi(stats.c_str() + at + name.size() + 2) : -1;
  }
  static int made_behind(const Db& db) { return stat(db, "checkpoints_behind"); }
  [[nodiscard]] Db another(int limit, int bytes_max = -1) const {
    Db db = open();
    EXPECT_EQ(db.all("pragma wal_autocheckpoint=" + std::to_string(limit)), std::to_string(limit));
    EXPECT_EQ(db.all("pragma journal_size_limit=" + std::to_string(bytes_max)), std::to_string(bytes_max));
    return db;
  }
  [[nodiscard]] std::uintmax_t log_frames() const {
    constexpr std::uintmax_t kFrameBytes = 1024 + 24;
    return std::filesystem::file_size(path_ + "-wal") / kFrameBytes;
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

// Each writer waits for its flush and reads its log until then, and another one commits meanwhile. A commit makes its
// own checkpoint from eight limits on; what others commit meanwhile is in flight.
TEST_F(SharedCheckpoint, TheLogOfBusyWritersBeginsAnew) {
  constexpr int kLimit = 60;
  constexpr int kCommits = 1500;
  const Db db = make_with_limit(kLimit);
  const auto write = [&] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([this] {
        const Db mine = another(kLimit);
        for (int i = 0; i < kCommits; ++i) EXPECT_RUNS(mine, "update n set v = v + 1");
      });
    }
    for (std::thread& each : threads) each.join();
  };
  write();
  EXPECT_EQ(db.all("select v from n"), std::to_string(4 * kCommits));
  EXPECT_LT(log_frames(), 16U * kLimit) << db.all("pragma memlith_stats");
  EXPECT_EQ(after_cut(), 4 * kCommits);
  core::active_mutant = core::Mutant::shared_never_begin_anew;
  write();
  EXPECT_GT(log_frames(), 16U * kLimit) << "it grows, unless the line is held for a commit";
}

TEST_F(SharedCheckpoint, AReaderPinsTheLogUntilItEnds) {
  constexpr int kLimit = 40;
  constexpr int kBytesMax = 20'000;
  const Db db = make_with_limit(kLimit);
  const Db reader = open();
  ASSERT_RUNS(reader, "begin; select v from n");
  EXPECT_EQ(stat(db, "pinned"), 0);
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const Db mine = another(kLimit, kBytesMax);
      while (!ends) EXPECT_RUNS(mine, "update n set v = v + 1");
    });
  }
  EXPECT_TRUE(comes([&] { return stat(db, "pinned") > 0 && stat(db, "log_frames") > 20 * kLimit; }));
  EXPECT_LT(stat(db, "stored_frames"), kLimit) << "the log keeps what the reader may look at";
  EXPECT_EQ(reader.all("select v from n"), "0");
  EXPECT_RUNS(reader, "commit");
  EXPECT_TRUE(comes([&] { return log_frames() * 1048 <= kBytesMax + 4 * kLimit * 1048; }))
      << db.all("pragma memlith_stats");
  ends = true;
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(integrity(db), "ok");
}

// A checkpoint for which the line was held never comes: the program took SQLite's own away meanwhile.
TEST_F(SharedCheckpoint, ALineThatIsHeldInVainIsLetGo) {
  constexpr int kLimit = 40;
  const Db db = make_with_limit(kLimit);
  const Db other = open();
  ASSERT_RUNS(db, add_rows(2 * kLimit));
  ASSERT_TRUE(comes([&] { return stat(db, "stored_frames") == stat(db, "log_frames"); }));
  const Db reader = open();  // so that the log does not begin anew
  ASSERT_RUNS(reader, "begin; select v from n");
  ASSERT_RUNS(db, "pragma wal_autocheckpoint=0");
  sqlite3_busy_timeout(other.get(), 0);
  for (int i = 1; i < 6; ++i) {
    ASSERT_RUNS(db, transfer(i));
    EXPECT_EQ(db.all("select v from n"), std::to_string(i));
    ASSERT_RUNS(other, transfer(-i));
  }
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
  handover.end();
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
