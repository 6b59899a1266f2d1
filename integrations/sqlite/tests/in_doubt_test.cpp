// docs/guarantees.md, "SQLite with the engine", and docs/sqlite.md, "Several writers": threads commit, and read, while
// flushes are under way, on the simulated disk. What each connection was told is written down with the number of
// operations that the disk had seen by then; no power cut from there on takes it back. Then flushes fail.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/random.hpp"
#include "mutants/mutants.hpp"
#include "sim/power_cuts.hpp"
#include "sim_world.hpp"
#include "support/crash_world.hpp"

namespace memlith::test {
namespace {

using core::CrashPoints;
using core::PowerCuts;
using core::Random;
using core::SimFaults;
using core::SimTrace;
using core::SimVolume;

constexpr const char* kName = "/simulated/app.db";
constexpr int kWriters = 3;

Db connect() {
  Db db(kName, kSimVfs);
  EXPECT_OPEN(db);
  sqlite3_busy_timeout(db.get(), 60000);
  return db;
}

// A connection was told this number, a commit's, when the disk had seen so many operations.
struct Told {
  int number;
  std::size_t operation;
};

// Writers that count, readers that look, and connections that look inside an empty transaction.
class Crowd {
 public:
  explicit Crowd(int commits_each, const std::string& setting = "") : volume_({}, true), setting_(setting) {
    sim_world().volume = &volume_;
    volume_.before_transfer = [] { std::this_thread::sleep_for(std::chrono::microseconds(300)); };
    first_ = connect();
    EXPECT_RUNS(first_,
                "pragma page_size = 512; pragma journal_mode = wal; create table t(id integer primary key, n);"
                "insert into t values(1, 0), (2, zeroblob(2000));" +
                    setting_);
    made_ = volume_.operations();
    left_ = kWriters * commits_each;
  }
  ~Crowd() {
    first_.close();
    sim_world().volume = nullptr;
  }
  Crowd(const Crowd&) = delete;

  void run() {
    std::vector<std::thread> threads;
    for (int i = 0; i < kWriters; ++i) threads.emplace_back([this] { write(); });
    threads.emplace_back([this] { look("select n from t where id = 1"); });
    threads.emplace_back([this] { look("begin immediate; select n from t where id = 1; commit"); });
    for (std::thread& thread : threads) thread.join();
  }

  // How many power cuts take back what a connection was told.
  std::uint64_t explore(std::uint64_t seed) {
    first_.close();
    const SimTrace trace = volume_.trace();
    Random random(seed);
    std::uint64_t violations = 0;
    for (CrashPoints points(trace, made_); points.next();) {
      if (points.medium().pending_count() == 0) continue;
      int promised = 0;
      for (const Told& each : told_)
        promised = each.operation <= points.at() ? std::max(promised, each.number) : promised;
      for (PowerCuts cuts(points.medium(), {1, 2}, random); cuts.next();) {
        SimVolume cut(cuts.image(), true);
        const int found = number_on(cut);
        if (found < promised || found > started_) ++violations;
      }
    }
    return violations;
  }

  [[nodiscard]] SimVolume& volume() { return volume_; }
  [[nodiscard]] Db& first() { return first_; }
  [[nodiscard]] int failures() const { return failures_; }
  [[nodiscard]] int newest_told() const {
    int newest = 0;
    for (const Told& each : told_) newest = std::max(newest, each.number);
    return newest;
  }
  [[nodiscard]] std::size_t told() const { return told_.size(); }
  [[nodiscard]] int started() const { return started_; }

 private:
  // -1 if the database cannot be read, or is damaged.
  int number_on(SimVolume& volume) {
    sim_world().volume = &volume;
    int number = -1;
    {
      const Db db(kName, kSimVfs);
      if (integrity(db) == "ok") number = std::atoi(db.all("select n from t where id = 1").c_str());
    }
    sim_world().volume = &volume_;
    return number;
  }
  void tell(const std::string& number) {
    const std::size_t operation = volume_.operations();
    const std::lock_guard lock(mutex_);
    told_.push_back({std::atoi(number.c_str()), operation});
  }
  void write() {
    const Db db = connect();
    if (db.run(setting_ + "pragma user_version") != SQLITE_OK) {
      ++failures_;  // another one's flush has failed before it began
      return;
    }
    while (left_.fetch_sub(1) > 0) {
      ++started_;
      const std::string number =
          db.all("begin immediate; update t set n = n + 1 where id = 1; select n from t where id = 1; commit");
      if (number.starts_with("error")) {
        ++failures_;
        left_ = 0;
        (void)db.run("rollback");
        return;
      }
      tell(number);
    }
  }
  void look(const std::string& sql) {
    const Db db = connect();
    while (left_ > 0) {
      const std::string number = db.all(sql);
      if (number.starts_with("error")) {
        if (sqlite3_get_autocommit(db.get()) == 0) (void)db.run("rollback");
        return;
      }
      tell(number);
    }
  }

