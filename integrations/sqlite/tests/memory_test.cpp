// docs/sqlite.md, "Errors": where memory runs out, in the VFS or in SQLite itself, a statement fails, and what was
// committed before and after it is there, whole.
#include <sqlite3.h>

#include <cstdlib>
#include <string>

#include "support/count_allocations.hpp"
#include "support/temp_folder.hpp"
#include "words.hpp"

namespace memlith::test {
namespace {

// SQLite's own allocations, of which one can fail too. SQLite takes these before it is used first.
thread_local std::uint64_t sqlite_fails_in = 0;
sqlite3_mem_methods real_methods;

bool fails_now() { return sqlite_fails_in > 0 && --sqlite_fails_in == 0; }
void* failing_malloc(int bytes) { return fails_now() ? nullptr : real_methods.xMalloc(bytes); }
void* failing_realloc(void* memory, int bytes) { return fails_now() ? nullptr : real_methods.xRealloc(memory, bytes); }

[[maybe_unused]] const bool kInstalled = [] {
  if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_methods) != SQLITE_OK) std::abort();
  static sqlite3_mem_methods methods;
  methods = real_methods;
  methods.xMalloc = failing_malloc;
  methods.xRealloc = failing_realloc;
  return sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) == SQLITE_OK;
}();

struct Case {
  const char* name;
  const char* before;     // pragmas
  const char* statement;  // during which one allocation fails
};

class NoMemory : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!kCountsAllocations) GTEST_SKIP() << "allocations cannot be counted under ThreadSanitizer";
    ASSERT_TRUE(kInstalled);
    (void)registered_vfs();
  }

  // True when it came to that.
  bool fail_once(std::uint64_t n, bool in_sqlite) {
    const TempFolder folder;
    const std::string path = folder / "app.db";
    bool first = false;
    bool second = false;
    bool third = false;
    bool failed = false;
    {
      Db db("file:" + path, "memlith");
      EXPECT_RUNS(db, GetParam().before);
      EXPECT_RUNS(db, "create table t(a integer primary key, v); pragma cache_size = 3;");
      for (int i = 0; i < 20; ++i) {
        EXPECT_RUNS(db, "insert into t values(" + std::to_string(i) + ", zeroblob(3000))");
      }
      (in_sqlite ? sqlite_fails_in : fails_in) = n;
      first = sqlite3_exec(db.get(), GetParam().statement, nullptr, nullptr, nullptr) == SQLITE_OK;
      failed = (in_sqlite ? sqlite_fails_in : fails_in) == 0;
      fails_in = sqlite_fails_in = 0;
      if (sqlite3_get_autocommit(db.get()) == 0) {
        EXPECT_RUNS(db, "rollback");
      }
      second = db.run("insert into t values(1001, 'x')") == SQLITE_OK;
      (void)db.run("pragma wal_checkpoint(restart)");
      third = db.run("insert into t values(1002, zeroblob(9000))") == SQLITE_OK;
      EXPECT_EQ(db.close(), SQLITE_OK);
    }
    const Db plain(path, nullptr, SQLITE_OPEN_READWRITE);
    EXPECT_EQ(integrity(plain), "ok");
    EXPECT_EQ(plain.all("select count(*) from t where a < 20"), "20");
    const auto has = [&](int a) { return plain.all("select count(*) from t where a = " + std::to_string(a)) == "1"; };
    EXPECT_TRUE(has(1000) || !first);
    EXPECT_EQ(has(1000), has(1000 + 100)) << "half of a transaction";
    EXPECT_TRUE(has(1001) || !second);
    EXPECT_TRUE(has(1002) || !third);
    return failed;
  }
};

