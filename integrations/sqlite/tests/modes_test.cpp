// docs/sqlite.md: every journal mode, page size and kind of statement does through the VFS exactly what it does in
// plain SQLite, and after a clean close plain SQLite finds it.
#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

#include "support/temp_folder.hpp"
#include "words.hpp"

namespace memlith::test {
namespace {

const std::vector<std::string> kModes = {"delete", "truncate", "persist", "memory", "off", "wal"};

std::string random_rows(int first, int count, int bytes) {
  return "with recursive n(i) as (values(" + std::to_string(first) + ") union all select i + 1 from n where i + 1 < " +
         std::to_string(first + count) +
         ") insert into t(id, k, v) select i, (i * 7919) % 1009, substr(hex(i * 123457) || "
         "printf('%.*c', " +
         std::to_string(bytes) + ", char(65 + i % 26)), 1, " + std::to_string(bytes) + ") from n;";
}

// Each step is one string, run on both sides; both have to say the same.
std::vector<std::string> workload(bool can_roll_back) {
  std::vector<std::string> steps = {
      "create table t(id integer primary key, k int, v text); create index tk on t(k);",
      random_rows(1, 300, 60),
      "begin; update t set k = k + 1 where id % 3 = 0; delete from t where id % 17 = 0; commit;",
      "begin;" + random_rows(1000, 200, 900) + "commit;",
      "create table u(a, b); insert into u select id, v from t where id < 40;",
      "update t set v = v || '-longer' where id < 100;",
      "begin;" + random_rows(3000, 400, 700) + "update t set v = upper(v); commit;",
      "delete from t where id > 3100;",
      "insert into u select a + 1, b from u; drop table u;",
      "reindex; analyze;",
      "vacuum;",
      random_rows(9000, 50, 3000),
      "delete from t where id between 10 and 9020; vacuum;",
  };
  if (can_roll_back) {
    const std::vector<std::string> rolled = {
        "begin; insert into t values(5001, 1, 'gone'); savepoint a; delete from t where id < 50; savepoint b; update t "
        "set v = 'x'; rollback to b; release b; rollback to a; insert into t values(5002, 2, 'kept'); release a; "
        "commit;",
        "begin;" + random_rows(20000, 500, 800) + "update t set v = 'all of them'; rollback;",
        "insert or ignore into t values(1, 1, 'there already'), (5003, 3, 'new');",
        "begin; create table w(x); insert into w values(1); rollback;",
    };
    steps.insert(steps.begin() + 4, rolled.begin(), rolled.end());
  }
  return steps;
}

class Modes : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  static void SetUpTestSuite() { (void)registered_vfs(); }
  TempFolder folder_;
};

TEST_P(Modes, DoWhatPlainSqliteDoesAndLeaveAnOrdinaryFile) {
  const auto& [mode, page_bytes] = GetParam();
  const std::string path = folder_ / "app.db";
  const std::string setup = "pragma page_size = " + std::to_string(page_bytes) +
                            "; pragma cache_size = 12; pragma cache_spill = 1; pragma journal_mode = " + mode;
  Db reference(":memory:", nullptr);
  Db db(path, "memlith");
  ASSERT_OPEN(db);
  ASSERT_RUNS(reference, "pragma page_size = " + std::to_string(page_bytes));
  ASSERT_TRUE(db.all(setup).ends_with(mode)) << db.all(setup);
  for (const std::string& step : workload(mode != "off")) {
    ASSERT_RUNS(reference, step);
    ASSERT_RUNS(db, step);
    for (const char* name : {"app.db-journal", "app.db-wal", "app.db-shm"}) {
      ASSERT_FALSE(std::filesystem::exists(folder_ / name)) << name;
    }
  }
  EXPECT_EQ(integrity(db), "ok");
  EXPECT_EQ(db.all("pragma page_size"), std::to_string(page_bytes));
  const std::string expected = dump(reference);
  EXPECT_EQ(dump(db), expected);
  Db second(path, "memlith");  // sees the same memory
  ASSERT_OPEN(second);
  EXPECT_EQ(dump(second), expected);
  EXPECT_EQ(second.close(), SQLITE_OK);
  EXPECT_EQ(db.close(), SQLITE_OK);

  Db plain(path, nullptr, SQLITE_OPEN_READWRITE);
  EXPECT_EQ(integrity(plain), "ok");
  EXPECT_EQ(dump(plain), expected);
  ASSERT_RUNS(plain, "create table by_plain(x); insert into by_plain values(1);");
  ASSERT_EQ(plain.close(), SQLITE_OK);
  // And back again: what plain SQLite did meanwhile is there.
  Db again(path, "memlith");
  ASSERT_OPEN(again);
  EXPECT_EQ(again.all("select count(*) from by_plain"), "1");
  EXPECT_RUNS(again, "drop table by_plain");
  EXPECT_EQ(dump(again), expected);
  EXPECT_EQ(integrity(again), "ok");
}

INSTANTIATE_TEST_SUITE_P(All, Modes,
                         ::testing::Combine(::testing::ValuesIn(kModes),
                                            ::testing::Values(512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)),
                         [](const auto& each) {
                           return std::get<0>(each.param) + "_" + std::to_string(std::get<1>(each.param));
                         });

class Mode : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() { (void)registered_vfs(); }
  Db open(const std::string& name = "app.db", const std::string& uri = "") const {
    Db db(uri.empty() ? folder_ / name : "file:" + (folder_ / name) + uri, "memlith");
    EXPECT_OPEN(db);
    EXPECT_TRUE(db.all("pragma journal_mode = " + GetParam()).ends_with(GetParam()));
    return db;
  }
  TempFolder folder_;
};

