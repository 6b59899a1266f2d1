// The queue of writers: order of arrival, promises, and SQLITE_BUSY as SQLite documents it.
#include <thread>

#include "files_fixture.hpp"
#include "sqlite/src/writer_queue.hpp"

namespace memlith::test {
namespace {

using sqlite::WriterQueue;
using Waiter = WriterQueue::Waiter;
using std::chrono::microseconds;
using std::chrono::seconds;

bool lock(WriterQueue& queue, Waiter& who, bool is_free = true) {
  return queue.try_lock(who, [is_free] { return is_free; });
}
void unlock(WriterQueue& queue) {
  queue.unlock([] {});
}

TEST(WriterQueue, TheFirstToComeGetsAFreeLock) {
  WriterQueue queue;
  Waiter a;
  Waiter b;
  EXPECT_TRUE(lock(queue, a));
  EXPECT_FALSE(lock(queue, b, false));
  unlock(queue);
  EXPECT_TRUE(lock(queue, b));
}

TEST(WriterQueue, ASleepEndsWhenTheLockIsPromised) {
  WriterQueue queue{std::chrono::hours(1)};
  Waiter a;
  Waiter b;
  Waiter c;
  ASSERT_TRUE(lock(queue, a));
  std::thread sleeper([&] { queue.wait(b, seconds(60)); });
  unlock(queue);  // perhaps before it waits: then the lock is promised when it comes
  sleeper.join();
  EXPECT_TRUE(b.is_promised());
  EXPECT_FALSE(lock(queue, c));  // b is not overtaken
  queue.leave(b);                // unless it is closed
  EXPECT_TRUE(lock(queue, c));
}

TEST(WriterQueue, AFreeLockIsPromisedAtOnce) {
  WriterQueue queue;
  Waiter a;
  queue.wait(a, seconds(60));
  EXPECT_TRUE(a.is_promised());
  EXPECT_TRUE(lock(queue, a));
  EXPECT_FALSE(a.is_promised());
}

TEST(WriterQueue, TheWaitEnds) {
  WriterQueue queue;
  Waiter a;
  Waiter b;
  ASSERT_TRUE(lock(queue, a));
  queue.wait(b, microseconds(1));
  EXPECT_FALSE(b.is_promised());
  unlock(queue);
  EXPECT_FALSE(b.is_promised());  // it does not wait any more
  EXPECT_TRUE(lock(queue, a));
}

// A connection that does not come for the lock loses it.
TEST(WriterQueue, APromiseEnds) {
  WriterQueue queue{std::chrono::milliseconds(20)};
  Waiter gone;
  Waiter next;
  Waiter other;
  queue.wait(gone, seconds(60));
  ASSERT_TRUE(gone.is_promised());
  queue.wait(next, seconds(60));
  EXPECT_FALSE(gone.is_promised());
  EXPECT_TRUE(next.is_promised());
  EXPECT_TRUE(lock(queue, next));
  EXPECT_FALSE(lock(queue, other, false));
}

class Waiting : public Files {
 protected:
  Db open_wal() {
    Db db = open();
    EXPECT_RUNS(db, "pragma journal_mode = wal; create table if not exists t(a)");
    return db;
  }
};

TEST_F(Waiting, WithoutABusyHandlerThereIsNoWait) {
  Db a = open_wal();
  Db b = open_wal();
  ASSERT_RUNS(a, "begin immediate");
  EXPECT_EQ(b.run("insert into t values(1)"), SQLITE_BUSY);
  ASSERT_RUNS(a, "commit");
  ASSERT_RUNS(b, "insert into t values(1)");
}

TEST_F(Waiting, TwoConnectionsOfAThreadDoNotWaitForEver) {
  Db a = open_wal();
  Db b = open_wal();
  sqlite3_busy_timeout(b.get(), 30);
  ASSERT_RUNS(a, "begin immediate; insert into t values(1)");
  EXPECT_EQ(b.run("insert into t values(2)"), SQLITE_BUSY);
  ASSERT_RUNS(a, "commit");
  ASSERT_RUNS(b, "insert into t values(2)");
  EXPECT_EQ(a.all("select * from t"), "1\n2");
}

// A transaction that has read cannot write on top of commits that it did not see: SQLite says so at once.
TEST_F(Waiting, AReaderThatWantsToWriteIsToldAtOnce) {
  Db a = open_wal();
  Db b = open_wal();
  sqlite3_busy_timeout(b.get(), 60000);
  ASSERT_RUNS(b, "begin; select * from t");
  ASSERT_RUNS(a, "begin immediate; insert into t values(1)");
  EXPECT_EQ(b.run("insert into t values(2)"), SQLITE_BUSY);
  ASSERT_RUNS(a, "commit");
  EXPECT_EQ(b.run("insert into t values(2)"), SQLITE_BUSY_SNAPSHOT);
  ASSERT_RUNS(b, "rollback; insert into t values(2)");
  ASSERT_RUNS(a, "insert into t values(3)");
}

// Two connections that both hold a snapshot and want to write: one gets through, the other is told, and neither waits
// for the other.
TEST_F(Waiting, TwoUpgradesDoNotWaitForEachOther) {
  Db a = open_wal();
  Db b = open_wal();
  for (Db* const db : {&a, &b}) {
    sqlite3_busy_timeout(db->get(), 60000);
    ASSERT_RUNS(*db, "begin; select * from t");
  }
  ASSERT_RUNS(a, "insert into t values(1)");
  EXPECT_EQ(b.run("insert into t values(2)"), SQLITE_BUSY);
  ASSERT_RUNS(a, "commit");
  EXPECT_EQ(b.run("insert into t values(2)"), SQLITE_BUSY_SNAPSHOT);
}

// The busy handler is asked as often as it wants to be, and its answer counts.
TEST_F(Waiting, ABusyHandlerOfTheProgramIsAsked) {
  Db a = open_wal();
  Db b = open_wal();
  int asked = 0;
  const auto handler = [](void* count, int) { return ++*static_cast<int*>(count) < 5 ? 1 : 0; };
  sqlite3_busy_handler(b.get(), handler, &asked);
  ASSERT_RUNS(a, "begin immediate");
  EXPECT_EQ(b.run("insert into t values(1)"), SQLITE_BUSY);
  EXPECT_EQ(asked, 5);
}

// A checkpoint that waits for writers gets its turn.
TEST_F(Waiting, ACheckpointWaitsInTheQueue) {
  Db a = open_wal();
  Db b = open_wal();
  sqlite3_busy_timeout(b.get(), 60000);
  ASSERT_RUNS(a, "insert into t values(1)");
  ASSERT_RUNS(a, "begin immediate");
  std::thread checkpoint([&] { EXPECT_EQ(b.all("pragma wal_checkpoint(truncate)"), "0|0|0"); });
  ASSERT_RUNS(a, "insert into t values(2); commit");
  checkpoint.join();
  EXPECT_EQ(b.all("select * from t"), "1\n2");
}

}  // namespace
}  // namespace memlith::test
