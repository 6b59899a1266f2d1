// The phases of a connection in mode shared (shared/connection.cpp asserts the table): whatever locks SQLite takes and
// keeps, a transaction that returned is on the medium, and one that was rolled back is not.
#include "shared_fixture.hpp"

namespace memlith::test {
namespace {

class SharedPhases : public SharedPage {
 protected:
  // `begin` is expected to write where the transactions before it did.
  void commit(Db& db, const std::string& begin, const std::string& inside = "") {
    const std::string to = std::to_string(++newest_);
    ASSERT_RUNS(db, begin + "; update a set v = v - 1; " + inside + "; update b set v = v + 1; update n set v = " + to +
                        "; commit");
    EXPECT_EQ(after_cut(), newest_) << begin << ", " << inside;
  }
  void roll_back(Db& db, const std::string& begin) {
    ASSERT_RUNS(db, begin + "; update n set v = 99; rollback");
    EXPECT_EQ(db.all("select v from n"), std::to_string(newest_));
  }
  void use(Db& db) {
    for (const char* const begin : {"begin", "begin immediate", "begin; select v from n", "begin exclusive"}) {
      commit(db, begin);
      roll_back(db, begin);
      commit(db, begin, "savepoint s; update n set v = 98; rollback to s");
      // The cache is small, so pages go to the log before the end.
      commit(db, begin, "pragma cache_size = 1; update a set pad = zeroblob(800)");
    }
  }
  int newest_ = 0;
};

TEST_F(SharedPhases, AreThoseOfEveryLockingMode) {
  Db db = make();
  for (const char* const synchronous : {"full", "extra"}) {
    ASSERT_RUNS(db, std::string("pragma synchronous = ") + synchronous);
    for (const char* const mode : {"normal", "exclusive", "normal"}) {
      ASSERT_RUNS(db, std::string("pragma locking_mode = ") + mode);
      use(db);
      // SQLite takes the write lock for these, and writes nothing to the log.
      for (const char* const how : {"passive", "full", "restart", "truncate"}) {
        commit(db, "begin immediate");
        ASSERT_RUNS(db, std::string("pragma wal_checkpoint(") + how + ")");
      }
      // The mode changes while the lock is held.
      const std::string other = std::string(mode) == "normal" ? "exclusive" : "normal";
      commit(db, "begin immediate", "pragma locking_mode = " + other);
      commit(db, "begin", "pragma locking_mode = " + std::string(mode));
    }
  }
  ASSERT_RUNS(db, "pragma locking_mode = normal; select v from n");
  Db second = open();
  commit(second, "begin immediate");
  commit(db, "begin");
}

// SQLite leaves the log, and comes back to it.
TEST_F(SharedPhases, BeginAnewWithTheLog) {
  Db db = make();
  for (int i = 0; i < 3; ++i) {
    commit(db, "begin");
    EXPECT_EQ(db.all("pragma journal_mode = delete"), "delete");
    ASSERT_RUNS(db, "update n set v = v");
    EXPECT_EQ(db.all("pragma journal_mode = wal"), "wal");
    roll_back(db, "begin immediate");
    commit(db, "begin immediate");
  }
}

}  // namespace
}  // namespace memlith::test