  SimVolume volume_;
  std::string setting_;
  Db first_;
  std::size_t made_ = 0;
  std::atomic<int> left_{0};
  std::atomic<int> started_{0};
  std::atomic<int> failures_{0};
  std::mutex mutex_;
  std::vector<Told> told_;
};

class InDoubt : public ::testing::Test {
 protected:
  void TearDown() override { core::active_mutant = core::Mutant::none; }
};

TEST_F(InDoubt, NoConnectionIsToldWhatAPowerCutTakesBack) {
  Crowd crowd(12, "pragma wal_autocheckpoint = 5;");
  crowd.run();
  EXPECT_EQ(crowd.failures(), 0);
  EXPECT_EQ(crowd.newest_told(), kWriters * 12);
  EXPECT_GT(crowd.told(), std::size_t{kWriters} * 12);
  EXPECT_EQ(crowd.explore(seed_for_this_run()), 0u);
}

// Each mutant is noticed.
TEST_F(InDoubt, MutantsAreNoticed) {
  using core::Mutant;
  for (const Mutant mutant : {Mutant::skip_commit_wait, Mutant::skip_seen_wait, Mutant::skip_reader_wait}) {
    std::uint64_t violations = 0;
    for (std::uint64_t attempt = 0; attempt < 20 && violations == 0; ++attempt) {
      core::active_mutant = mutant;
      Crowd crowd(8);
      crowd.run();
      core::active_mutant = core::Mutant::none;
      violations = crowd.explore(attempt);
    }
    EXPECT_GT(violations, 0u);
  }
}

// Commits in doubt fail, no reader sees them before the database is opened again, and no acknowledged commit is
// lost.
TEST_F(InDoubt, AFailedFlushShowsNothingInDoubt) {
  int struck = 0;
  int several = 0;
  int refused = 0;
  for (std::uint64_t nth = 0; nth < 12; ++nth) {
    Crowd crowd(8, "pragma wal_autocheckpoint = 3;");
    crowd.volume().faults().plan(SimFaults::Kind::fail_flush, nth);
    crowd.run();
    if (crowd.volume().faults().fired() == 0) continue;
    ++struck;
    several += crowd.failures() > 1 ? 1 : 0;
    EXPECT_GT(crowd.failures(), 0);
    sqlite_log.clear();
    const std::string shown = crowd.first().all("select n from t where id = 1");
    refused += shown.starts_with("error") ? 1 : 0;
    EXPECT_EQ(crowd.first().run("update t set n = 1000 where id = 1") & 0xff, SQLITE_IOERR);
    crowd.first().close();
    crowd.volume().faults().clear();
    Db again = connect();
    const int found = std::atoi(again.all("select n from t where id = 1").c_str());
    EXPECT_GE(found, crowd.newest_told()) << nth;
    EXPECT_LE(found, crowd.started());
    EXPECT_TRUE(shown.starts_with("error") || std::atoi(shown.c_str()) <= found) << nth << shown;
    EXPECT_RUNS(again, "update t set n = n + 1 where id = 1");
    EXPECT_EQ(integrity(again), "ok");
  }
  EXPECT_GT(struck, 5);
  EXPECT_GT(refused, 5);
  EXPECT_GT(several, 0);  // commits in doubt of several connections at once
}

// After a failed flush: a transaction that began before it reads on, and no other begins, whatever it has in its cache,
// until all connections are closed. Nothing in doubt leaves SQLite's log.
TEST_F(InDoubt, NoCheckpointStoresWhatIsInDoubt) {
  SimVolume volume;
  sim_world().volume = &volume;
  {
    Db writer = connect();
    ASSERT_RUNS(writer,
                "pragma page_size = 512; pragma journal_mode = wal; create table t(n); insert into t values(0)");
    Db before = connect();
    ASSERT_RUNS(before, "begin; select * from t");
    Db other = connect();
    ASSERT_RUNS(other, "select * from t");
    Db latest = connect();
    ASSERT_RUNS(latest, "pragma memlith_read = latest; select * from t");
    volume.faults().plan(SimFaults::Kind::fail_flush, 0);
    EXPECT_EQ(writer.run("update t set n = 1") & 0xff, SQLITE_IOERR);
    EXPECT_EQ(sqlite3_extended_errcode(writer.get()), SQLITE_IOERR_FSYNC);
    EXPECT_EQ(before.all("select n from t"), "0");
    EXPECT_RUNS(before, "commit");
    for (const Db* const each : {&writer, &before, &other, &latest}) {
      for (const char* const sql : {"select n from t", "begin immediate", "update t set n = 2",
                                    "pragma wal_checkpoint = passive", "pragma wal_checkpoint = truncate"}) {
        EXPECT_EQ(each->run(sql) & 0xff, SQLITE_IOERR) << sql;
      }
    }
    for (Db* const each : {&before, &other, &latest}) each->close();
    EXPECT_EQ(writer.run("pragma journal_mode = delete") & 0xff, SQLITE_IOERR);
    EXPECT_EQ(writer.run("select n from t") & 0xff, SQLITE_IOERR);
  }
  volume.faults().clear();
  {
    Db again = connect();
    const std::string found = again.all("select n from t");
    EXPECT_TRUE(found == "0" || found == "1") << found;
    EXPECT_RUNS(again, "update t set n = 3");
    EXPECT_EQ(again.all("select n from t"), "3");
  }
  sim_world().volume = nullptr;
}

// Transfers that wait until they are let go.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    if (!shut_) return;
    arrived_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(20), [this] { return !shut_; });
  }
  void shut() {
    const std::lock_guard lock(mutex_);
    shut_ = true;
    arrived_ = false;
  }
  void await_arrival() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return arrived_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    shut_ = false;
    changed_.notify_all();
  }
  [[nodiscard]] bool is_open() {
    const std::lock_guard lock(mutex_);
    return !shut_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool shut_ = false;
  bool arrived_ = false;
};

