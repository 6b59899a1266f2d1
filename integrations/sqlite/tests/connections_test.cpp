// docs/sqlite.md, "Connections", "Parameters" and "Errors": which connections may open a database; kill -9; each
// failure with SQLite's code, and nothing lost.
#include <sstream>

#include "base/random.hpp"
#include "files_fixture.hpp"
#include "sim_world.hpp"
#include "support/sanitizers.hpp"

namespace memlith::test {
namespace {

// ---- connections ---------------------------------------------------------------------------------------------------

TEST_F(Files, TwoConnectionsHaveSqlitesLocks) {
  Db a = open();
  ASSERT_RUNS(a, "create table t(a); insert into t values(1);");
  Db b = open();
  ASSERT_RUNS(a, "begin immediate; insert into t values(2)");
  EXPECT_EQ(b.all("select * from t"), "1");
  EXPECT_EQ(b.run("insert into t values(3)"), SQLITE_BUSY);
  ASSERT_RUNS(b, "begin; select * from t");
  EXPECT_EQ(a.run("commit"), SQLITE_BUSY);                // a reader is there
  EXPECT_EQ(open().run("select * from t"), SQLITE_BUSY);  // and no new one gets in
  ASSERT_RUNS(b, "commit");
  ASSERT_RUNS(a, "commit");
  EXPECT_EQ(b.all("select * from t"), "1\n2");
}

TEST_F(Files, WalReadersRunBesideTheWriter) {
  Db a = open();
  ASSERT_RUNS(a, "pragma journal_mode = wal; create table t(a); insert into t values(1);");
  Db b = open();
  ASSERT_RUNS(b, "begin; select * from t");
  ASSERT_RUNS(a, "insert into t values(2)");
  EXPECT_EQ(b.all("select * from t"), "1");
  EXPECT_EQ(b.run("insert into t values(3)"), SQLITE_BUSY_SNAPSHOT);
  ASSERT_RUNS(b, "commit");
  EXPECT_EQ(b.all("select * from t"), "1\n2");
  EXPECT_EQ(a.all("pragma wal_checkpoint(truncate)"), "0|0|0");
  ASSERT_RUNS(b, "insert into t values(3)");
  EXPECT_EQ(a.all("select * from t"), "1\n2\n3");
}

// SQLite 3.40 leaves wrong checksums in the log if a transaction has spilled a page twice and then rolled back to a
// savepoint. A connection that rebuilds the index from that log does not see the commit, and must not build on the
// state before it.
TEST_F(Files, ACommitThatSqliteForgetsIsNotBuiltOver) {
  Db a = open();
  ASSERT_RUNS(a,
              "pragma page_size = 512; pragma journal_mode = wal; create table t(id integer primary key, v, b);"
              "with recursive n(i) as (values(0) union all select i + 1 from n where i < 399)"
              " insert into t select i, '0', zeroblob(300) from n; pragma wal_checkpoint(truncate)");
  Db b = open();
  ASSERT_RUNS(a,
              "pragma cache_size = 5; begin; savepoint x; update t set v = 'a' where id between 0 and 99;"
              "update t set v = 'b' where id between 40 and 99; rollback to x; release x;"
              "insert into t select id + 1000, 'new', zeroblob(300) from t where id < 300; commit");
  int set = 0;
  ASSERT_EQ(sqlite3_db_config(a.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, &set), SQLITE_OK);
  a.close();
  const bool sees_it = b.all("select count(*) from t where v = 'new'") == "300";
  const bool built = b.run("update t set v = 'later', b = zeroblob(3000) where id = 1") == SQLITE_OK;
  EXPECT_EQ(built, sees_it);
  b.close();
  a = open();
  EXPECT_EQ(a.all("select count(*) from t where v = 'new'"), "300");
  EXPECT_EQ(a.all("select count(*) from t where v = 'later'"), built ? "1" : "0");
  EXPECT_EQ(a.all("pragma integrity_check"), "ok");
}

// A WAL in which nothing is yet is none, as with SQLite's own VFS: a connection that cannot have the database for
// itself is as it was.
TEST_F(Files, AnEmptyWalIsNone) {
  Db a = open();
  ASSERT_RUNS(a, "create table t(a); insert into t values(1);");
  a.close();
  Db b = open();
  ASSERT_RUNS(b, "pragma journal_mode = wal");
  a = open();
  ASSERT_RUNS(a, "select * from t");
  ASSERT_RUNS(b, "pragma locking_mode = exclusive");
  EXPECT_EQ(b.run("insert into t values(2)"), SQLITE_BUSY);
  EXPECT_EQ(b.all("pragma journal_mode"), "delete");
  EXPECT_EQ(b.run("pragma journal_mode = wal"), SQLITE_BUSY);
  EXPECT_EQ(a.all("select * from t"), "1");
}

class Threads : public Files, public ::testing::WithParamInterface<std::string> {};

// Counters under contention: every increment that was reported is there.
TEST_P(Threads, CountTogether) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 60;
  Db first = open();
  ASSERT_RUNS(first, "pragma journal_mode = " + GetParam() + "; create table t(id integer primary key, n int)");
  for (int i = 0; i < 20; ++i) ASSERT_RUNS(first, "insert into t values(" + std::to_string(i) + ", 0)");
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      Db db = open();
      ASSERT_OPEN(db);
      sqlite3_busy_timeout(db.get(), 60000);
      for (int i = 0; i < kRounds; ++i) {
        const std::string id = std::to_string((i * 7 + thread) % 20);
        ASSERT_RUNS(db, "begin immediate; update t set n = n + 1 where id = " + id +
                            "; insert into t(n) values(1); commit; select sum(n) from t");
        ++done;
        if (i % 20 == 19) db = open();
        sqlite3_busy_timeout(db.get(), 60000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first.all("select sum(n), count(*) from t"), std::to_string(2 * done) + "|" + std::to_string(20 + done));
  EXPECT_EQ(done, kThreads * kRounds);
  EXPECT_EQ(integrity(first), "ok");
  first.close();
  EXPECT_EQ(integrity(plain()), "ok");
}
INSTANTIATE_TEST_SUITE_P(All, Threads, ::testing::Values("delete", "memory", "wal"),
                         [](const auto& each) { return each.param; });

// Also while the database is idle and its file an ordinary one.
TEST_F(Files, ASecondProcessIsToldWhoHasTheDatabaseAndWhatToDo) {
  for (const char* const statement : {"begin immediate; insert into t values(5)", "insert into t values(5)"}) {
    fs::remove(path_);
    make_plain();
    const bool idle = std::string_view(statement).starts_with("insert");
    Child child([&](int ready) {
      Db db = open("idle_ms=1");
      (void)db.run(statement);
      while (idle && !head().starts_with("SQLite format 3")) ::usleep(1000);
      tell(ready);
      ::pause();
    });
    ASSERT_EQ(child.wait(), 1);
    for (const char* const parameters : {"open_wait_ms=20", "open_wait_ms=20&mode=ro"}) {
      sqlite_log.clear();
      EXPECT_EQ(open(parameters).open_code(), SQLITE_BUSY);
      EXPECT_TRUE(sqlite_log.told("process " + std::to_string(child.pid()))) << sqlite_log.last();
      EXPECT_TRUE(sqlite_log.told("share=1")) << sqlite_log.last();
    }
    child.kill();
    EXPECT_EQ(open().all("select * from t"), idle ? "1\n5" : "1");
  }
}

// A database without transactions is an ordinary file soon, although it is open, and goes on from there.
TEST_F(Files, AnIdleDatabaseIsAnOrdinaryFile) {
  for (const char* const mode : {"delete", "wal"}) {
    Db db = open("idle_ms=20");
    ASSERT_RUNS(db, "drop table if exists t; create table t(a, b)");
    ASSERT_RUNS(db, std::string("pragma journal_mode = ") + mode);
    for (int round = 0; round < 3; ++round) {
      ASSERT_RUNS(db, "insert into t values(1, randomblob(3000))");
      ASSERT_RUNS(db, "update t set a = a + 1");
      while (!read_file(path_).starts_with("SQLite format 3")) ::usleep(1000);
      // A copy of the file is a whole database now.
      Db copy(copy_as_crashed(std::string(mode) + std::to_string(round) + ".db"), nullptr);
      EXPECT_EQ(integrity(copy), "ok");
      EXPECT_EQ(copy.all("select count(*), sum(a) from t"), db.all("select count(*), sum(a) from t"));
      copy.close();
    }
    ASSERT_RUNS(db, "delete from t where rowid > 1; vacuum");
    while (!read_file(path_).starts_with("SQLite format 3")) ::usleep(1000);
    EXPECT_EQ(integrity(db), "ok");
    ASSERT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(integrity(plain()), "ok");
  }
}

// SQLite's busy handler is not asked while a database is being opened.
TEST_F(Files, OpeningWaitsForAnotherProcess) {
  make_plain();
  for (const char* const parameters : {"open_wait_ms=60000", "open_wait_ms=60000&mode=ro"}) {
    Child child([&](int ready) {
      Db db = open();
      (void)db.run("begin immediate; insert into t values(5)");
      tell(ready);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      (void)db.run("commit");
      (void)db.close();
    });
    ASSERT_EQ(child.wait(), 1);
    Db db = open(parameters);
    ASSERT_OPEN(db);
    EXPECT_EQ(db.all("select min(a), max(a) from t"), "1|5");
  }
}

// The last committed state, without a byte changed, even if there is a log to be replayed.
TEST_F(Files, ReadOnlyShowsTheLastCommit) {
  Child child([&](int ready) {
    Db db = open();
    (void)db.run("create table t(a); insert into t values(1); pragma journal_mode = wal; insert into t values(2);");
    tell(ready);
    ::pause();
  });
  ASSERT_EQ(child.wait(), 1);
  child.kill();
  const auto before = read_folder(folder_.path());
  {
    Db a = open("mode=ro");
    Db b = open("mode=ro");
    ASSERT_OPEN(a);
    EXPECT_EQ(a.all("select * from t"), "1\n2");
    EXPECT_EQ(b.all("select * from t"), "1\n2");
    EXPECT_EQ(integrity(a), "ok");
    EXPECT_EQ(a.run("insert into t values(3)"), SQLITE_READONLY);
    // This process cannot have it both ways.
    EXPECT_EQ(open().open_code(), SQLITE_BUSY);
  }
  EXPECT_EQ(read_folder(folder_.path()), before);
  EXPECT_EQ(open().all("select * from t"), "1\n2");
  EXPECT_EQ(open("mode=ro").all("select * from t"), "1\n2");
  EXPECT_EQ(open("mode=ro").run("insert into t values(3)"), SQLITE_READONLY);
}

// Inherited memory changes with the parent's checkpoints, and the parent has the database.
TEST_F(Files, AForkedChildIsRefusedWhatItInherits) {
  Db db = open();
  ASSERT_RUNS(db, "create table t(a); insert into t values(1);");
  Child child([&](int ready) {
    if (db.run("insert into t values(2)") == SQLITE_OK) ::_exit(1);
    if (db.run("select * from t") == SQLITE_OK) ::_exit(1);
    if (open("open_wait_ms=1").open_code() != SQLITE_BUSY) ::_exit(1);
    tell(ready);
    (void)db.close();
    tell(ready);
  });
  EXPECT_EQ(child.wait(), 1);
  EXPECT_EQ(child.wait(), 1);
  ASSERT_RUNS(db, "insert into t values(3)");
  EXPECT_EQ(db.all("select * from t"), "1\n3");
  ASSERT_EQ(db.close(), SQLITE_OK);
  EXPECT_EQ(plain().all("select * from t"), "1\n3");
}

// Its write is refused before it locks anything, because its locks are the parent's, which holds them on.
TEST_F(Files, AWriteOfAForkedChildLeavesNoLock) {
  make_plain();
  Db db = open();
  EXPECT_EQ(db.all("select * from t"), "1");
  {
    Child child([&](int ready) {
      if (db.run("insert into t values(2)") != SQLITE_OK) tell(ready);
    });
    EXPECT_EQ(child.wait(), 1);
  }
  EXPECT_EQ(plain().all("select * from t"), "1");
  EXPECT_RUNS(db, "insert into t values(3)");
}

// ---- kill -9 -------------------------------------------------------------------------------------------------------

class Kill : public Files, public ::testing::WithParamInterface<std::string> {};

// Two tables that every transaction changes alike, and a number that the child tells after each commit.
TEST_P(Kill, EverythingAcknowledgedIsThere) {
  {
    Db db = open("log_mib=1");
    ASSERT_RUNS(db, "pragma journal_mode = " + GetParam() +
                        "; create table a(i integer primary key, v text); create table b(i integer primary key, v "
                        "text); create index bv on b(v);");
  }
  core::Random random(core::random_identity());
  std::uint64_t told = 0;
  for (int round = 0; round < 8; ++round) {
    Child child([&](int ready) {
      Db db = open("log_mib=1");
      (void)db.run("pragma cache_size = 10");
      std::uint64_t next = std::stoull(db.all("select coalesce(max(i), 0) + 1 from a"));
      for (;; ++next) {
        const std::string i = std::to_string(next);
        const std::string size = std::to_string(next * 37 % 3000);
        if (db.run("begin; insert into a values(" + i + ", printf('%.*c', " + size + ", 'x')); insert into b values(" +
                   i + ", printf('%.*c', " + size + ", 'y')); delete from a where i < " + i +
                   " - 200; delete from b where i < " + i + " - 200; commit") != SQLITE_OK) {
          ::_exit(1);
        }
        if (::write(ready, &next, sizeof next) != sizeof next) ::_exit(1);
      }
    });
    std::uint64_t number = 0;
    const std::uint64_t wanted = 1 + random.below(60);
    for (std::uint64_t i = 0; i < wanted; ++i) {
      ASSERT_EQ(::read(child.descriptor(), &number, sizeof number), static_cast<ssize_t>(sizeof number));
      told = number;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(400)));
    child.kill();
    while (::read(child.descriptor(), &number, sizeof number) == static_cast<ssize_t>(sizeof number)) told = number;
    EXPECT_EQ(plain().run("select * from a"), SQLITE_NOTADB);
    Db db = open("log_mib=1");
    ASSERT_OPEN(db);
    EXPECT_EQ(integrity(db), "ok");
    const std::uint64_t found = std::stoull(db.all("select max(i) from a"));
    EXPECT_GE(found, told);
    EXPECT_LE(found, told + 1);
    EXPECT_EQ(db.all("select count(*) from a join b using(i) where length(a.v) = length(b.v)"),
              db.all("select count(*) from a"));
    EXPECT_EQ(db.all("select count(*) from b"), std::to_string(std::min<std::uint64_t>(found, 201)));
  }
}
INSTANTIATE_TEST_SUITE_P(All, Kill, ::testing::Values("delete", "off", "wal"),
                         [](const auto& each) { return each.param; });

// ---- durability and parameters -------------------------------------------------------------------------------------

TEST_F(Files, WeakCommitsBecomeDurableWhenAsked) {
  Db db = open("durability=weak&window_ms=86400000&window_bytes=1000000000");
  ASSERT_RUNS(db, "create table t(a); insert into t values(1);");
  EXPECT_EQ(db.all("pragma memlith_persist"), "ok");
  const std::string durable = copy_as_crashed("durable.db");
  ASSERT_RUNS(db, "insert into t values(2)");
  const std::string behind = copy_as_crashed("behind.db");
  EXPECT_EQ(db.all("pragma memlith_durability"), "weak");
  EXPECT_EQ(db.all("pragma memlith_durability = full"), "full");
  const std::string full = copy_as_crashed("full.db");
  EXPECT_EQ(Db(durable, "memlith").all("select * from t"), "1");
  EXPECT_EQ(Db(behind, "memlith").all("select * from t"), "1");
  EXPECT_EQ(Db(full, "memlith").all("select * from t"), "1\n2");
  ASSERT_RUNS(db, "pragma memlith_durability = weak; insert into t values(3)");
  EXPECT_EQ(db.run("pragma memlith_durability = 'some'"), SQLITE_ERROR);
  EXPECT_EQ(db.run("pragma memlith_read = 'some'"), SQLITE_ERROR);
  ASSERT_EQ(db.close(), SQLITE_OK);
  EXPECT_EQ(plain().all("select * from t"), "1\n2\n3");
}

TEST_F(Files, ParametersAreChecked) {
  for (const char* wrong :
       {"durability=perhaps", "read=all", "window_ms=-1", "window_ms=1x", "log_mib=0", "memory_max_mib=lots"}) {
    EXPECT_EQ(open(wrong).open_code(), SQLITE_CANTOPEN) << wrong;
    EXPECT_TRUE(sqlite_log.told(std::string(wrong).substr(0, 6))) << sqlite_log.last();
  }
  EXPECT_EQ(open("read=latest").all("pragma memlith_read"), "latest");
  EXPECT_EQ(open().all("pragma memlith_read"), "durable");
  ASSERT_OPEN(open("durability=weak&window_ms=5&window_bytes=100000&log_mib=2&log_max_mib=9&memory_max_mib=1"));
  EXPECT_EQ(fs::file_size(path_ + ".memlith") / 1000000, 2u);
  ::setenv("MEMLITH_SQLITE_DURABILITY", "weak", 1);
  EXPECT_EQ(open().all("pragma memlith_durability"), "weak");
  EXPECT_EQ(open("durability=full").all("pragma memlith_durability"), "full");
  ::unsetenv("MEMLITH_SQLITE_DURABILITY");
}

TEST_F(Files, PragmasTellTheState) {
  Db db = open();
  ASSERT_RUNS(db, "create table t(a); insert into t values(1);");
  const std::string stats = db.all("pragma memlith_stats");
  for (const char* part : {"durability=full", "journal=rollback", "commits=2", "failed=0", "not_yet_durable_bytes=0"}) {
    EXPECT_NE(stats.find(part), std::string::npos) << part << " in " << stats;
  }
  EXPECT_EQ(db.all("pragma Memlith_STATS").substr(0, 9), "database=");
  EXPECT_EQ(db.all("pragma memlith_nonsense"), "");
  EXPECT_EQ(open("window_ms=no").open_code(), SQLITE_CANTOPEN);
  EXPECT_NE(db.all("pragma memlith_error").find("window_ms"), std::string::npos);
}

// Whatever the database is called, its counters are one line of name=value.
TEST_F(Files, StatsAreWordsOnOneLine) {
  const std::string path = std::string(folder_ / "size_bytes=1 \\ in two\nlines.db");
  Db db(path, "memlith");
  ASSERT_OPEN(db);
  ASSERT_RUNS(db, "create table t(a)");
  const std::string stats = db.all("pragma memlith_stats");
  EXPECT_EQ(stats.find('\n'), std::string::npos) << stats;
  EXPECT_NE(stats.find("/size_bytes=1\\x20\\x5c\\x20in\\x20two\\x0alines.db size_bytes="), std::string::npos) << stats;
  std::istringstream words(stats);
  for (std::string word; words >> word;) EXPECT_NE(word.find('='), std::string::npos) << word << " in " << stats;
}

// The private bytes of a file's mappings.
std::uint64_t private_bytes(const std::string& path) {
  std::istringstream lines(read_file("/proc/self/smaps"));
  bool of_file = false;
  std::uint64_t total = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t kib = 0;
    words >> name;
    if (!name.ends_with(':')) of_file = line.ends_with(path);
    if (of_file && name == "Anonymous:" && words >> kib) total += kib * core::kKiB;
  }
  return total;
}