// Auto-vacuum moves pages and cuts the file within commits.
TEST_P(Mode, AutoVacuumFullAndIncremental) {
  for (const std::string kind : {"full", "incremental"}) {
    Db db(folder_ / kind, "memlith");
    ASSERT_OPEN(db);
    ASSERT_RUNS(db, "pragma auto_vacuum = " + kind);
    ASSERT_RUNS(db, "pragma journal_mode = " + GetParam());
    ASSERT_RUNS(db, "create table t(id integer primary key, k int, v blob);");
    ASSERT_RUNS(db, random_rows(1, 500, 2000));
    const int before = std::stoi(db.all("pragma page_count"));
    ASSERT_RUNS(db, "delete from t where id > 50");
    if (kind == "incremental") {
      ASSERT_RUNS(db, "pragma incremental_vacuum(1000)");
    }
    EXPECT_LT(std::stoi(db.all("pragma page_count")), before / 4);
    EXPECT_EQ(integrity(db), "ok");
    ASSERT_RUNS(db, random_rows(1000, 300, 2000));
    EXPECT_EQ(integrity(db), "ok");
    ASSERT_EQ(db.close(), SQLITE_OK);
    Db plain(folder_ / kind, nullptr);
    EXPECT_EQ(integrity(plain), "ok");
    EXPECT_EQ(plain.all("select count(*) from t"), "350");
    EXPECT_EQ(std::filesystem::file_size(folder_ / kind),
              std::stoull(plain.all("pragma page_count")) * std::stoull(plain.all("pragma page_size")));
  }
}

TEST_P(Mode, BackupInBothDirectionsAndVacuumInto) {
  Db db = open();
  ASSERT_RUNS(db, "create table t(id integer primary key, k int, v text);");
  ASSERT_RUNS(db, random_rows(1, 400, 500));
  const std::string expected = dump(db);
  const auto copy = [](const Db& from, const Db& to) {
    sqlite3_backup* const backup = sqlite3_backup_init(to.get(), "main", from.get(), "main");
    ASSERT_NE(backup, nullptr) << to.message();
    EXPECT_EQ(sqlite3_backup_step(backup, 7), SQLITE_OK);
    EXPECT_EQ(sqlite3_backup_step(backup, -1), SQLITE_DONE);
    EXPECT_EQ(sqlite3_backup_finish(backup), SQLITE_OK);
  };
  Db plain(folder_ / "plain.db", nullptr);
  ASSERT_RUNS(plain, "pragma page_size = 1024");
  copy(db, plain);
  EXPECT_EQ(dump(plain), expected);
  Db target = open("target.db");
  ASSERT_RUNS(target, "create table old(x); insert into old values(zeroblob(100000));");
  copy(plain, target);
  EXPECT_EQ(dump(target), expected);
  EXPECT_EQ(integrity(target), "ok");
  ASSERT_EQ(target.close(), SQLITE_OK);
  EXPECT_EQ(dump(Db(folder_ / "target.db", nullptr)), expected);

  ASSERT_RUNS(db, "vacuum into '" + (folder_ / "into.db") + "'");  // through the same VFS
  ASSERT_RUNS(db, "vacuum into 'file:" + (folder_ / "into-plain.db") + "?vfs=unix'");
  for (const char* name : {"into.db", "into-plain.db"}) {
    Db copied(folder_ / name, nullptr);
    EXPECT_EQ(dump(copied), expected) << name;
    EXPECT_EQ(integrity(copied), "ok") << name;
  }
}

