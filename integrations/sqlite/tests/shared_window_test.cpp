// Mode shared: commits that return without a flush, and are durable within their window, whichever process ends.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "shared_fixture.hpp"
#include "sqlite/src/shared/connection.hpp"

namespace memlith::test {
namespace {

using sqlite::shared::Group;
using sqlite::shared::Position;

class SharedWindow : public SharedPage {};

TEST_F(SharedWindow, AWindowIsKept) {
  Db first = make();
  Db weak = open("durability=weak&window_ms=20");
  ASSERT_RUNS(weak, transfer(1));
  EXPECT_TRUE(comes([&] { return after_cut() == 1; })) << "durability=weak";
  Db normal = open("window_ms=20", "normal");
  ASSERT_RUNS(normal, transfer(2));
  EXPECT_TRUE(comes([&] { return after_cut() == 2; })) << "synchronous=normal";
  EXPECT_EQ(first.all("pragma memlith_window_ms"), "off");
  ASSERT_RUNS(first, "pragma synchronous=normal; pragma memlith_window_ms = 5");
  ASSERT_RUNS(first, transfer(3));
  EXPECT_TRUE(comes([&] { return after_cut() == 3; })) << "by a pragma";
  EXPECT_EQ(first.run("pragma memlith_window_ms = often"), SQLITE_ERROR);
  EXPECT_EQ(weak.all("pragma memlith_durability"), "weak");
  EXPECT_EQ(weak.all("pragma memlith_durability = full"), "full");
  ASSERT_RUNS(weak, transfer(4));
  EXPECT_EQ(after_cut(), 4);
}

TEST_F(SharedWindow, CommitsOfOneWindowShareAFlush) {
  Db db = make();
  std::atomic<int> flushes{0};
  Db weak = open("durability=weak&window_ms=3600000");
  ASSERT_RUNS(weak, transfer(0));  // begins a generation of the log, which is flushed
  Medium::get().during_flush = [&](const std::string& name) { flushes += name.ends_with("-wal") ? 1 : 0; };
  for (int i = 1; i <= 50; ++i) {
    ASSERT_RUNS(weak, transfer(i));
    EXPECT_EQ(weak.all("select v from n"), std::to_string(i)) << "readers with a window do not wait either";
  }
  EXPECT_EQ(flushes, 0);
  EXPECT_EQ(after_cut(), 0);
  EXPECT_EQ(weak.all("pragma memlith_persist"), "ok");
  EXPECT_EQ(after_cut(), 50);
  ASSERT_RUNS(weak, transfer(51));
  EXPECT_EQ(db.all("select v from n"), "51");
  EXPECT_EQ(after_cut(), 51) << "other readers do wait";
}

TEST_F(SharedWindow, AClosedConnectionOwesNothing) {
  for (const bool planted : {false, true}) {
    core::active_mutant = planted ? core::Mutant::shared_forget_promise : core::Mutant::none;
    path_ = folder_ / (planted ? "planted.db" : "app.db");
    Db db = make();
    Db weak = open("durability=weak&window_ms=3600000");
    ASSERT_RUNS(weak, transfer(1));
    ASSERT_EQ(weak.close(), SQLITE_OK);
    EXPECT_EQ(after_cut() == 1, !planted);
  }
}

TEST_F(SharedWindow, ACommitDuringTheFlushOfAWindowNeedsAnother) {
  for (const bool planted : {false, true}) {
    core::active_mutant = planted ? core::Mutant::shared_due_after_flush : core::Mutant::none;
    write_file(path_, "");
    const auto sidecar = attach(path_);
    Group group(*sidecar);
    class Promises final : public sqlite::shared::Log {
     public:
      explicit Promises(Group& group) : group_(group) {}
      [[nodiscard]] std::optional<Position> newest() const override { return Position{7, 1}; }
      int flush() override {
        if (flushes++ == 0) (void)group_.promise({7, 2}, 1000);
        return SQLITE_OK;
      }
      int flushes = 0;

     private:
      Group& group_;
    } log(group);
    (void)group.promise({7, 1}, 1000);
    while (log.flushes == 0) ASSERT_EQ(group.flush_due(log), SQLITE_OK);
    EXPECT_EQ(group.due_ns() != 0, !planted);
  }
}

// A process promises, and is killed at each step, or in its flush; another one that has a window keeps the promise.
TEST_F(SharedWindow, AnotherProcessKeepsThePromisesOfAKilledOne) {
  ASSERT_EQ(make().close(), SQLITE_OK);
  Db beside = open("durability=weak&window_ms=1");
  ASSERT_RUNS(beside, transfer(0));  // begins a generation of the log
  int value = 0;
  bool flushes = false;
  for (int stop = 0; !flushes; ++stop) {
    ASSERT_LT(stop, 2000);
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Db db = open("durability=weak&window_ms=1");
      if (db.run("select v from n") != SQLITE_OK) ::_exit(1);
      std::atomic<int> step{0};
      at_step() = [&] {
        if (step++ == stop) ::raise(SIGKILL);
      };
      Medium::get().during_flush = [&](const std::string&) {
        (void)!::write(ends[1], "f", 1);
        ::raise(SIGKILL);
      };
      if (db.run(transfer(value + 1)) != SQLITE_OK) ::_exit(2);
      (void)!::write(ends[1], "a", 1);
      ::usleep(200'000);  // the other process may be the first to flush
      ::raise(SIGKILL);
    }
    ::close(ends[1]);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    bool promised = false;
    for (char what = 0; ::read(ends[0], &what, 1) == 1;) (what == 'a' ? promised : flushes) = true;
    ::close(ends[0]);
    EXPECT_TRUE(!promised || comes([&] { return after_cut() == value + 1; })) << "step " << stop;
    value = std::stoi(beside.all("select v from n"));
  }
}

// The process that flushes for all is stopped there.
TEST_F(SharedWindow, AnotherProcessKeepsThePromisesBesideAStoppedOne) {
  ASSERT_EQ(make().close(), SQLITE_OK);
  Db weak = open("durability=weak&window_ms=3600000");
  ASSERT_RUNS(weak, transfer(0));
  const pid_t child = ::fork();
  if (child == 0) {
    Db db = open("durability=weak&window_ms=1");
    Medium::get().during_flush = [](const std::string& name) {
      if (name.ends_with("-wal")) ::raise(SIGSTOP);
    };
    // Until this process is the one that flushes. Between two commits it has no lock that would stop the other one.
    for (;;) {
      (void)db.run(transfer(1));
      ::usleep(100'000);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  ASSERT_RUNS(weak, "pragma memlith_window_ms = 1");
  ASSERT_RUNS(weak, transfer(2));
  EXPECT_TRUE(comes([&] { return after_cut() == 2; }));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
}

// A child's inherited memory stays allocated, and LeakSanitizer would report it.
bool inherits = false;
#ifdef __SANITIZE_ADDRESS__
extern "C" int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return inherits ? 1 : 0; }
#endif

TEST_F(SharedWindow, AProcessThatExitsKeepsItsPromises) {
  ASSERT_EQ(make().close(), SQLITE_OK);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    inherits = true;
    auto* const db = new Db(open("durability=weak&window_ms=3600000"));
    // The commit itself flushes nothing; the thread that checkpoints may flush right behind it.
    std::atomic<bool> returned{false};
    const auto caller = std::this_thread::get_id();
    Medium::get().during_flush = [&](const std::string&) {
      if (returned || std::this_thread::get_id() != caller) (void)!::write(ends[1], "f", 1);
    };
    if (db->run(transfer(1)) != SQLITE_OK) ::_exit(3);
    returned = true;
    std::exit(0);
  }
  ::close(ends[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  char flushed = 0;
  EXPECT_EQ(::read(ends[0], &flushed, 1), 1) << "it ended without a flush";
  ::close(ends[0]);
}

}  // namespace
}  // namespace memlith::test