// Private copies are given back when there are more than the budget; the content stays.
TEST_F(Files, MemoryBudget) {
  for (const std::string mode : {"delete", "wal"}) {
    Db db = open("memory_max_mib=1");
    ASSERT_RUNS(db, "pragma journal_mode = " + mode + "; create table if not exists t(id integer primary key, v text)");
    for (int i = 0; i < 12; ++i) {
      ASSERT_RUNS(db,
                  "insert into t(v) select printf('%.*c', 1000, 'a') from (with recursive n(i) as (values(1) union all "
                  "select i + 1 from n where i < 200) select i from n); update t set v = v || 'b' where id % 7 = 0;");
    }
    // With WAL, when the log begins anew.
    ASSERT_RUNS(db, "pragma wal_checkpoint(restart); update t set v = v || 'c' where id % 100 = 0;");
    EXPECT_LT(private_bytes(path_), core::kMiB);
    EXPECT_EQ(integrity(db), "ok");
    EXPECT_EQ(db.all("select count(*) from t"), mode == "delete" ? "2400" : "4800");
  }
  EXPECT_EQ(integrity(plain()), "ok");
}

// A database reads the limits of memory from /proc when it opens, and a commit reads no file.
TEST_F(Files, CommitsReadNothing) {
  const auto reads = [] {
    const std::string counters = read_file("/proc/self/io");
    return std::stoull(counters.substr(counters.find("syscr: ") + std::strlen("syscr: ")));
  };
  constexpr int kCommits = 200;
  for (const std::string mode : {"delete", "wal"}) {
    Db db = open();
    ASSERT_RUNS(db, "pragma journal_mode = " + mode + "; create table if not exists t(v); insert into t values (0)");
    const auto before = reads();
    for (int i = 0; i < kCommits; ++i) ASSERT_RUNS(db, "update t set v = v + 1");
    EXPECT_LT(reads() - before, kCommits) << mode;
  }
}

