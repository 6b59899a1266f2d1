// Which mode a connection gets whose parameters name none (docs/sqlite.md, "Which mode").
#include <atomic>
#include <barrier>
#include <set>

#include "files_fixture.hpp"

namespace memlith::test {
namespace {

class DefaultMode : public Files {
 protected:
  void SetUp() override {
    Files::SetUp();
    ::unsetenv("MEMLITH_SQLITE_SHARE");
  }
  void TearDown() override { ::setenv("MEMLITH_SQLITE_SHARE", "0", 1); }
  static std::string mode(const Db& db) { return db.all("pragma memlith_share"); }
};

TEST_F(DefaultMode, ADatabaseInWalModeIsShared) {
  make_plain("pragma journal_mode = wal");
  Db db = open();
  EXPECT_EQ(mode(db), "shared");
  EXPECT_RUNS(db, "insert into t values(2)");
  Child child([&](int ready) {
    Db other = open();
    sqlite3_busy_timeout(other.get(), 60000);
    if (mode(other) == "shared" && other.run("insert into t values(3)") == SQLITE_OK) tell(ready);
  });
  EXPECT_EQ(child.wait(), 1);
  EXPECT_EQ(plain().all("select * from t"), "1\n2\n3");
}

TEST_F(DefaultMode, ADatabaseInARollbackModeIsTheEngines) {
  make_plain();
  Db db = open();
  EXPECT_EQ(mode(db), "engine");
  EXPECT_EQ(mode(open()), "engine");
}

// Where memlith is SQLite's default, and the program does not ask for it by name.
TEST_F(DefaultMode, SqlitesDefaultLeavesARollbackModeToSqlite) {
  const auto by_default = [this](const std::string& parameters = "") {
    return Db("file:" + path_ + parameters, "memlith-default");
  };
  Db made = by_default();
  EXPECT_RUNS(made, "create table t(a); insert into t values(1)");
  EXPECT_EQ(mode(made), "shared");
  EXPECT_FALSE(fs::exists(path_ + ".memlith")) << "no engine has it";
  EXPECT_TRUE(head().starts_with("SQLite format 3"));
  Child child([&](int ready) {
    Db other = by_default();
    if (other.run("insert into t values(2)") == SQLITE_OK) tell(ready);
  });
  EXPECT_EQ(child.wait(), 1) << "processes share it";
  EXPECT_EQ(plain().all("select * from t"), "1\n2");
  EXPECT_EQ(made.all("pragma journal_mode = wal"), "wal");
  EXPECT_EQ(made.all("select * from t"), "1\n2");
  EXPECT_NE(made.all("pragma memlith_stats").find("control_block=yes"), std::string::npos);
  EXPECT_EQ(made.all("pragma journal_mode = delete"), "delete");
  EXPECT_EQ(made.close(), SQLITE_OK);
  EXPECT_EQ(mode(by_default("?share=0")), "engine");
  EXPECT_EQ(mode(open()), "engine") << "asked for by name";
  Db engine = open();
  EXPECT_RUNS(engine, "insert into t values(3)");
  EXPECT_EQ(mode(by_default()), "engine") << "it goes where the other connection of the process is";
}

TEST_F(DefaultMode, SqlitesDefaultRecoversWhatAnEngineLeft) {
  make_plain();
  Child child([&](int ready) {
    Db db = open("share=0");
    if (db.run("insert into t values(2)") == SQLITE_OK) tell(ready);
    ::pause();
  });
  ASSERT_EQ(child.wait(), 1);
  sqlite_log.clear();
  EXPECT_EQ(Db(path_, "memlith-default").open_code(), SQLITE_BUSY);
  EXPECT_TRUE(sqlite_log.told("share=1")) << sqlite_log.last();
  child.kill();
  Db db(path_, "memlith-default");
  EXPECT_EQ(db.all("select * from t"), "1\n2");
  EXPECT_EQ(mode(db), "engine");
  EXPECT_EQ(db.close(), SQLITE_OK);
  EXPECT_EQ(mode(Db(path_, "memlith-default")), "shared");
}

TEST_F(DefaultMode, TheParameterCounts) {
  make_plain("pragma journal_mode = wal");
  EXPECT_EQ(mode(open("share=0")), "engine");
  EXPECT_EQ(mode(open()), "shared");
  ::setenv("MEMLITH_SQLITE_SHARE", "0", 1);
  EXPECT_EQ(mode(open()), "engine");
}

TEST_F(DefaultMode, TheEngineIsRefusedBesideModeShared) {
  make_plain("pragma journal_mode = wal");
  Db db = open();
  ASSERT_EQ(mode(db), "shared");
  sqlite_log.clear();
  EXPECT_EQ(open("share=0").open_code(), SQLITE_BUSY);
  EXPECT_TRUE(sqlite_log.told("in mode shared; close those connections first")) << sqlite_log.last();
  EXPECT_RUNS(db, "insert into t values(2)");
  EXPECT_EQ(db.close(), SQLITE_OK);
  EXPECT_EQ(mode(open("share=0")), "engine");
}

// A new database, or one in a rollback mode, that its only connection turns to WAL mode, whatever it did before.
TEST_F(DefaultMode, TheOnlyConnectionTurnsToWalAndSharesIt) {
  for (const char* const before : {"pragma foreign_keys = on", "create table if not exists t(a); select * from t",
                                   "create table if not exists t(a); insert into t values(0)"}) {
    for (const bool is_new : {true, false}) {
      fs::remove(path_);
      if (!is_new) make_plain();
      Db db = open();
      EXPECT_RUNS(db, before);
      EXPECT_EQ(db.all("pragma journal_mode = WAL"), "wal");
      EXPECT_EQ(mode(db), "shared");
      EXPECT_RUNS(db, "create table if not exists t(a); insert into t values(2)");
      EXPECT_EQ(mode(open()), "shared");
      EXPECT_EQ(plain().all("select max(a) from t"), "2");
      EXPECT_EQ(integrity(db), "ok");
      // Mode shared knows the connection, which the engine was told of: the thread makes its checkpoint.
      EXPECT_RUNS(db,
                  "pragma wal_autocheckpoint = 20; with recursive n(i) as (select 1 union all select i + 1 from n "
                  "where i < 25) insert into t select zeroblob(3000) from n");
      EXPECT_EQ(db.all("pragma wal_checkpoint").substr(0, 2), "0|");
      EXPECT_NE(db.all("pragma memlith_stats").find("checkpoints_behind=1 "), std::string::npos);
      EXPECT_EQ(db.close(), SQLITE_OK);
      EXPECT_FALSE(fs::exists(path_ + ".memlith"));
    }
  }
}

// A log whose size was given stays when the engine closes the database.
TEST_F(DefaultMode, AClosedLogIsNoHindrance) {
  {
    Db db = open("log_mib=1");
    EXPECT_RUNS(db, "create table t(a)");
  }
  ASSERT_TRUE(fs::exists(path_ + ".memlith"));
  EXPECT_EQ(open().all("pragma journal_mode = wal"), "wal");
  Db db = open("log_mib=1");
  EXPECT_EQ(mode(db), "shared");
  EXPECT_RUNS(db, "insert into t values(1)");
  EXPECT_EQ(db.close(), SQLITE_OK);
  EXPECT_EQ(open("share=0").all("select * from t"), "1");
}

// Another connection has it, or SQLite has its journal open: it stays with the engine until it is closed.
TEST_F(DefaultMode, ADatabaseInUseStaysWithTheEngine) {
  make_plain();
  {
    Db db = open();
    EXPECT_RUNS(db, "insert into t values(2)");
    Db another = open();
    EXPECT_EQ(another.all("pragma journal_mode = wal"), "wal");
    EXPECT_EQ(mode(another), "engine");
    EXPECT_EQ(mode(open()), "engine");
    EXPECT_EQ(another.close(), SQLITE_OK);
    EXPECT_EQ(db.all("pragma journal_mode = persist"), "persist");
    EXPECT_RUNS(db, "insert into t values(3)");
    EXPECT_EQ(db.all("pragma journal_mode = wal"), "wal");
    EXPECT_EQ(mode(db), "engine");
  }
  EXPECT_EQ(mode(open()), "shared");
  EXPECT_EQ(plain().all("select * from t"), "1\n2\n3");
}

// A killed engine's database is recovered by the engine.
TEST_F(DefaultMode, AMarkedDatabaseIsTheEngines) {
  make_plain("pragma journal_mode = wal");
  Child child([&](int ready) {
    Db db = open("share=0");
    (void)db.run("insert into t values(2)");
    tell(ready);
    ::pause();
  });
  ASSERT_EQ(child.wait(), 1);
  sqlite_log.clear();
  EXPECT_EQ(open().open_code(), SQLITE_BUSY);
  EXPECT_TRUE(sqlite_log.told("share=1")) << sqlite_log.last();
  child.kill();
  EXPECT_EQ(mode(open()), "engine");
  EXPECT_EQ(open().all("select * from t"), "1\n2");
}

// An idle database of another process's engine is an ordinary file in WAL mode.
TEST_F(DefaultMode, AnIdleDatabaseIsStillTheEngines) {
  make_plain("pragma journal_mode = wal");
  Child child([&](int ready) {
    Db db = open("share=0&idle_ms=1");
    (void)db.run("insert into t values(2)");
    while (!head().starts_with("SQLite format 3")) ::usleep(1000);
    tell(ready);
    ::pause();
  });
  ASSERT_EQ(child.wait(), 1);
  sqlite_log.clear();
  EXPECT_EQ(open().open_code(), SQLITE_BUSY);
  EXPECT_TRUE(sqlite_log.told("share=1")) << sqlite_log.last();
}

// A pool of connections that starts: the threads of one process open the database at the same moment.
constexpr int kThreads = 8;
std::multiset<std::string> at_once(const std::function<std::string(const std::function<void()>& together)>& open_one) {
  std::barrier<> begin(kThreads);
  std::mutex mutex;
  std::multiset<std::string> answers;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      begin.arrive_and_wait();
      const std::string answer = open_one([&] { begin.arrive_and_wait(); });
      const std::lock_guard guard(mutex);
      answers.insert(answer);
    });
  }
  for (std::thread& each : threads) each.join();
  return answers;
}
// All of them, in one line.
std::string listed(const std::multiset<std::string>& answers) {
  std::string text;
  for (const std::string& each : answers) text += "[" + each + "] ";
  return text;
}
constexpr int kRounds = 60;

