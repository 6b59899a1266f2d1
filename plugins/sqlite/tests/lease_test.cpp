// lease.hpp: when the lease moves, with the calls that the watch makes made here.
#include "sqlite/src/lease.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace memlith::test {
namespace {

using core::Errc;
using core::Status;
using sqlite::Lease;
using std::chrono::milliseconds;

constexpr Status kBusy{Errc::busy, core::Detail::none, 0, 0};

class Fake final : public sqlite::Leased {
 public:
  Status take() override { return held_elsewhere ? kBusy : (++taken, core::kOk); }
  Status give_up(bool) override { return give_up_fails ? kBusy : (++given_up, core::kOk); }
  Status settle() override {
    unsettled = false;
    return core::kOk;
  }
  bool is_unsettled() const override { return unsettled; }
  bool others_wait() const override { return wished; }
  void stop_waiting() override { ++left_line; }
  Status tell_holder() override { return kBusy; }

  std::atomic<bool> held_elsewhere{false};
  std::atomic<bool> wished{false};
  std::atomic<bool> unsettled{false};
  bool give_up_fails = false;
  int taken = 0;
  int given_up = 0;
  int left_line = 0;
};

// Calls tend() until `ends` holds, as the watch does. Nothing depends on how much time passes.
template <class Ends>
void tend_until(Lease& lease, Ends ends) {
  while (!ends()) {
    (void)lease.tend();
    std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST(Lease, AnIdleHolderGivesItUpAndTakesItAgain) {
  Fake database;
  Lease lease(database, milliseconds(0));
  ASSERT_TRUE(lease.enter(milliseconds(0)).ok());
  lease.leave();
  for (int i = 0; i < 200; ++i) (void)lease.tend();
  EXPECT_EQ(database.given_up, 0);  // no other process wants the lease
  database.wished = true;
  tend_until(lease, [&] { return database.given_up == 1; });
  database.held_elsewhere = true;
  EXPECT_EQ(lease.enter(milliseconds(2)).category, Errc::busy);
  database.wished = database.held_elsewhere = false;
  ASSERT_TRUE(lease.enter(milliseconds(0)).ok());
  EXPECT_EQ(database.taken, 2);
  lease.leave();
}

TEST(Lease, StaysWhileAConnectionUsesTheDatabase) {
  Fake database;
  Lease lease(database, milliseconds(0));
  ASSERT_TRUE(lease.enter(milliseconds(0)).ok());
  database.wished = true;
  const auto end = Lease::Clock::now() + milliseconds(200);  // longer than it is kept, and than new ones wait for it
  tend_until(lease, [&] { return Lease::Clock::now() >= end; });
  EXPECT_EQ(database.given_up, 0);
  // Another connection gets in between, because the one that uses it may wait for that one.
  ASSERT_TRUE(lease.enter(milliseconds(60'000)).ok());
  lease.leave();
  lease.leave();
  tend_until(lease, [&] { return database.given_up == 1; });
}

// A process whose transactions follow each other at once gives it up as well.
TEST(Lease, ABusyHolderGivesItUp) {
  Fake database;
  Lease lease(database, milliseconds(0));
  std::atomic<bool> stop{false};
  std::atomic<int> entered{0};
  std::thread worker([&] {
    while (!stop) {
      if (!lease.enter(milliseconds(1)).ok()) continue;
      ++entered;
      lease.leave();
    }
  });
  while (entered == 0) std::this_thread::yield();
  database.held_elsewhere = true;
  database.wished = true;
  tend_until(lease, [&] { return database.given_up == 1; });
  database.wished = false;
  const int before = entered;
  database.held_elsewhere = false;
  while (entered <= before) std::this_thread::yield();
  stop = true;
  worker.join();
}

TEST(Lease, AProcessThatNobodyWaitsInLeavesTheLine) {
  Fake database;
  Lease lease(database, milliseconds(0));
  database.held_elsewhere = true;
  EXPECT_EQ(lease.enter(milliseconds(1)).category, Errc::busy);
  tend_until(lease, [&] { return database.left_line == 1; });
}

TEST(Lease, ALeaseThatCannotBeGivenUpStays) {
  Fake database;
  database.give_up_fails = true;
  Lease lease(database, milliseconds(0));
  ASSERT_TRUE(lease.enter(milliseconds(0)).ok());
  lease.leave();
  database.wished = true;
  const auto end = Lease::Clock::now() + milliseconds(20);
  tend_until(lease, [&] { return Lease::Clock::now() >= end; });
  ASSERT_TRUE(lease.enter(milliseconds(60'000)).ok());
  EXPECT_EQ(database.taken, 1);
  lease.leave();
}

TEST(Lease, SettlesWhenItWasIdle) {
  Fake database;
  Lease lease(database, milliseconds(1));
  ASSERT_TRUE(lease.enter(milliseconds(0)).ok());
  database.unsettled = true;
  const auto end = Lease::Clock::now() + milliseconds(10);
  tend_until(lease, [&] { return Lease::Clock::now() >= end; });
  EXPECT_TRUE(database.unsettled);  // a connection uses it
  lease.leave();
  tend_until(lease, [&] { return !database.unsettled; });
}

TEST(Lease, NothingMovesAfterTheClose) {
  Fake database;
  Lease lease(database, milliseconds(0));
  EXPECT_FALSE(lease.close());
  EXPECT_EQ(lease.enter(milliseconds(0)).category, Errc::busy);
  EXPECT_EQ(database.taken, 0);
}

}  // namespace
}  // namespace memlith::test