// ---- failures of the disk ------------------------------------------------------------------------------------------

class Faults : public ::testing::TestWithParam<std::string> {};

// At each operation of a kind, once: the statement reports it, the connection rolls back and goes on or says why not,
// and reopening finds every commit that was acknowledged.
TEST_P(Faults, AreReportedAndLoseNothing) {
  using Kind = core::SimFaults::Kind;
  struct Case {
    Kind kind;
    int code;
  };
  for (const Case& each : {Case{Kind::fail_write, SQLITE_IOERR}, Case{Kind::fail_flush, SQLITE_IOERR},
                           Case{Kind::short_write, SQLITE_IOERR}, Case{Kind::no_space, SQLITE_FULL}}) {
    std::uint64_t struck = 0;
    for (std::uint64_t nth = 0;; ++nth) {
      core::SimVolume volume;
      sim_world().volume = &volume;
      std::string acknowledged;
      std::string started;
      bool failed = false;
      {
        Db db("/simulated/app.db", kSimVfs);
        ASSERT_OPEN(db);
        ASSERT_RUNS(db, "pragma page_size = 512; pragma cache_size = 5; create table t(a integer primary key, b)");
        ASSERT_RUNS(db, "pragma journal_mode = " + GetParam());
        ASSERT_RUNS(db, "insert into t values(1, 'first')");
        acknowledged = started = dump(db);
        volume.faults().plan(each.kind, nth, each.kind == Kind::no_space);
        for (int i = 2; i < 12 && !failed; ++i) {
          const int code = db.run("begin; insert into t values(" + std::to_string(i) +
                                  ", printf('%.*c', 3000, 'x')); update t set b = b || 'y'; commit");
          if (code == SQLITE_OK) {
            acknowledged = dump(db);
            continue;
          }
          failed = true;
          EXPECT_EQ(code & 0xff, each.code) << db.message();
          (void)db.run("rollback");
          const std::string shown = dump(db);
          // No reader sees a commit of WAL mode whose flush failed, nor anything else until reopening.
          const bool hidden = GetParam() == "wal" && each.code == SQLITE_IOERR && shown.starts_with("error");
          EXPECT_TRUE(hidden || shown == acknowledged) << "nth " << nth << shown;
          EXPECT_EQ(integrity(db), hidden ? "error 10: disk I/O error" : "ok");
          EXPECT_TRUE(!hidden || db.all("pragma memlith_error").find("reopen") != std::string::npos);
          if (each.kind != Kind::no_space) continue;
          volume.faults().clear();  // another thread made room
          EXPECT_RUNS(db, "insert into t values(100, 'it goes on')");
          acknowledged = dump(db);
        }
      }
      const bool fired = failed || volume.faults().fired() > 0;
      struck += fired ? 1 : 0;
      volume.faults().clear();
      Db again("/simulated/app.db", kSimVfs);
      ASSERT_OPEN(again) << sqlite_log.last();
      EXPECT_EQ(integrity(again), "ok");
      // An I/O error leaves open whether the commit took: all of it, or nothing.
      const std::string found = dump(again);
      if (found != acknowledged) {
        EXPECT_TRUE(failed && each.code == SQLITE_IOERR) << "nth " << nth;
        EXPECT_GT(found.size(), acknowledged.size());
      }
      again.close();
      if (!fired) break;
    }
    EXPECT_GT(struck, 1u) << static_cast<int>(each.kind);
    std::printf("  %s, kind %d: %llu faults struck\n", GetParam().c_str(), static_cast<int>(each.kind),
                static_cast<unsigned long long>(struck));
  }
  sim_world().volume = nullptr;
}
INSTANTIATE_TEST_SUITE_P(All, Faults, ::testing::Values("delete", "memory", "wal"),
                         [](const auto& each) { return each.param; });

TEST_F(Files, OpeningAndClosingManyTimesLeaksNothing) {
  const auto descriptors = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto mappings = [] {
    const std::string maps = read_file("/proc/self/maps");
    return std::count(maps.begin(), maps.end(), '\n');
  };
  const auto once = [&] {
    Db a = open();
    Db b = open();
    ASSERT_RUNS(a, "pragma journal_mode = wal; create table if not exists t(a); insert into t values(1);");
    ASSERT_RUNS(b, "select * from t; pragma mmap_size = 1000000");
  };
  for (int i = 0; i < 3; ++i) once();
  const auto fds = descriptors();
  const auto maps = mappings();
  for (int i = 0; i < 10; ++i) once();
  EXPECT_EQ(descriptors(), fds);
  constexpr std::ptrdiff_t kKept = kSanitized ? 100 : 2;  // a sanitizer keeps what was freed, and maps for itself
  EXPECT_LE(mappings(), maps + kKept);
}

}  // namespace
}  // namespace memlith::test