// While a commit waits for its flush: the next writer builds on it, readers and checkpoints wait, whatever they read,
// and a reader that asks for the latest state does not.
TEST_F(InDoubt, AReaderWaitsAndAWriterDoesNot) {
  Gate gate;
  SimVolume volume;
  sim_world().volume = &volume;
  volume.before_transfer = [&gate] { gate.pass(); };
  {
    const Db first = connect();
    ASSERT_RUNS(first,
                "pragma page_size = 512; pragma journal_mode = wal; create table t(n); insert into t values(0); create "
                "table u(n)");
    const Db second = connect();
    ASSERT_RUNS(second, "select * from t");
    const Db third = connect();
    ASSERT_RUNS(third, "select * from t");
    const Db latest = connect();
    ASSERT_RUNS(latest, "pragma memlith_read = latest; select * from t");
    gate.shut();
    std::atomic<bool> early{false};
    std::vector<std::thread> threads;
    threads.emplace_back([&] {
      EXPECT_RUNS(first, "begin; update t set n = 1; create table v(n); pragma user_version = 7; commit");
      early = early || !gate.is_open();
    });
    gate.await_arrival();
    ASSERT_RUNS(latest, "begin immediate; update t set n = n + 1");
    EXPECT_EQ(latest.all("select n from t"), "2");
    ASSERT_RUNS(latest, "rollback");
    EXPECT_EQ(latest.all("select n from t"), "1");
    EXPECT_FALSE(gate.is_open());
    const auto wait = [&](const char* sql, const char* expected) {
      threads.emplace_back([&early, &gate, sql, expected] {
        const Db db = connect();
        EXPECT_EQ(db.all(sql), expected);
        early = early || !gate.is_open();
      });
    };
    wait("select n from t", "1");
    wait("pragma user_version", "7");
    wait("select count(*) from sqlite_schema", "3");
    wait("begin immediate; select n from t; commit", "1");
    threads.emplace_back([&] {
      EXPECT_RUNS(third, "pragma wal_checkpoint");
      early = early || !gate.is_open();
    });
    // Their caches have pages that they read without waiting.
    threads.emplace_back([&] {
      EXPECT_RUNS(latest, "pragma memlith_read = durable");
      EXPECT_EQ(latest.all("select n from t"), "1");
      early = early || !gate.is_open();
    });
    threads.emplace_back([&] {
      EXPECT_RUNS(second, "begin immediate; select n from t; rollback");
      EXPECT_EQ(second.all("select n from t"), "1");
      early = early || !gate.is_open();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // long enough to be early
    gate.open();
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(early);
  }
  sim_world().volume = nullptr;
}

}  // namespace
}  // namespace memlith::test
