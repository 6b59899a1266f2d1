// A helper that a killed program has forked does not keep the store of the program locked.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>
#include <string>
#include <utility>

#include "memlith/memlith.hpp"
#include "private/inside.h"
#include "support/temp_folder.hpp"

namespace memlith::test::helper_lock_test {
namespace {

pid_t plain_fork() { return ::fork(); }
// As a program does that goes around the handlers of fork(3).
pid_t bare_clone() { return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }

// A program that has opened something, has made a helper by `fork`, and was killed. The helper lives as long as this.
class KilledProgram {
 public:
  KilledProgram(const std::function<bool()>& opens, pid_t (*fork)()) {
    std::array<int, 2> told{};
    EXPECT_EQ(::pipe(told.data()), 0);
    program_ = ::fork();
    if (program_ == 0) {
      const bool opened = opens();
      const pid_t helper = opened ? fork() : -1;
      // The helper tells itself: until it has run, it has the locks that it inherited.
      const pid_t number = helper == 0 ? ::getpid() : -1;
      if (helper <= 0) (void)!::write(told[1], &number, sizeof number);
      for (;;) ::pause();
    }
    EXPECT_EQ(::read(told[0], &helper_, sizeof helper_), static_cast<ssize_t>(sizeof helper_));
    EXPECT_GT(helper_, 0) << "the program did not come so far";
    ::close(told[0]);
    ::close(told[1]);
    ::kill(program_, SIGKILL);
    ::waitpid(program_, nullptr, 0);
  }
  ~KilledProgram() {
    if (helper_ > 0) ::kill(helper_, SIGKILL);
  }
  KilledProgram(const KilledProgram&) = delete;
  KilledProgram& operator=(const KilledProgram&) = delete;

 private:
  pid_t program_ = -1;
  pid_t helper_ = -1;
};

template <class Open>
std::function<bool()> keeps_open(const Open& open) {
  return [open] {
    auto store = open();
    return store && new Store(std::move(*store)) != nullptr;
  };
}

TEST(HelperLock, EndsWithTheProgram) {
  const TempFolder folder;
  const auto open_folder = [&] { return Store::open(folder / "s", {.create = true}); };
  const auto open_one_file = [&] { return Store::open_file(folder / "app.dat", {.create = true}); };
  {
    const KilledProgram program(keeps_open(open_folder), plain_fork);
    memlith_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_TRUE(memlith_stat((folder / "s").c_str(), &stats) != MEMLITH_OK || stats.alive == 0);
    const auto store = open_folder();
    EXPECT_TRUE(store) << store.error().message();
  }
  const KilledProgram program(keeps_open(open_one_file), plain_fork);
  const auto store = open_one_file();
  EXPECT_TRUE(store) << store.error().message();
}

TEST(HelperLock, OfAReaderEndsWithTheProgram) {
  const TempFolder folder;
  ASSERT_TRUE(Store::open(folder / "s", {.create = true}));
  const KilledProgram program(keeps_open([&] { return Store::open(folder / "s", {.read_only = true}); }), plain_fork);
  const auto store = Store::open(folder / "s");
  EXPECT_TRUE(store) << store.error().message();
}

// The child uses no descriptor of the store, and the program goes on with the store.
TEST(HelperLock, StaysWithTheProgramThatLives) {
  const TempFolder folder;
  auto store = Store::open(folder / "s", {.create = true});
  ASSERT_TRUE(store);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto second = Store::open(folder / "s");
    ::_exit(!second && second.error().category() == MEMLITH_BUSY ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  auto region = store->region("r", {.create = true, .size = 4096});
  ASSERT_TRUE(region) << region.error().message();
  *static_cast<char*>(region->address()) = 'a';
  EXPECT_TRUE(region->persist());
}

// A child that knows no handlers has the lock; the message does not name the dead process as the one to close it.
TEST(HelperLock, OfAClonedChildIsExplained) {
  const TempFolder folder;
  const auto open = [&] { return Store::open(folder / "s", {.create = true}); };
  const KilledProgram program(keeps_open(open), bare_clone);
  const auto store = open();
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().category(), MEMLITH_BUSY);
  EXPECT_NE(store.error().message().find("it has ended"), std::string::npos) << store.error().message();
  EXPECT_NE(store.error().message().find("fuser -v"), std::string::npos) << store.error().message();
}

}  // namespace
}  // namespace memlith::test::helper_lock_test