// A backup into a database with a smaller page size writes past the pager.
TEST_P(Mode, BackupToAnotherPageSize) {
  Db source(folder_ / "source.db", nullptr);
  ASSERT_RUNS(source, "pragma page_size = 4096; create table t(id integer primary key, k int, v text);");
  ASSERT_RUNS(source, random_rows(1, 300, 700));
  Db target(folder_ / "target.db", "memlith");
  ASSERT_RUNS(target, "pragma page_size = 1024; create table x(y); insert into x values(zeroblob(30000));");
  if (GetParam() != "wal") {
    ASSERT_RUNS(target, "pragma journal_mode = " + GetParam());
  }
  sqlite3_backup* const backup = sqlite3_backup_init(target.get(), "main", source.get(), "main");
  ASSERT_NE(backup, nullptr);
  EXPECT_EQ(sqlite3_backup_step(backup, -1), SQLITE_DONE);
  EXPECT_EQ(sqlite3_backup_finish(backup), SQLITE_OK);
  EXPECT_EQ(dump(target), dump(source));
  EXPECT_EQ(integrity(target), "ok");
  ASSERT_EQ(target.close(), SQLITE_OK);
  Db plain(folder_ / "target.db", nullptr);
  EXPECT_EQ(dump(plain), dump(source));
  EXPECT_EQ(integrity(plain), "ok");
}

TEST_P(Mode, AttachedDatabasesOfBothKinds) {
  Db db = open("one.db");
  ASSERT_RUNS(db, "attach 'file:" + (folder_ / "two.db") + "?vfs=memlith' as two");
  ASSERT_RUNS(db, "attach 'file:" + (folder_ / "three.db") + "?vfs=unix' as three");
  ASSERT_RUNS(db, "pragma two.journal_mode = " + GetParam());
  for (const char* schema : {"main", "two", "three"}) {
    ASSERT_RUNS(db, std::string("create table ") + schema + ".t(a)");
  }
  ASSERT_RUNS(
      db, "begin; insert into main.t values(1); insert into two.t values(2); insert into three.t values(3); commit;");
  if (GetParam() != "off") {
    ASSERT_RUNS(db, "begin; insert into main.t values(9); insert into two.t values(9); rollback;");
  }
  EXPECT_EQ(db.all("select * from main.t, two.t, three.t"), "1|2|3");
  ASSERT_EQ(db.close(), SQLITE_OK);
  EXPECT_EQ(Db(folder_ / "one.db", nullptr).all("select * from t"), "1");
  EXPECT_EQ(Db(folder_ / "two.db", nullptr).all("select * from t"), "2");
  EXPECT_EQ(Db(folder_ / "three.db", nullptr).all("select * from t"), "3");
}

// A commit over two databases is joined by files on the disk, which are gone when it has returned.
TEST_P(Mode, CommitsOverSeveralLeaveNothing) {
  Db db = open("one.db");
  ASSERT_RUNS(db, "attach 'file:" + (folder_ / "two.db") + "?vfs=memlith&durability=weak&window_ms=60000' as two");
  ASSERT_RUNS(db, "pragma two.journal_mode = " + GetParam());
  ASSERT_RUNS(db, "create table main.t(a); create table two.t(a)");
  for (int i = 0; i < 5; ++i)
    ASSERT_RUNS(db, "begin; insert into main.t values(1); insert into two.t values(2); commit;");
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(folder_ / "."))) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"one.db", "one.db.memlith", "one.db.memlith-stats", "two.db",
                                             "two.db.memlith", "two.db.memlith-stats"}));
  // The parts of one transaction are durable in all of them.
  const bool joined = GetParam() == "delete" || GetParam() == "truncate" || GetParam() == "persist";
  const std::string stats = db.all("pragma two.memlith_stats");
  EXPECT_EQ(stats.find("not_yet_durable_bytes=0 ") != std::string::npos, joined) << stats;
  EXPECT_EQ(db.all("select count(*) from main.t, two.t"), "25");
}