TEST_P(NoMemory, AStatementFailsAndNothingElse) {
  for (const bool in_sqlite : {false, true}) {
    std::uint64_t n = 1;
    while (fail_once(n, in_sqlite) && !HasFailure()) ++n;
    EXPECT_FALSE(HasFailure()) << "allocation " << n << (in_sqlite ? " of SQLite" : " of the VFS");
    EXPECT_GT(n, in_sqlite ? 20u : 1u) << "nothing failed";
  }
}

// The first write marks the file; where that fails half way, a close gives the file back all the same.
TEST_P(NoMemory, TheFirstWriteFailsAndTheFileIsGivenBack) {
  for (const bool writes_again : {false, true}) {
    std::uint64_t n = 1;
    for (bool failed = true; failed && !HasFailure(); ++n) {
      const TempFolder folder;
      const std::string path = folder / "app.db";
      {
        const Db plain(path, nullptr);
        EXPECT_RUNS(plain, "create table t(a); insert into t values(1)");
        EXPECT_RUNS(plain, GetParam().before);
      }
      const std::string counter = read_file(path).substr(24, 1);
      bool written = false;
      {
        Db db("file:" + path, "memlith");
        EXPECT_RUNS(db, GetParam().before);
        EXPECT_RUNS(db, "select * from t");
        fails_in = n;
        written = sqlite3_exec(db.get(), "insert into t values(2)", nullptr, nullptr, nullptr) == SQLITE_OK;
        failed = fails_in == 0;
        fails_in = 0;
        if (writes_again) written = db.run("insert into t values(2)") == SQLITE_OK || written;
        EXPECT_EQ(db.close(), SQLITE_OK);
      }
      std::filesystem::remove(path + ".memlith");
      EXPECT_EQ(read_file(path).substr(24, 1), counter);
      const Db plain(path, nullptr, SQLITE_OPEN_READWRITE);
      EXPECT_EQ(integrity(plain), "ok");
      EXPECT_EQ(plain.all("select max(a) from t"), written ? "2" : "1");
    }
    EXPECT_FALSE(HasFailure()) << "allocation " << n - 1;
    EXPECT_GT(n, 10u) << "nothing failed";
  }
}

// A commit that was made is not called failed because there was no memory to give memory back (memory_max_mib).
TEST(NoMemoryToSpare, AStatementThatFailedChangedNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "allocations cannot be counted under ThreadSanitizer";
  (void)registered_vfs();
  std::uint64_t n = 1;
  for (bool failed = true; failed && !::testing::Test::HasFailure(); ++n) {
    const TempFolder folder;
    const Db db("file:" + (folder / "app.db") + "?memory_max_mib=1&log_mib=16", "memlith");
    EXPECT_RUNS(db, "pragma journal_mode = off; create table t(a, v); insert into t values(1, zeroblob(700000))");
    fails_in = n;
    const int code = sqlite3_exec(db.get(), "insert into t values(2, randomblob(700000))", nullptr, nullptr, nullptr);
    failed = fails_in == 0;
    fails_in = 0;
    EXPECT_EQ(db.all("select max(a) from t"), code == SQLITE_OK ? "2" : "1") << "allocation " << n;
  }
  EXPECT_GT(n, 10u) << "nothing failed";
}

constexpr char kLarge[] =
    "begin; insert into t values(1000, zeroblob(150000)); update t set v = zeroblob(3001) where a < 20 and a % 3 = 0; "
    "insert into t values(1100, 'y'); update t set v = zeroblob(90000) where a = 1000; commit";
INSTANTIATE_TEST_SUITE_P(In, NoMemory,
                         ::testing::Values(Case{"delete", "pragma journal_mode = delete", kLarge},
                                           Case{"memory", "pragma journal_mode = memory", kLarge},
                                           Case{"wal", "pragma journal_mode = wal", kLarge},
                                           Case{"wal_exclusive",
                                                "pragma journal_mode = wal; pragma locking_mode = exclusive", kLarge},
                                           Case{"wal_heap",
                                                "pragma locking_mode = exclusive; pragma journal_mode = wal", kLarge}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace memlith::test
