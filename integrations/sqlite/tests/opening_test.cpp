// docs/sqlite.md, "Connections": connections that are opened, fail to be opened and are closed at the same time.
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "support/temp_folder.hpp"
#include "words.hpp"

namespace memlith::test {
namespace {

using core::Result;
using core::Status;

// Opens once; waiting threads continue then, or after a while.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void wait(std::chrono::milliseconds at_most = std::chrono::seconds(60)) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, at_most, [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

// The real files, with something done between the steps of opening and closing.
class SteppedWorld final : public sqlite::World {
 public:
  std::function<void()> before_asking_for_permission = [] {};
  std::function<void()> before_unlocking = [] {};

  Result<sqlite::Place> place_of(const std::string& path) override { return real().place_of(path); }
  Result<std::string> identity_of(const std::string& path) override { return real().identity_of(path); }
  Status create(const std::string& path) override { return real().create(path); }
  bool may_write(const std::string& path) override {
    before_asking_for_permission();
    return real().may_write(path);
  }
  Result<std::unique_ptr<sqlite::HostLock>> host(core::Volume& volume, const std::string& name,
                                                 bool writable) override {
    auto lock = real().host(volume, name, writable);
    if (!lock.ok()) return lock;
    return std::unique_ptr<sqlite::HostLock>(std::make_unique<SteppedLock>(*this, std::move(*lock)));
  }

 private:
  class SteppedLock final : public sqlite::HostLock {
   public:
    SteppedLock(SteppedWorld& world, std::unique_ptr<sqlite::HostLock> lock) : world_(world), lock_(std::move(lock)) {}
    ~SteppedLock() override { world_.before_unlocking(); }
    SteppedLock(const SteppedLock&) = delete;
    SteppedLock& operator=(const SteppedLock&) = delete;
    Status make_exclusive() override { return lock_->make_exclusive(); }
    Status share() override { return lock_->share(); }
    [[nodiscard]] std::shared_ptr<core::OpenFile> file() const override { return lock_->file(); }
    [[nodiscard]] bool removed() const override { return lock_->removed(); }

   private:
    SteppedWorld& world_;
    std::unique_ptr<sqlite::HostLock> lock_;
  };
  static sqlite::World& real() { return sqlite::real_world(); }
};

SteppedWorld& stepped_world() {
  static SteppedWorld* const world = [] {
    auto* const made = new SteppedWorld;
    auto vfs = sqlite::Vfs::make(linked_api(), *new sqlite::Databases(*made), "memlith-stepped");
    EXPECT_EQ(vfs.release()->register_it(false), SQLITE_OK);  // lives as long as the process
    return made;
  }();
  return *world;
}

// The last connection is closed while others fail to open the database for writing: the last user of all closes the
// database, and the next opening waits for that.
TEST(Opening, OneThatFailsBesideTheLastCloseClosesInItsPlace) {
  TempFolder folder;
  const std::string path = folder / "app.db";
  ASSERT_RUNS(Db(path, nullptr), "create table t(a); insert into t values(1)");
  SteppedWorld& world = stepped_world();
  const auto open = [&](const char* mode) {
    return Db("file:" + path + "?mode=" + mode, "memlith-stepped", SQLITE_OPEN_READWRITE);
  };
  // Long enough for a thread to come to where it waits. If it is not, the test proves less, and passes.
  const auto let_it_wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };

  Db reader = open("ro");
  ASSERT_EQ(reader.all("select a from t"), "1");

  Gate asked;
  Gate go_on;
  Gate closing;
  Gate opened_again;
  std::once_flag once;
  world.before_asking_for_permission = [&] {
    std::call_once(once, [&] {
      asked.open();
      go_on.wait();
    });
  };
  std::thread first([&] { EXPECT_EQ(open("rw").open_code(), SQLITE_BUSY); });
  asked.wait();
  std::thread closer([&] { EXPECT_EQ(reader.close(), SQLITE_OK); });
  let_it_wait();
  std::thread second([&] {
    const int code = open("rw").open_code();
    EXPECT_TRUE(code == SQLITE_BUSY || code == SQLITE_OK) << code;  // OK if the reader was closed before it came
  });
  let_it_wait();
  world.before_unlocking = [&] {
    closing.open();
    opened_again.wait(std::chrono::milliseconds(200));  // which it may not be yet
  };
  go_on.open();
  closing.wait();
  {
    const Db again = open("ro");
    EXPECT_OPEN(again);
    EXPECT_EQ(again.all("select a from t"), "1");
    opened_again.open();
    first.join();
    closer.join();
    second.join();
  }
  world.before_asking_for_permission = world.before_unlocking = [] {};
  EXPECT_OPEN(open("rw"));
}

// Another thread asks for the journal of a database that is being opened. The answer depends on whether memlith has
// that database, so it comes when the opening has ended. The journal here is one that plain SQLite ended by zeros: it
// is nothing of memlith's.
TEST(Opening, AQuestionAboutTheJournalWaitsForTheOpening) {
  TempFolder folder;
  const std::string path = folder / "app.db";
  ASSERT_RUNS(Db(path, nullptr), "pragma journal_mode = persist; create table t(a); insert into t values(1)");
  ASSERT_GT(std::filesystem::file_size(path + "-journal"), 0u);
  SteppedWorld& world = stepped_world();
  Gate opening;
  Gate go_on;
  world.before_asking_for_permission = [&] {
    opening.open();
    go_on.wait();
  };
  Db db;
  std::thread opener([&] { db = Db(path, "memlith-stepped"); });
  opening.wait();
  Gate asks;
  int there = -1;
  std::thread other([&] {
    sqlite3_vfs* const vfs = sqlite3_vfs_find("memlith-stepped");
    asks.open();
    EXPECT_EQ(vfs->xAccess(vfs, (path + "-journal").c_str(), SQLITE_ACCESS_EXISTS, &there), SQLITE_OK);
  });
  asks.wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // if that is too short, the test proves less, and passes
  go_on.open();
  opener.join();
  other.join();
  EXPECT_EQ(there, 0);
  world.before_asking_for_permission = [] {};
  EXPECT_OPEN(db);
}

// The same without gates, for ThreadSanitizer: opening and closing beside threads that ask for the journal and the
// write-ahead log.
TEST(Opening, QuestionsBesideOpeningAndClosing) {
  TempFolder folder;
  const std::string path = folder / "app.db";
  ASSERT_RUNS(Db(path, nullptr), "create table t(a); insert into t values(1)");
  (void)stepped_world();
  std::atomic<bool> ended{false};
  const auto ask = [&](const char* suffix) {
    sqlite3_vfs* const vfs = sqlite3_vfs_find("memlith-stepped");
    while (!ended) {
      int there = -1;
      EXPECT_EQ(vfs->xAccess(vfs, (path + suffix).c_str(), SQLITE_ACCESS_EXISTS, &there), SQLITE_OK);
      EXPECT_EQ(there, 0);
    }
  };
  std::thread journal([&] { ask("-journal"); });
  std::thread wal([&] { ask("-wal"); });
  for (int i = 0; i < 20; ++i) {
    Db db(path, "memlith-stepped");
    EXPECT_EQ(db.all("select a from t"), "1");
  }
  ended = true;
  journal.join();
  wal.join();
}

}  // namespace
}  // namespace memlith::test
