// docs/sqlite.md, "the file": an open database goes on in the folder that it was opened in, wherever that is moved,
// with or without the right to reach it by its path, and leaves alone what another process puts at that path.
#include <grp.h>

#include "files_fixture.hpp"
#include "memlith/memlith.h"
#include "support/child.hpp"

namespace memlith::test {
namespace {

class MovedDatabase : public Files, public ::testing::WithParamInterface<std::string> {
 protected:
  static Db memlith(const std::string& path) { return Db("file:" + path, "memlith"); }
  static std::string in_mode() { return "pragma journal_mode = " + GetParam() + "; "; }
  std::string place_ = folder_ / "place";
  std::string away_ = folder_ / "away";
};
INSTANTIATE_TEST_SUITE_P(In, MovedDatabase, ::testing::Values("wal", "delete"),
                         [](const auto& each) { return each.param; });

TEST_P(MovedDatabase, ItsFolderIsRenamedAndAnotherTakesItsPlace) {
  fs::create_directory(place_);
  SecondProcess other([&](const SecondProcess::Side& test) -> std::string {
    if (!test.wait()) return "the test ended";
    fs::create_directory(place_);
    Db db = memlith(place_ + "/app.db");
    if (db.run(in_mode() + "create table u(b); insert into u values(1)") != SQLITE_OK) return sqlite_log.last();
    test.tell();
    if (!test.wait()) return "the test ended";
    if (db.run("insert into u values(2)") != SQLITE_OK) return sqlite_log.last();
    return db.close() == SQLITE_OK ? "" : sqlite_log.last();
  });
  Db db = memlith(place_ + "/app.db");
  ASSERT_RUNS(db, in_mode() + "create table t(a); insert into t values(1)");
  fs::rename(place_, away_);
  ASSERT_TRUE(other.step());
  ASSERT_RUNS(db, "insert into t values(2)");
  ASSERT_RUNS(db, "pragma wal_checkpoint; insert into t values(3)");
  // SQLite would keep its super-journal where the path leads: beside the other database.
  ASSERT_RUNS(db, "attach 'file:" + (folder_ / "two.db") + "?vfs=memlith' as two; create table two.v(c)");
  if (GetParam() == "delete") {
    EXPECT_EQ(db.run("begin; insert into t values(4); insert into v values(4); commit"), SQLITE_READONLY)
        << sqlite_log.last();
    (void)db.run("rollback");
    EXPECT_EQ(db.all("select count(*) from v"), "0");
    ASSERT_RUNS(db, "insert into t values(5)");
  }
  EXPECT_EQ(db.close(), SQLITE_OK);
  EXPECT_TRUE(fs::exists(place_ + "/app.db.memlith"));
  EXPECT_TRUE(fs::exists(place_ + "/app.db.memlith-stats"));
  EXPECT_TRUE(other.finish());
  EXPECT_EQ(memlith(place_ + "/app.db").all("select b from u"), "1\n2");
  EXPECT_EQ(memlith(away_ + "/app.db").all("select a from t"), GetParam() == "delete" ? "1\n2\n3\n5" : "1\n2\n3");
}

// A server that opens its database as root, in a folder that only root may enter, and gives up root.
TEST_P(MovedDatabase, TheServerGivesUpRoot) {
  const std::string closed = folder_ / "closed";
  fs::create_directory(closed);
  ASSERT_EQ(::chmod(closed.c_str(), 0700), 0);
  EXPECT_IN_CHILD([&]() -> std::string {
    if (::geteuid() != 0) return "skip: only root can give up root";
    Db db = memlith(closed + "/app.db");
    if (db.run(in_mode() + "create table t(a); insert into t values(1)") != SQLITE_OK) return sqlite_log.last();
    constexpr id_t kNobody = 65534;
    if (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) {
      return "skip: cannot change user";
    }
    for (const char* const sql : {"insert into t values(2)", "pragma wal_checkpoint", "insert into t values(3)",
                                  "begin; insert into t values(9); rollback", "insert into t values(4)"}) {
      if (db.run(sql) != SQLITE_OK)
        return std::string(sql) + ": " + sqlite3_errmsg(db.get()) + ": " + sqlite_log.last();
    }
    return db.close() == SQLITE_OK ? "" : "close: " + sqlite_log.last();
  });
  if (::geteuid() == 0) {
    EXPECT_EQ(Db(closed + "/app.db", nullptr).all("select a from t"), "1\n2\n3\n4") << "not closed cleanly";
    EXPECT_EQ(memlith(closed + "/app.db").all("select a from t"), "1\n2\n3\n4");
  }
}

}  // namespace
}  // namespace memlith::test
