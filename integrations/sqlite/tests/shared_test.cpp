// Mode shared: the control block by itself, and connections over a medium that loses what was not flushed, with a
// process that is killed at each step. Each planted mistake has to be noticed.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>
#include <thread>

#include "shared_fixture.hpp"
#include "sqlite/src/shared/connection.hpp"

namespace memlith::test {
namespace {

using sqlite::shared::Group;
using sqlite::shared::LockQueue;
using sqlite::shared::Position;
using sqlite::shared::Waiter;

// ---- the page -----------------------------------------------------------------------------------------------------

TEST_F(SharedPage, IsMadeAnewWhereNoProcessUsesIt) {
  write_file(path_, "");
  write_file(path_ + "-memlith", std::string(100'000, 'x'));
  auto first = attach(path_);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->control().durable.load(), 0u);
  first->control().durable.store(77);
  auto second = attach(path_);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->control().durable.load(), 77u) << "the page of those that are there";
  first = nullptr;
  EXPECT_TRUE(std::filesystem::exists(path_ + "-memlith"));
  second = nullptr;
  EXPECT_FALSE(std::filesystem::exists(path_ + "-memlith"));
}

TEST_F(SharedPage, OfAnotherVersionIsNotUsed) {
  Db db = make();
  {
    const auto other = attach(path_);
    std::fstream file(path_ + "-memlith", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(sizeof(core::shm::SegmentHead::magic));  // the layout
    file.put(1).flush();
    EXPECT_FALSE(sqlite::shared::Sidecar::attach(path_).ok());
  }
  Db plain = open();
  ASSERT_RUNS(plain, transfer(1));
  EXPECT_EQ(after_cut(), 1);
}

// Where no file can be made beside the database, everything is as with plain SQLite.
TEST_F(SharedPage, IsNotNeeded) {
  std::filesystem::create_directory(path_ + "-memlith");
  Db db = make();
  EXPECT_NE(db.all("pragma memlith_stats").find("control_block=none"), std::string::npos);
  ASSERT_RUNS(db, transfer(1));
  EXPECT_EQ(after_cut(), 1);
}

class NoLog final : public sqlite::shared::Log {
 public:
  [[nodiscard]] std::optional<Position> newest() const override { return end; }
  int flush() override {
    if (during) during();
    ++flushes;
    return code;
  }
  std::function<void()> during;
  Position end{1, 1};
  std::atomic<int> flushes{0};
  int code = SQLITE_OK;
};

TEST_F(SharedPage, OneFlushServesAllThatWereThereBefore) {
  write_file(path_, "");
  const auto mine = attach(path_);
  const auto others = attach(path_);
  Group here(*mine);
  Group there(*others);
  NoLog log;
  log.end = {7, 3};
  EXPECT_EQ(here.await(Position{7, 1}, 0, log), SQLITE_OK);
  EXPECT_EQ(there.await(Position{7, 3}, 0, log), SQLITE_OK);
  EXPECT_EQ(log.flushes, 1);
  EXPECT_FALSE(here.is_durable(Position{7, 4}));
  EXPECT_FALSE(here.is_durable(Position{8, 1})) << "another generation";
  EXPECT_EQ(there.await(std::nullopt, 0, log), SQLITE_OK);
  EXPECT_EQ(log.flushes, 2) << "of what cannot be told nothing is known";
  log.end = {8, 1};
  EXPECT_EQ(there.await(Position{7, 5}, 0, log), SQLITE_OK);
  EXPECT_EQ(log.flushes, 3) << "SQLite began another generation meanwhile";
  log.code = SQLITE_IOERR_FSYNC;
  EXPECT_EQ(there.await(Position{7, 4}, 0, log), SQLITE_IOERR_FSYNC);
  log.code = SQLITE_OK;
  EXPECT_EQ(here.await(Position{7, 5}, 0, log), SQLITE_IOERR_FSYNC) << "a failed flush is failed for all";
}

// A flush is asked for while one is in flight, which may have begun before the last write.
TEST_F(SharedPage, AFlushInFlightDoesNotCountForWhatWasWrittenSince) {
  for (const bool planted : {false, true}) {
    core::active_mutant = planted ? core::Mutant::shared_trust_earlier_flush : core::Mutant::none;
    write_file(path_, "");
    const auto page = attach(path_);
    ASSERT_EQ(page->try_lead(false), 0u);  // one other leader is left
    const auto mine = attach(path_);
    const auto others = attach(path_);
    Group here(*mine);
    Group there(*others);
    NoLog log;
    NoLog other;
    std::atomic<bool> follows{false};
    std::atomic<int> steps{0};
    std::thread second;
    log.during = [&] {
      constexpr int kUntilItFollows = 20;
      at_step() = [&] { follows = ++steps > kUntilItFollows; };
      second = std::thread([&] { EXPECT_EQ(there.flush(other), SQLITE_OK); });
      EXPECT_TRUE(comes([&] { return follows.load(); }));
    };
    EXPECT_EQ(here.flush(log), SQLITE_OK);
    second.join();
    at_step() = nullptr;
    EXPECT_EQ(other.flushes, planted ? 0 : 1);
  }
}

// A leader was killed in its flush, whose failure it alone may have been told.
TEST_F(SharedPage, CommitsBehindAnAbandonedFlushAreNotBelieved) {
  write_file(path_, "");
  const auto sidecar = attach(path_);
  Group group(*sidecar);
  NoLog log;
  log.end = {7, 3};
  sidecar->control().flights[0].number.store(1);
  const std::uint32_t before = group.mark();
  EXPECT_EQ(group.await(Position{7, 3}, before, log), SQLITE_OK);
  EXPECT_EQ(sidecar->control().abandoned.load(), 1u);
  EXPECT_TRUE(group.is_durable(Position{7, 3}));
  NoLog other;
  other.end = {7, 3};
  EXPECT_EQ(group.await(Position{7, 3}, before, other), SQLITE_OK);
  EXPECT_EQ(other.flushes, 1) << "what it wrote before has to be flushed by itself";
  EXPECT_EQ(group.await(Position{7, 3}, group.mark(), other), SQLITE_OK);
  EXPECT_EQ(other.flushes, 1) << "what it writes now need not";
}

// How often a connection that comes again and again gets the lock while another one sleeps.
int passes(const std::string& path, int most) {
  const auto sidecar = attach(path);
  LockQueue line(*sidecar);
  Waiter patient;
  std::atomic<bool> over{false};
  std::thread waits([&] {
    while (!over) line.wait(patient, std::chrono::seconds(20), [&] { return over.load(); });
  });
  while (sidecar->control().slots[0].waiting.load() == 0 || sidecar->control().slots[0].awake.load() != 0) {
    std::this_thread::yield();
  }
  Waiter eager;
  int count = 0;
  while (count < most && line.may_ask(eager)) {
    line.took(eager);
    (void)line.choose();  // the call is lost: its process was killed
    ++count;
  }
  over = true;
  sidecar->control().promise.store(0);
  const std::uint32_t next = line.choose();
  line.call(next);
  waits.join();
  line.leave(patient);
  return count;
}

TEST_F(SharedPage, NoWaiterIsPassedOverMoreThanEightTimes) {
  write_file(path_, "");
  EXPECT_LE(passes(path_, 100), 8);
  core::active_mutant = core::Mutant::shared_never_promise;
  EXPECT_GT(passes(path_, 100), 8) << "a planted mistake is not noticed";
}

TEST_F(SharedPage, APromiseToADeadProcessEnds) {
  write_file(path_, "");
  const auto sidecar = attach(path_);
  LockQueue line(*sidecar);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto own = attach(path_);
    LockQueue its(*own);
    Waiter waiter;
    at_step() = [&] {
      if (own->control().slots[0].waiting.load() != 0) ::raise(SIGKILL);
    };
    its.wait(waiter, std::chrono::seconds(5), [] { return false; });
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  sidecar->control().slots[0].waiting.store(1);
  sidecar->control().slots_used.store(1);
  Waiter mine;
  line.took(mine);
  sidecar->control().slots[0].passed.store(0);
  sidecar->control().slots[0].awake.store(1);
  EXPECT_EQ(line.choose(), 0u);
  while (!line.may_ask(mine)) std::this_thread::yield();
  EXPECT_EQ(line.choose(), sqlite::shared::kSlots) << "a dead process is chosen again";
  // One that was passed over too often is not even promised it: one that lives may be due as well.
  sidecar->control().slots[0].waiting.store(1);
  sidecar->control().slots[0].passed.store(9);
  EXPECT_EQ(line.choose(), sqlite::shared::kSlots);
  EXPECT_EQ(sidecar->control().slots[0].waiting.load(), 0u);
}

// ---- connections over a medium that loses what was not flushed ----------------------------------------------------

// A commit that returned is on the medium.
bool commit_is_kept(const std::function<int()>& commit, const std::function<int()>& after_cut) {
  return commit() != SQLITE_OK || after_cut() == 1;
}

TEST_F(SharedPage, ACommitThatReturnedIsDurable) {
  for (const bool planted : {false, true}) {
    core::active_mutant = planted ? core::Mutant::shared_skip_commit_wait : core::Mutant::none;
    std::filesystem::remove(path_);
    Db db = make();
    EXPECT_EQ(commit_is_kept([&] { return db.run(transfer(1)); }, [&] { return after_cut(); }), !planted);
  }
}

TEST_F(SharedPage, AFailedFlushFailsEveryCommitInDoubt) {
  Db db = make();
  Db reader = open();
  ASSERT_RUNS(db, transfer(0));  // begins a generation of the log
  Medium::get().flushes_fail = true;
  EXPECT_EQ(db.run(transfer(1)), SQLITE_IOERR_FSYNC);
  Medium::get().flushes_fail = false;  // what the kernel could not write it has forgotten
  EXPECT_EQ(reader.run("select v from n"), SQLITE_IOERR_FSYNC) << "it sees a commit in doubt";
  EXPECT_NE(db.run("rollback; " + transfer(2)), SQLITE_OK);
  Db other = open();
  EXPECT_NE(other.run(transfer(3)), SQLITE_OK) << "a later one, too";
  EXPECT_TRUE(sqlite_log.told("is known when all connections")) << sqlite_log.all();
  for (Db* each : {&db, &reader, &other}) EXPECT_EQ(each->close(), SQLITE_OK);
  Db again = open();
  EXPECT_EQ(integrity(again), "ok");
  ASSERT_RUNS(again, transfer(4));
  EXPECT_EQ(after_cut(), 4);
}

TEST_F(SharedPage, AFailedFlushIsNotForgotten) {
  core::active_mutant = core::Mutant::shared_forget_failure;
  Db db = make();
  Medium::get().flushes_fail = true;
  EXPECT_FALSE(commit_is_kept([&] { return db.run(transfer(1)); }, [&] { return after_cut(); }))
      << "a planted mistake is not noticed";
}

// At each step of a commit, another connection reads, and the power goes: what it was shown is there.
int lost_reads(const std::function<Db()>& make, const std::function<Db()>& open,
               const std::function<int()>& after_cut) {
  int lost = 0;
  for (int stop = 0;; ++stop) {
    Db db = make();
    Db reader = open();
    EXPECT_RUNS(reader, "select v from n");
    int step = 0;
    at_step() = [&] {
      if (step++ != stop) return;
      const int before = step;
      const std::string seen = reader.all("select v from n");
      if (!seen.starts_with("error") && after_cut() < std::stoi(seen)) ++lost;
      step = before;
    };
    EXPECT_RUNS(db, "begin immediate; update a set v = v - 1; update b set v = v + 1; update n set v = 1; commit");
    at_step() = nullptr;
    if (step <= stop) return lost;
  }
}

// docs/guarantees.md, "SQLite in mode shared": no cut takes back what a reader was told.
TEST_F(SharedPage, AReaderSeesDurableRowsOnly) {
  int round = 0;
  const auto fresh = [&] {
    path_ = folder_ / ("app" + std::to_string(++round) + ".db");
    return make();
  };
  EXPECT_EQ(lost_reads(fresh, [&] { return open(); }, [&] { return after_cut(); }), 0);
  EXPECT_GT(lost_reads(
                fresh, [&] { return open("read=latest"); }, [&] { return after_cut(); }),
            0)
      << "read=latest is shown what is not durable yet";
  core::active_mutant = core::Mutant::shared_skip_reader_wait;
  EXPECT_GT(lost_reads(
                fresh, [&] { return open(); }, [&] { return after_cut(); }),
            0)
      << "a planted mistake is not "
         "noticed";
}

// A transaction that was rolled back leaves pages in its connection's cache, which may be of commits in doubt.
TEST_F(SharedPage, WhatARolledBackTransactionReadIsWaitedForLater) {
  Db db = make();
  Db writer = open();
  Db normal = open("", "normal");
  ASSERT_RUNS(normal, transfer(1));  // not flushed
  ASSERT_RUNS(db, "begin immediate; select * from n; rollback");
  EXPECT_EQ(db.all("select v from n"), "1");
  EXPECT_EQ(after_cut(), 1);
}

// A second commit becomes visible while the flush of the first is under way.
TEST_F(SharedPage, ACommitDuringAFlushNeedsAnother) {
  for (const bool planted : {false, true}) {
    core::active_mutant = planted ? core::Mutant::shared_look_after_flush : core::Mutant::none;
    path_ = folder_ / (planted ? "planted.db" : "app.db");
    Db db = make();
    ASSERT_RUNS(db, transfer(0));  // begins a generation of the log
    Db second = open();
    Db watcher = open("read=latest");
    const auto page = attach(path_);
    ASSERT_EQ(page->try_lead(false), 0u);  // one other leader is left
    std::atomic<bool> started{false};
    int at_return = -1;
    std::thread other;
    Medium::get().during_flush = [&](const std::string& name) {
      if (!name.ends_with("-wal") || started.exchange(true)) return;
      other = std::thread([&] {
        if (second.run(transfer(2)) == SQLITE_OK) at_return = after_cut();
      });
      while (watcher.all("select v from n") != "2") std::this_thread::yield();
    };
    ASSERT_RUNS(db, transfer(1));
    other.join();
    Medium::get().during_flush = nullptr;
    EXPECT_EQ(at_return == 2, !planted);
  }
}

// A checkpoint stores pages in the database only when their frames are on the medium.
TEST_F(SharedPage, ACheckpointFlushesTheLogFirst) {
  for (const bool planted : {false, true}) {
    core::active_mutant = planted ? core::Mutant::shared_skip_checkpoint_flush : core::Mutant::none;
    path_ = folder_ / (planted ? "planted.db" : "app.db");
    Db db = make();
    Db normal = open("", "normal");
    ASSERT_RUNS(normal, transfer(1));
    int damaged = 0;
    Medium::get().before_write = [&](const std::string& name) {
      if (name == path_ && after_cut(true) < 0) ++damaged;
    };
    ASSERT_RUNS(normal, "pragma wal_checkpoint(truncate)");
    Medium::get().before_write = nullptr;
    EXPECT_EQ(damaged > 0, planted);
  }
}

// Durable commits need not be flushed once more: the commit after which SQLite makes a checkpoint waits for
// one flush less.
TEST_F(SharedPage, ACheckpointOfDurableCommitsFlushesTheDatabaseOnly) {
  Db db = make();
  ASSERT_RUNS(db, transfer(1));
  int log = 0;
  int database = 0;
  Medium::get().during_flush = [&](const std::string& name) {
    log += name == path_ + "-wal" ? 1 : 0;
    database += name == path_ ? 1 : 0;
  };
  ASSERT_RUNS(db, "pragma wal_checkpoint(passive)");
  Medium::get().during_flush = nullptr;
  EXPECT_EQ(log, 0);
  EXPECT_EQ(database, 1);
  EXPECT_EQ(after_cut(), 1);
}

// The header of a frame goes to the log with its page, and by itself where SQLite changes the checksums behind a page
// that a transaction wrote twice.
TEST_F(SharedPage, AFrameIsOneWrite) {
  Db db = make();
  ASSERT_RUNS(db, transfer(1));
  int writes = 0;
  Medium::get().before_write = [&](const std::string& name) { writes += name == path_ + "-wal" ? 1 : 0; };
  ASSERT_RUNS(db, transfer(2));
  Medium::get().before_write = nullptr;
  EXPECT_EQ(writes, 3) << "three pages";
  EXPECT_EQ(after_cut(), 2);
  ASSERT_RUNS(db,
              "pragma cache_size = 3; create table many(v, pad); begin immediate;"
              "with recursive i(n) as (select 1 union all select n + 1 from i where n < 60)"
              "insert into many select n, zeroblob(900) from i;"
              "update many set v = v + 1; update many set v = v + 1; update n set v = 3; commit");
  EXPECT_EQ(after_cut(), 3);
}

// Plain SQLite beside: its commits are flushed by those that read them.
TEST_F(SharedPage, PlainSqliteWorksBeside) {
  Db db = make();
  Db plain(path_, "unix");
  ASSERT_RUNS(plain, "pragma synchronous=normal;" + transfer(1));
  EXPECT_EQ(db.all("select v from n"), "1");
  EXPECT_EQ(after_cut(), 1);
  ASSERT_RUNS(db, transfer(2));
  EXPECT_EQ(plain.all("select v from n"), "2");
  ASSERT_RUNS(plain, "pragma wal_checkpoint(restart);" + transfer(3));
  EXPECT_EQ(db.all("select v from n"), "3");
  EXPECT_EQ(after_cut(), 3);
  ASSERT_RUNS(db, transfer(4) + "; pragma wal_checkpoint(truncate);" + transfer(5));
  EXPECT_EQ(after_cut(), 5);
}

TEST_F(SharedPage, TheEngineIsRefusedBeside) {
  Db db = make();
  EXPECT_EQ(Db("file:" + path_, "memlith").open_code(), SQLITE_BUSY);
  ASSERT_EQ(db.close(), SQLITE_OK);
  Db engine("file:" + path_, "memlith");
  EXPECT_RUNS(engine, transfer(1));
  Db shared("file:" + path_ + "?share=1", "memlith");
  EXPECT_EQ(shared.open_code(), SQLITE_BUSY);
  EXPECT_TRUE(sqlite_log.told("without share=1")) << sqlite_log.all();
}

TEST_F(SharedPage, RollbackJournalsAreSqlitesOwn) {
  Db db = open();
  ASSERT_RUNS(db, "create table n(v int); insert into n values(1)");
  Db plain(path_, "unix");
  EXPECT_EQ(plain.all("select v from n"), "1");
  ASSERT_RUNS(db, "begin; update n set v = 2; rollback; update n set v = v + 2");
  EXPECT_EQ(plain.all("select v from n"), "3");
}

// SQLite refuses a transaction that read before another one's commit and then writes. One that is expected to write has
// the write lock when it reads.
TEST_F(SharedPage, ATransactionThatWillWriteIsForeseen) {
  Db db = make();
  Db other = open();
  sqlite3_busy_timeout(other.get(), 0);
  ASSERT_RUNS(db, "begin; select v from n");
  ASSERT_RUNS(other, transfer(1));
  EXPECT_EQ(db.run("update n set v = 9"), SQLITE_BUSY_SNAPSHOT) << "nothing is known about it yet";
  ASSERT_RUNS(db, "rollback; begin; select v from n");
  EXPECT_EQ(other.run(transfer(2)), SQLITE_BUSY) << "the lock is taken when the transaction begins";
  ASSERT_RUNS(db, "update n set v = 7; commit");
  EXPECT_EQ(after_cut(), 7);
  ASSERT_RUNS(other, transfer(2));

  // Without a write the lock is free again, and the next time less is expected.
  ASSERT_RUNS(db, "begin; select v from n");
  EXPECT_EQ(other.run(transfer(3)), SQLITE_BUSY);
  ASSERT_RUNS(db, "commit");
  ASSERT_RUNS(other, transfer(3));
  ASSERT_RUNS(db, "begin; select v from n");
  ASSERT_RUNS(db, "commit; begin; select v from n");
  ASSERT_RUNS(other, transfer(4));
  ASSERT_RUNS(db, "commit");

  EXPECT_EQ(db.all("pragma memlith_foresight = off"), "off");
  ASSERT_RUNS(db, "begin; select v from n; update n set v = 8; commit; begin; select v from n");
  ASSERT_RUNS(other, transfer(5));
  EXPECT_EQ(db.run("update n set v = 9"), SQLITE_BUSY_SNAPSHOT) << "switched off";
}

// Everything that such a transaction was shown is durable when its COMMIT returned, also if it changed nothing.
TEST_F(SharedPage, AForeseenTransactionThatOnlyReadIsWaitedFor) {
  Db db = make();
  Db normal = open("", "normal");
  ASSERT_RUNS(db, "begin; select v from n; update n set v = 1; commit");
  ASSERT_RUNS(normal, transfer(2));  // not flushed
  ASSERT_RUNS(db, "begin; select v from n; commit");
  EXPECT_EQ(after_cut(), 2);
}

// A transaction that took the lock ahead, and then could not begin, holds no other up.
TEST_F(SharedPage, AForeseenTransactionThatCannotBeginLeavesNoLock) {
  Db db = make();
  Db other = open();
  sqlite3_busy_timeout(other.get(), 0);
  const std::string begins = "begin; select v from n";
  ASSERT_RUNS(db, begins);
  ASSERT_RUNS(db, "update n set v = 1; commit");
  for (const int code : {SQLITE_IOERR_SHMLOCK, SQLITE_NOMEM}) {
    Medium::get().at_lock = [code](int first, int flags) {
      const bool reads = first >= 3 && flags == (SQLITE_SHM_LOCK | SQLITE_SHM_SHARED);
      return reads ? code : SQLITE_OK;
    };
    EXPECT_EQ(db.run(begins), code);
    Medium::get().at_lock = nullptr;
    EXPECT_RUNS(other, transfer(2));
    (void)db.run("rollback");
    ASSERT_RUNS(db, begins);
    ASSERT_RUNS(db, "update n set v = 1; commit");
  }
  // The index is damaged, and the log cannot be read.
  volatile unsigned char* const header = index_of(other);
  header[16] = static_cast<unsigned char>(header[16] ^ 1);
  Medium::get().reads_fail = true;
  EXPECT_EQ(db.run(begins), SQLITE_IOERR_READ);
  Medium::get().reads_fail = false;
  EXPECT_RUNS(other, transfer(3));
  (void)db.run("rollback");
  ASSERT_RUNS(db, begins);
  ASSERT_RUNS(db, "update n set v = 4; commit");
  EXPECT_EQ(after_cut(), 4);
}

// A leader was killed, or stopped, after the system had told it that its flush failed. A descriptor of the log that was
// open before is told as well; one that is opened later is not.
TEST_F(SharedPage, WhatAnotherLeaderWasToldIsNotLost) {
  using core::Mutant;
  int round = 0;
  for (const bool seems_in_flight : {false, true}) {
    const Mutant believes = seems_in_flight ? Mutant::shared_believe_another_leader : Mutant::shared_trust_abandoned;
    for (const Mutant mutant : {Mutant::none, Mutant::shared_believe_late_descriptors, believes}) {
      core::active_mutant = mutant;
      path_ = folder_ / ("app" + std::to_string(++round) + ".db");
      Db db = make();
      Db normal = open("", "normal");
      ASSERT_RUNS(db, transfer(1));
      ASSERT_RUNS(normal, transfer(2));
      ASSERT_RUNS(normal, transfer(3));
      const auto page = attach(path_);
      page->control().flights[0].number.store(page->control().begun.fetch_add(1) + 1);
      if (seems_in_flight) page->control().flights[0].leader.store(1000);
      Medium::get().forget(path_ + "-wal");
      Db late = open();
      EXPECT_EQ(late.all("select v from n"), "3");
      EXPECT_EQ(after_cut() == 3, mutant == Mutant::none);
      EXPECT_EQ(page->control().doubt.load(), 0u);
      ASSERT_RUNS(late, transfer(4));
      EXPECT_EQ(after_cut() == 4, mutant == Mutant::none);
    }
  }
}

// Another process was killed meanwhile, while it changed the index: one copy of the header is whole. The leader needs
// to know where the log ends, and no reader makes the index anew before it has answered.
TEST_F(SharedPage, ALeaderWritesAgainBesideAHalfChangedIndex) {
  constexpr int kCopyBytes = 48;
  int round = 0;
  for (const int copy : {0, 1}) {
    for (const bool is_held : {false, true}) {
      path_ = folder_ / ("app" + std::to_string(++round) + ".db");
      Db db = make();
      Db normal = open("", "normal");
      ASSERT_RUNS(db, transfer(1));
      ASSERT_RUNS(normal, transfer(2));
      volatile unsigned char* const header = index_of(db) + copy * kCopyBytes;
      const auto page = attach(path_);
      page->control().flights[0].number.store(page->control().begun.fetch_add(1) + 1);
      Medium::get().forget(path_ + "-wal");
      Db late = open();
      ASSERT_RUNS(late, "begin");
      const std::uint64_t begun = page->control().begun.load();
      int refused = is_held ? 3 : 0;  // a live process has the lock, for a moment
      Medium::get().at_lock = [&](int first, int flags) {
        const bool writes = first == 0 && flags == (SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE);
        return writes && refused-- > 0 ? SQLITE_BUSY : SQLITE_OK;
      };
      bool is_changed = false;
      at_step() = [&] {
        if (is_changed || page->control().begun.load() == begun) return;
        is_changed = true;
        header[16] = static_cast<unsigned char>(header[16] ^ 1);
      };
      EXPECT_EQ(late.all("select v from n"), "2");
      at_step() = nullptr;
      Medium::get().at_lock = nullptr;
      EXPECT_TRUE(is_changed);
      EXPECT_EQ(after_cut(), 2);
      EXPECT_EQ(page->control().doubt.load(), 0u);
      ASSERT_RUNS(late, "commit; " + transfer(3));
      EXPECT_EQ(after_cut(), 3);
    }
  }
}

// The process was killed when its frames were in the log, and before the index says so. SQLite will find its commit
// when it makes the index anew, so the flush that ends the doubt has to be about these frames, too.
TEST_F(SharedPage, ALeaderWritesAgainWhatTheIndexDoesNotSayYet) {
  constexpr int kCopyBytes = 48;
  Db db = make();
  Db normal = open("", "normal");
  ASSERT_RUNS(db, transfer(1));
  ASSERT_RUNS(normal, transfer(2));
  volatile unsigned char* const header = index_of(db);
  const auto page = attach(path_);
  page->control().flights[0].number.store(page->control().begun.fetch_add(1) + 1);
  Medium::get().forget(path_ + "-wal");
  Db late = open();
  ASSERT_RUNS(late, "begin");
  const std::uint64_t begun = page->control().begun.load();
  bool is_changed = false;
  at_step() = [&] {
    if (is_changed || page->control().begun.load() == begun) return;
    is_changed = true;
    std::array<unsigned char, kCopyBytes> before{};
    for (int i = 0; i < kCopyBytes; ++i) before[static_cast<std::size_t>(i)] = header[i];
    EXPECT_RUNS(normal, transfer(3));
    Medium::get().forget(path_ + "-wal");
    for (int i = 0; i < kCopyBytes; ++i) header[i] = before[static_cast<std::size_t>(i)];
    header[kCopyBytes + 16] = static_cast<unsigned char>(header[kCopyBytes + 16] ^ 1);
  };
  EXPECT_EQ(late.all("select v from n"), "2");
  at_step() = nullptr;
  EXPECT_TRUE(is_changed);
  EXPECT_EQ(page->control().doubt.load(), 0u);
  ASSERT_RUNS(late, "commit");
  EXPECT_EQ(late.all("select v from n"), "3");
  EXPECT_EQ(after_cut(), 3);
}

// The kernel has let such a page go, and has read what is on the medium.
TEST_F(SharedPage, WhatTheKernelHasLostIsNotCalledDurable) {
  Db db = make();
  Db normal = open("", "normal");
  ASSERT_RUNS(db, transfer(1));
  ASSERT_RUNS(normal, transfer(2));
  const auto page = attach(path_);
  page->control().flights[0].number.store(page->control().begun.fetch_add(1) + 1);
  const std::string log = read_file(path_ + "-wal");
  std::fstream file(path_ + "-wal", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(log.size() - 200));
  file << std::string(200, '\0');
  file.close();
  Db late = open();
  EXPECT_EQ(late.run("select v from a"), SQLITE_IOERR_FSYNC);
  EXPECT_NE(db.run(transfer(3)), SQLITE_OK);
}

// All processes were killed, one of them in a flush, perhaps.
TEST_F(SharedPage, APageThatWasLeftIsDoubted) {
  ASSERT_EQ(make().close(), SQLITE_OK);
  const pid_t child = ::fork();
  if (child == 0) {
    Db normal = open("", "normal");
    ::raise(normal.run(transfer(1)) == SQLITE_OK ? SIGKILL : SIGABRT);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WTERMSIG(status), SIGKILL);
  Medium::get().forget(path_ + "-wal");
  Db db = open();
  EXPECT_EQ(db.all("select v from n"), "1");
  EXPECT_EQ(after_cut(), 1);
  ASSERT_EQ(db.close(), SQLITE_OK);
  EXPECT_FALSE(std::filesystem::exists(path_ + "-memlith"));
}

// Its COMMIT cannot fail any more: SQLite asks nothing of a transaction that changed nothing.
TEST_F(SharedPage, AForeseenTransactionReadsNothingAfterAFailedFlush) {
  Db other = make();
  Db db = open();  // which has no page of `a`
  ASSERT_RUNS(db, "begin; select v from n");
  ASSERT_RUNS(db, "update n set v = 1; commit; begin; select v from n");
  Medium::get().flushes_fail = true;
  EXPECT_NE(other.run("pragma memlith_persist"), SQLITE_OK);
  Medium::get().flushes_fail = false;
  EXPECT_EQ(db.run("select v from a"), SQLITE_IOERR_FSYNC);
  EXPECT_NE(db.run("rollback; " + transfer(2)), SQLITE_OK);
}

// The flush fails at the end of such a transaction: SQLite does not hear of it, but it is told.
TEST_F(SharedPage, AForeseenTransactionThatOnlyReadTellsOfAFailedFlush) {
  Db db = make();
  Db normal = open("", "normal");
  ASSERT_RUNS(db, "begin; select v from n");
  ASSERT_RUNS(db, "update n set v = 1; commit");
  ASSERT_RUNS(normal, transfer(2));  // not flushed
  ASSERT_RUNS(db, "begin; select v from n");
  sqlite_log.clear();
  Medium::get().flushes_fail = true;
  EXPECT_RUNS(db, "commit");
  Medium::get().flushes_fail = false;
  EXPECT_TRUE(sqlite_log.told("is known when all connections")) << sqlite_log.all();
  EXPECT_EQ(db.run("select v from n"), SQLITE_IOERR_FSYNC);
}

// ---- a process that is killed at each step ------------------------------------------------------------------------

TEST_F(SharedPage, AProcessKilledAtAnyStepBlocksNoOther) {
  {
    Db db = make();
    ASSERT_EQ(db.close(), SQLITE_OK);
  }
  int value = 0;
  for (int stop = 0;; ++stop) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    Db beside = open();  // so that the page is not made anew
    EXPECT_EQ(beside.all("select v from n"), std::to_string(value));
    const pid_t child = ::fork();
    if (child == 0) {
      int step = 0;
      at_step() = [&] {
        if (step++ == stop) ::raise(SIGKILL);
      };
      Db db("file:" + path_ + "?share=1", "memlith");
      sqlite3_busy_timeout(db.get(), 20000);
      if (db.run("pragma synchronous=full;" + transfer(value + 1)) != SQLITE_OK) ::_exit(1);
      const char acknowledged = 1;
      (void)!::write(ends[1], &acknowledged, 1);
      db.close();
      ::_exit(0);
    }
    ::close(ends[1]);
    char acknowledged = 0;
    (void)!::read(ends[0], &acknowledged, 1);
    ::close(ends[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const int seen = std::stoi(beside.all("select v from n"));
    EXPECT_TRUE(seen == value + 1 || (seen == value && acknowledged == 0)) << "step " << stop << ": " << seen;
    ASSERT_RUNS(beside, transfer(seen + 1)) << "step " << stop;
    EXPECT_EQ(after_cut(), seen + 1) << "step " << stop;
    value = seen + 1;
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      EXPECT_GT(stop, 8) << "there are steps";
      return;
    }
  }
}

}  // namespace
}  // namespace memlith::test