TEST_F(DefaultMode, ThreadsOpenAWalDatabaseAtTheSameMoment) {
  make_plain("pragma journal_mode = wal");
  for (int round = 0; round < kRounds; ++round) {
    const auto answers = at_once([&](const auto&) {
      Db db = open();
      sqlite3_busy_timeout(db.get(), 20000);  // of a statement, beside a connection that is closed as the last one
      return db.open_code() == SQLITE_OK ? mode(db) + db.all("select * from t") : db.message() + sqlite_log.last();
    });
    ASSERT_EQ(answers.count("shared1"), kThreads) << "round " << round << ": " << listed(answers);
  }
}

// The mode is one for all of them, whichever thread is the first.
TEST_F(DefaultMode, ThreadsMakeAWalDatabaseAtTheSameMoment) {
  int shared = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const char* const each : {"", "-wal", "-shm", ".memlith", "-memlith"}) fs::remove(path_ + each);
    const auto answers = at_once([&](const auto& together) {
      Db db = open();
      const bool is_open = db.open_code() == SQLITE_OK;
      std::string answer = is_open ? "" : db.message() + sqlite_log.last();
      if (is_open) sqlite3_busy_timeout(db.get(), 20000);
      while (is_open && (answer = db.all("pragma journal_mode = wal")) == "error 5: database is locked") ::usleep(1000);
      together();
      return is_open
                 ? answer + " " + mode(db) + " " + db.all("create table if not exists t(a); insert into t values(1)")
                 : answer;
    });
    ASSERT_EQ(answers.count(*answers.begin()), kThreads) << "round " << round << ": " << listed(answers);
    if (*answers.begin() == "wal shared ")
      ++shared;
    else
      ASSERT_EQ(*answers.begin(), "wal engine ") << "round " << round;
    EXPECT_EQ(plain().all("select count(*) from t"), std::to_string(kThreads));
  }
  RecordProperty("shared", shared);
}

// Looking at the file must not cost a connection of plain SQLite in this process its locks.
TEST_F(DefaultMode, LookingLosesNoLocks) {
  make_plain("pragma journal_mode = wal");
  Db beside = plain();
  ASSERT_RUNS(beside, "pragma journal_mode = delete; begin exclusive; insert into t values(2)");
  sqlite_log.clear();
  (void)open().open_code();
  Child child([&](int ready) {
    if (plain().run("insert into t values(3)") == SQLITE_BUSY) tell(ready);
  });
  EXPECT_EQ(child.wait(), 1);
  EXPECT_RUNS(beside, "commit");
}

}  // namespace
}  // namespace memlith::test
