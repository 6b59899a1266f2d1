// Regions that several processes write: every call, through C++, with the program `memlith` as the keeper.
#include "memlith/shared.hpp"
#include "private/inside.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "support/temp_folder.hpp"

namespace memlith::test::shared_test {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kBytes = 64 << 10;

class Shared : public testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_ / "store"; }
  [[nodiscard]] memlith::Result<SharedRegion> open(std::uint64_t bytes = kBytes) const {
    return SharedRegion::open(path(), "table", {.create = true, .size = bytes});
  }
  // A child that takes part; the exit code is that of `act`.
  template <class Act>
  static int in_child(Act act) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(act());
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // Opens the store for writing when its keeper has ended.
  [[nodiscard]] memlith::Result<Store> open_alone() const {
    for (int i = 0;; ++i) {
      auto store = Store::open(path());
      if (store || store.error().category() != MEMLITH_BUSY || i == 1000) return store;
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
  [[nodiscard]] pid_t keeper() const {
    memlith_stats stats{};
    stats.struct_size = sizeof stats;
    return memlith_stat(path().c_str(), &stats) == 0 && stats.alive != 0 ? static_cast<pid_t>(stats.process) : 0;
  }

  TempFolder folder_;
};

#define ASSERT_OK(result) ASSERT_TRUE(result) << (result).error().message()
#define EXPECT_FAILS(result, category_, says)                                                        \
  do {                                                                                               \
    const auto& failed_ = (result);                                                                  \
    ASSERT_FALSE(failed_);                                                                           \
    EXPECT_EQ(failed_.error().category(), category_) << failed_.error().message();                   \
    EXPECT_NE(failed_.error().message().find(says), std::string::npos) << failed_.error().message(); \
  } while (false)

TEST_F(Shared, CommitsAreSeenByOthersAndDurable) {
  auto region = open();
  ASSERT_OK(region);
  EXPECT_EQ(region->size(), kBytes);
  auto* const numbers = static_cast<std::uint64_t*>(region->address());
  const auto place = reinterpret_cast<std::uint64_t>(numbers);
  auto tx = region->begin();
  ASSERT_OK(tx);
  ASSERT_OK(tx->touch_before(&numbers[0]));
  numbers[0] = 17;
  ASSERT_OK(tx->commit());
  EXPECT_EQ(in_child([&] {
              auto own = open();
              if (!own || reinterpret_cast<std::uint64_t>(own->address()) != place) return 1;
              auto* const seen = static_cast<std::uint64_t*>(own->address());
              auto mine = own->begin();
              if (seen[0] != 17 || !mine || !mine->touch_before(&seen[1])) return 2;
              seen[1] = 18;
              auto ticket = mine->commit_weak();
              return ticket && own->wait(*ticket) ? 0 : 3;
            }),
            0);
  EXPECT_EQ(numbers[1], 18);
  // Without a range: seen, and not durable.
  numbers[2] = 19;
  region->close();
  auto store = open_alone();
  ASSERT_OK(store);
  auto plain = store->region("table");
  ASSERT_OK(plain);
  const auto* const kept = static_cast<const std::uint64_t*>(plain->address());
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(kept), place);
  EXPECT_EQ(kept[0], 17);
  EXPECT_EQ(kept[1], 18);
  EXPECT_EQ(kept[2], 0);
}

TEST_F(Shared, AnAbortGivesOldBytesBack) {
  auto region = open();
  ASSERT_OK(region);
  auto* const bytes = static_cast<char*>(region->address());
  std::memset(bytes, 'a', 64);
  {
    auto tx = region->begin();
    ASSERT_OK(tx);
    ASSERT_OK(tx->touch_before(bytes, 16));
    std::memset(bytes, 'b', 16);
    ASSERT_OK(tx->touch_before(bytes + 8, 16));  // overlaps what has changed already
    std::memset(bytes + 8, 'c', 16);
    ASSERT_OK(tx->touch_before(bytes + 8, 8));
  }  // aborts
  EXPECT_EQ(std::string(bytes, 32), std::string(32, 'a'));
  auto tx = region->begin();
  ASSERT_OK(tx);
  EXPECT_TRUE(tx->touch_before(bytes, 32, milliseconds(0)));  // free again
}