// Pages that SQLite takes straight from the mapping stay where they are while the database grows.
TEST_P(Mode, MappedPages) {
  Db db = open();
  ASSERT_EQ(db.all("pragma mmap_size = 1000000000"), "1000000000");
  ASSERT_RUNS(db, "create table t(id integer primary key, k int, v text);");
  ASSERT_RUNS(db, random_rows(1, 500, 900));
  Db reader = open();
  ASSERT_RUNS(reader, "pragma mmap_size = 1000000000");
  sqlite3_stmt* statement = nullptr;
  ASSERT_EQ(sqlite3_prepare_v2(reader.get(), "select id, v from t", -1, &statement, nullptr), SQLITE_OK);
  ASSERT_EQ(sqlite3_step(statement), SQLITE_ROW);
  if (GetParam() == "wal") {
    ASSERT_RUNS(db, random_rows(10000, 3000, 900));
  }
  int rows = 1;
  while (sqlite3_step(statement) == SQLITE_ROW) ++rows;
  EXPECT_EQ(rows, 500);
  sqlite3_finalize(statement);
  ASSERT_RUNS(db, random_rows(20000, 3000, 900));
  EXPECT_EQ(integrity(db), "ok");
  EXPECT_EQ(integrity(reader), "ok");
}

TEST_P(Mode, ExclusiveLockingMode) {
  {
    Db db(folder_ / "app.db", "memlith");
    ASSERT_RUNS(db, "pragma locking_mode = exclusive");
    ASSERT_TRUE(db.all("pragma journal_mode = " + GetParam()).ends_with(GetParam()));
    ASSERT_RUNS(db, "create table t(id integer primary key, k int, v text);");
    ASSERT_RUNS(db, random_rows(1, 300, 300));
    if (GetParam() != "off") {
      ASSERT_RUNS(db, "begin; update t set v = 1; rollback; update t set k = 5 where id = 7;");
    }
    Db other(folder_ / "app.db", "memlith");
    EXPECT_EQ(other.run("select * from t"), SQLITE_BUSY);
    ASSERT_RUNS(db, "pragma locking_mode = normal; select count(*) from t");
    if (GetParam() != "wal") {
      EXPECT_EQ(other.all("select count(*) from t"), "300");
    }
    EXPECT_EQ(integrity(db), "ok");
  }
  Db plain(folder_ / "app.db", nullptr);
  EXPECT_EQ(integrity(plain), "ok");
  EXPECT_EQ(plain.all("select count(*) from t"), "300");
}

// A changed row costs its bytes in the log, not its pages.
TEST_P(Mode, LogsWhatChangedOnly) {
  Db db = open();
  ASSERT_RUNS(db, "create table t(id integer primary key, k int, v text);");
  ASSERT_RUNS(db, random_rows(1, 2000, 200));
  const auto changed = [&] {
    const std::string stats = db.all("pragma memlith_stats");
    return std::stoull(stats.substr(stats.find(" changed_bytes=") + 15));
  };
  const auto before = changed();
  ASSERT_RUNS(db, "update t set k = 77 where id = 1234");
  EXPECT_LT(changed() - before, 200u);
  EXPECT_GT(changed() - before, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, Mode, ::testing::ValuesIn(kModes), [](const auto& each) { return each.param; });

// Changing the mode again and again, with a second connection looking on.
TEST(Modes, CanBeChangedAtAnyTime) {
  (void)registered_vfs();
  const TempFolder folder;
  Db db(folder / "app.db", "memlith");
  ASSERT_RUNS(db, "create table t(a)");
  int rows = 0;
  for (int round = 0; round < 3; ++round) {
    for (const std::string& mode : kModes) {
      ASSERT_EQ(db.all("pragma journal_mode = " + mode), mode);
      ASSERT_RUNS(db, "insert into t values(1); insert into t values(2);");
      rows += 2;
      Db other(folder / "app.db", "memlith");
      EXPECT_EQ(other.all("select count(*) from t"), std::to_string(rows));
      ASSERT_RUNS(other, "insert into t values(3)");
      EXPECT_EQ(db.all("select count(*) from t"), std::to_string(++rows));
    }
  }
  EXPECT_EQ(integrity(db), "ok");
}

// journal_mode=OFF has no rollback of its own; what it spilled before one is undone all the same.
TEST(Modes, OffUndoesWhatWasSpilled) {
  (void)registered_vfs();
  const TempFolder folder;
  Db db(folder / "app.db", "memlith");
  ASSERT_RUNS(db, "pragma journal_mode = off; create table t(id integer primary key, k int, v text);");
  ASSERT_RUNS(db, random_rows(1, 300, 500));
  const std::string expected = dump(db);
  ASSERT_RUNS(db, "pragma cache_size = 5");
  ASSERT_RUNS(db, "begin; update t set v = 'changed'; " + random_rows(1000, 500, 600));
  (void)db.run("rollback");
  EXPECT_EQ(integrity(db), "ok");
  EXPECT_EQ(dump(db), expected);
  ASSERT_RUNS(db, random_rows(5000, 3, 3));
  EXPECT_EQ(db.all("select count(*) from t"), "303");
}

}  // namespace
}  // namespace memlith::test