TEST_F(Shared, RangesExcludeTransactions) {
  auto region = open();
  ASSERT_OK(region);
  auto* const bytes = static_cast<char*>(region->address());
  auto first = region->begin();
  auto second = region->begin();
  ASSERT_OK(first->touch_before(bytes + 100, 100));
  for (const std::uint64_t offset : {50, 100, 150, 199}) {
    EXPECT_FAILS(second->touch_before(bytes + offset, 51, milliseconds(0)), MEMLITH_CONFLICT, "another transaction");
  }
  EXPECT_TRUE(second->touch_before(bytes + 200, 10, milliseconds(0)));
  EXPECT_TRUE(second->touch_before(bytes + 90, 10, milliseconds(0)));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FAILS(second->touch_before(bytes + 100, 1, milliseconds(50)), MEMLITH_CONFLICT, "another transaction");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(50));
  // A commit releases, and wakes the waiters.
  std::thread commits([&] {
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_TRUE(first->commit());
  });
  EXPECT_TRUE(second->touch_before(bytes + 100, 1));
  commits.join();
}

// Two small transactions that take turns would else never leave all of it free.
TEST_F(Shared, ALargeRangeIsTakenWhileSmallOnesComeAndGo) {
  auto region = open();
  ASSERT_OK(region);
  auto* const bytes = static_cast<char*>(region->address());
  std::atomic<bool> ends{false};
  std::vector<std::thread> small;
  for (int i = 0; i < 3; ++i) {
    small.emplace_back([&, i] {
      while (!ends) {
        auto tx = region->begin();
        if (!tx->touch_before(bytes + i * 8, 8)) continue;
        std::this_thread::sleep_for(milliseconds(1 + i));
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    auto tx = region->begin();
    EXPECT_TRUE(tx->touch_before(bytes, kBytes, milliseconds(5000)));
  }
  ends = true;
  for (std::thread& each : small) each.join();
}

TEST_F(Shared, ErrorsNameTheirCause) {
  EXPECT_FAILS(SharedRegion::open(path(), "table", {}), MEMLITH_NOT_FOUND, path());
  EXPECT_FAILS(SharedRegion::open(path(), "table", {.create = true, .size = 4096, .program = "/nowhere/memlith"}),
               MEMLITH_NOT_FOUND, "/nowhere/memlith");
  EXPECT_FAILS(SharedRegion::open(path(), "table", {.create = true, .size = 4096, .program = "/bin/true"}), MEMLITH_IO,
               "without a word");
  EXPECT_FAILS(SharedRegion::open(path(), "", {.create = true}), MEMLITH_INVALID, "name");
  EXPECT_FAILS(SharedRegion::open(path(), "table", {.create = true}), MEMLITH_INVALID, "needs a size");
  auto region = open();
  ASSERT_OK(region);
  EXPECT_FAILS(open(), MEMLITH_ADDRESS_TAKEN, "once");
  EXPECT_FAILS(open(2 * kBytes), MEMLITH_INVALID, "does not grow");
  EXPECT_FAILS(SharedRegion::open(path(), "other", {}), MEMLITH_NOT_FOUND, "other");
  EXPECT_FAILS(Store::open(path()), MEMLITH_BUSY, path());
  auto tx = region->begin();
  ASSERT_OK(tx);
  auto* const bytes = static_cast<char*>(region->address());
  EXPECT_FAILS(tx->touch_before(bytes + kBytes - 7, 8), MEMLITH_INVALID, "do not lie in");
  EXPECT_FAILS(tx->touch_before(&tx, 8), MEMLITH_INVALID, "do not lie in");
  EXPECT_TRUE(tx->touch_before(bytes + kBytes, 0));
  EXPECT_TRUE(tx->commit());  // of nothing
  EXPECT_TRUE(region->wait(0));
  EXPECT_FAILS(region->wait(1ull << 60), MEMLITH_INVALID, "no ticket");
  EXPECT_EQ(memlith_shared_open(nullptr, "a", 1, nullptr, nullptr) & 0xff, MEMLITH_INVALID);
  EXPECT_EQ(memlith_shared_begin(region->handle(), nullptr) & 0xff, MEMLITH_INVALID);
  EXPECT_EQ(memlith_shared_commit(nullptr, 0, nullptr) & 0xff, MEMLITH_INVALID);
  EXPECT_EQ(memlith_shared_wait(nullptr, 0) & 0xff, MEMLITH_INVALID);
  EXPECT_EQ(memlith_shared_keep(nullptr, nullptr) & 0xff, MEMLITH_INVALID);
  EXPECT_EQ(memlith_shared_abort(nullptr), 0);
  EXPECT_EQ(memlith_shared_close(nullptr), 0);
  EXPECT_EQ(memlith_shared_address(nullptr), nullptr);
  memlith_shared_options unknown{};
  unknown.struct_size = sizeof unknown;
  unknown.flags = 8;
  memlith_shared* none = nullptr;
  EXPECT_EQ(memlith_shared_open("a", "a", 1, &unknown, &none) & 0xff, MEMLITH_INVALID);
  memlith_shared_txn* mode = nullptr;
  ASSERT_EQ(memlith_shared_begin(region->handle(), &mode), 0);
  EXPECT_EQ(memlith_shared_commit(mode, 2, nullptr) & 0xff, MEMLITH_INVALID);
  EXPECT_EQ(memlith_shared_abort(mode), 0);
}

TEST_F(Shared, AStoreOnOneFileOrInOtherHandsIsRefused) {
  const std::string file = folder_ / "file";
  write_file(file, "text");
  EXPECT_FAILS(SharedRegion::open(file, "table", {.create = true, .size = 4096}), MEMLITH_UNSUPPORTED, "a folder");
  auto store = Store::open(path(), {.create = true});
  ASSERT_OK(store);
  EXPECT_FAILS(open(), MEMLITH_BUSY, path());
}

// A path to a socket can have 107 bytes.
TEST_F(Shared, AStoreMayLieDeep) {
  std::string deep = folder_.path();
  for (int i = 0; i < 6; ++i) deep += "/" + std::string(60, 'd');
  std::filesystem::create_directories(deep);
  auto region = SharedRegion::open(deep + "/store", "table", {.create = true, .size = 4096});
  ASSERT_OK(region);
  EXPECT_EQ(region->size(), 4096);
}

TEST_F(Shared, RangesHaveALimit) {
  auto region = open();
  ASSERT_OK(region);
  auto* const bytes = static_cast<char*>(region->address());
  auto tx = region->begin();
  memlith::Result<void> taken;
  int ranges = 0;
  for (; ranges < 5000; ++ranges) {
    taken = tx->touch_before(bytes + ranges * 15, 8);
    if (!taken) break;
    bytes[ranges * 15] = 1;
  }
  EXPECT_EQ(ranges, 4096);
  EXPECT_FAILS(taken, MEMLITH_FULL, "fewer");
  EXPECT_TRUE(tx->commit());
  // Ranges that are taken in order are one.
  tx = region->begin();
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(tx->touch_before(bytes + i * 8, 8)) << i;
  bytes[4999 * 8] = 2;
  EXPECT_TRUE(tx->commit());
  auto next = region->begin();
  EXPECT_TRUE(next->touch_before(bytes, kBytes, milliseconds(0)));
}

TEST_F(Shared, AForkedChildOpensItsOwn) {
  auto region = open();
  ASSERT_OK(region);
  auto tx = region->begin();
  ASSERT_OK(tx);
  auto* const numbers = static_cast<std::uint64_t*>(region->address());
  ASSERT_OK(tx->touch_before(&numbers[0]));
  EXPECT_EQ(in_child([&] {
              const auto begun = region->begin();
              if (begun || begun.error().category() != MEMLITH_INVALID) return 1;
              if (tx->touch_before(&numbers[1]) || tx->commit()) return 2;
              if (region->wait(1)) return 3;
              region->close();  // frees, and undoes nothing
              auto own = open();
              if (!own) return 4;
              auto mine = own->begin();
              if (mine->touch_before(&numbers[0], milliseconds(0))) return 5;  // still the parent's
              if (!mine->touch_before(&numbers[1], milliseconds(0))) return 6;
              numbers[1] = 5;
              return mine->commit() ? 0 : 7;
            }),
            0);
  numbers[0] = 4;
  EXPECT_TRUE(tx->commit());
  EXPECT_EQ(numbers[1], 5);
}

TEST_F(Shared, ADeathIsUndone) {
  auto region = open();
  ASSERT_OK(region);
  auto* const numbers = static_cast<std::uint64_t*>(region->address());
  EXPECT_EQ(in_child([&] {
              auto own = open();
              auto tx = own->begin();
              if (!tx->touch_before(&numbers[0])) return 1;
              numbers[0] = 99;
              ::kill(::getpid(), SIGKILL);
              return 2;
            }),
            -1);
  auto tx = region->begin();
  ASSERT_OK(tx->touch_before(&numbers[0]));
  EXPECT_EQ(numbers[0], 0);
}

TEST_F(Shared, ManyThatStartAtOnceHaveOneKeeper) {
  for (int round = 0; round < 3; ++round) {
    std::vector<pid_t> children;
    for (int i = 0; i < 6; ++i) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      auto region = open();
      if (!region) std::fprintf(stderr, "%s\n", region.error().message().c_str());
      if (!region) ::_exit(1);
      for (int n = 0; n < 20; ++n) {
        auto tx = region->begin();
        auto* const numbers = static_cast<std::uint64_t*>(region->address());
        if (!tx->touch_before(numbers)) ::_exit(2);
        ++*numbers;
        if (!tx->commit()) ::_exit(3);
      }
      region->close();
      ::_exit(0);
    }
    for (const pid_t child : children) {
      int status = -1;
      ::waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    auto region = open();
    ASSERT_OK(region);
    EXPECT_EQ(*static_cast<std::uint64_t*>(region->address()), 120 * (round + 1));
    if (round != 0) continue;
    // The next round begins while the keeper ends.
    region->close();
    std::this_thread::sleep_for(milliseconds(195));
  }
}

TEST_F(Shared, AKeeperThatDiesPoisonsAndTheNextOneHasWhatWasDurable) {
  auto region = open();
  ASSERT_OK(region);
  auto* const numbers = static_cast<std::uint64_t*>(region->address());
  auto done = region->begin();
  ASSERT_OK(done->touch_before(numbers));
  numbers[0] = 1;
  ASSERT_OK(done->commit());
  auto tx = region->begin();
  ASSERT_OK(tx->touch_before(numbers));
  numbers[0] = 2;
  const pid_t process = keeper();
  ASSERT_GT(process, 0);
  ASSERT_EQ(::kill(process, SIGKILL), 0);
  for (int i = 0; i < 5000 && region->begin(); ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_FAILS(tx->commit(), MEMLITH_POISONED, "close the handle");
  EXPECT_FAILS(tx->touch_before(&numbers[9]), MEMLITH_POISONED, "close the handle");
  EXPECT_FAILS(region->begin(), MEMLITH_POISONED, "close the handle");
  EXPECT_FAILS(region->wait(1), MEMLITH_POISONED, "close the handle");
  tx->abort();
  region->close();
  region = open();
  ASSERT_OK(region);
  EXPECT_EQ(numbers[0], 1);
}

// After a keeper that was killed, a handle that has lost nothing goes on with what is durable, by a keeper of its own.
TEST_F(Shared, AHandleGoesOnAfterAKeeperThatWasKilled) {
  auto region = open();
  ASSERT_OK(region);
  auto* const numbers = static_cast<std::uint64_t*>(region->address());
  const auto kill_keeper = [&] {
    const pid_t process = keeper();
    ASSERT_GT(process, 0);
    ASSERT_EQ(::kill(process, SIGKILL), 0);
    for (int i = 0; i < 5000 && keeper() == process; ++i) std::this_thread::sleep_for(milliseconds(1));
  };
  for (std::uint64_t round = 1; round <= 3; ++round) {
    auto tx = region->begin();
    ASSERT_OK(tx);
    ASSERT_OK(tx->touch_before(numbers));
    numbers[0] = round;
    ASSERT_OK(tx->commit());
    auto open_one = region->begin();
    ASSERT_OK(open_one);
    ASSERT_OK(open_one->touch_before(numbers));
    numbers[0] = 99;
    numbers[1] = 99;  // without a range
    kill_keeper();
    EXPECT_FAILS(open_one->commit(), MEMLITH_POISONED, "begin again");
    EXPECT_FAILS(region->begin(), MEMLITH_POISONED, "Abort open transactions");
    open_one->abort();
    auto next = region->begin();
    ASSERT_OK(next);
    EXPECT_EQ(numbers[0], round);
    EXPECT_EQ(numbers[1], 0u);
    // With others that have opened it meanwhile.
    EXPECT_EQ(in_child([&] {
                auto own = open();
                auto theirs = own ? own->begin() : own.error();
                if (!theirs || !theirs->touch_before(&numbers[2])) return 1;
                ++numbers[2];
                return theirs->commit() ? 0 : 2;
              }),
              0);
    EXPECT_EQ(numbers[2], round);
  }
}

// Weak commits of a handle may be lost with the keeper, and the handle does not go on as if they were there.
TEST_F(Shared, AHandleWithWeakCommitsStaysPoisoned) {
  for (const bool waits : {false, true}) {
    auto region = open();
    ASSERT_OK(region);
    auto* const numbers = static_cast<std::uint64_t*>(region->address());
    auto tx = region->begin();
    ASSERT_OK(tx->touch_before(numbers));
    numbers[0] = 7;
    auto ticket = tx->commit_weak();
    ASSERT_OK(ticket);
    if (waits) {
      ASSERT_OK(region->wait(*ticket));
    }
    const pid_t process = keeper();
    ASSERT_GT(process, 0);
    ASSERT_EQ(::kill(process, SIGKILL), 0);
    for (int i = 0; i < 5000 && keeper() == process; ++i) std::this_thread::sleep_for(milliseconds(1));
    if (waits) {
      EXPECT_TRUE(region->begin());
      EXPECT_EQ(numbers[0], 7u);
    } else {
      EXPECT_FAILS(region->begin(), MEMLITH_POISONED, "close the handle");
      EXPECT_FAILS(region->begin(), MEMLITH_POISONED, "close the handle");
    }
  }
}

// The keeper is a process of the container in which the first client runs, and ends with the container.
TEST_F(Shared, HandlesOutsideGoOnWhenTheNameSpaceOfTheKeeperEnds) {
  std::array<int, 2> told{};
  ASSERT_EQ(::pipe(told.data()), 0);
  const pid_t maker = ::fork();
  if (maker == 0) {
    const bool may = ::unshare(CLONE_NEWPID) == 0;
    const pid_t first = may ? ::fork() : -1;  // the first process of the name space, whose end is that of all
    if (first != 0) {
      (void)!::write(told[1], &first, sizeof first);
      ::_exit(0);
    }
    auto region = open();
    auto tx = region ? region->begin() : region.error();
    if (!tx || !tx->touch_before(region->as<std::uint64_t>())) ::_exit(1);
    *region->as<std::uint64_t>() = 5;
    if (!tx->commit()) ::_exit(2);
    (void)!::write(told[1], "", 1);
    for (;;) ::pause();
  }
  ::close(told[1]);
  pid_t first = -1;
  ASSERT_EQ(::read(told[0], &first, sizeof first), static_cast<ssize_t>(sizeof first));
  ::waitpid(maker, nullptr, 0);
  if (first < 0) GTEST_SKIP() << "this process may not make a PID name space";
  char ready = 1;
  EXPECT_EQ(::read(told[0], &ready, 1), 1) << "the process in the name space failed";
  ::close(told[0]);
  auto region = open();
  ASSERT_OK(region);
  auto* const numbers = static_cast<std::uint64_t*>(region->address());
  const auto add = [&] {
    auto tx = region->begin();
    memlith::Result<void> done = tx ? tx->touch_before(numbers) : tx.error();
    if (!done) return done;
    ++numbers[0];
    return tx->commit();
  };
  EXPECT_TRUE(add());
  EXPECT_EQ(numbers[0], 6u);
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  for (int i = 0; i < 5000 && ::kill(first, 0) == 0; ++i) std::this_thread::sleep_for(milliseconds(1));
  const auto added = add();
  EXPECT_TRUE(added) << added.error().message();
  EXPECT_EQ(numbers[0], 7u);
  const pid_t process = keeper();
  EXPECT_GT(process, 0);
  EXPECT_EQ(::kill(process, 0), 0) << "no keeper of this name space";
}

// The threads of one process have one socket.
TEST_F(Shared, ThreadsCommitSideBySide) {
  auto region = open();
  ASSERT_OK(region);
  auto* const numbers = static_cast<std::uint64_t*>(region->address());
  std::vector<std::thread> threads;
  for (int t = 0; t < 80; ++t) {
    threads.emplace_back([&, t] {
      for (int n = 0; n < 5; ++n) {
        auto tx = region->begin();
        if (!tx->touch_before(&numbers[t]) || !tx->touch_before(&numbers[100])) continue;
        ++numbers[t];
        ++numbers[100];
        EXPECT_TRUE(tx->commit());
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(numbers[100], 400);
}

// Followers and copies read the store beside its keeper.
TEST_F(Shared, TheStoreCanBeFollowed) {
  auto region = open();
  ASSERT_OK(region);
  auto* const numbers = static_cast<std::uint64_t*>(region->address());
  auto tx = region->begin();
  ASSERT_OK(tx->touch_before(numbers));
  numbers[0] = 7;
  ASSERT_OK(tx->commit());
  EXPECT_EQ(in_child([&] {
              auto store = Store::open(path(), {.follow = true});
              if (!store) return 1;
              auto seen = store->region("table");
              return seen && *static_cast<const std::uint64_t*>(seen->address()) == 7 ? 0 : 2;
            }),
            0);
  memlith_report report{};
  report.struct_size = sizeof report;
  EXPECT_EQ(memlith_verify(path().c_str(), &report), 0);
}

}  // namespace
}  // namespace memlith::test::shared_test
