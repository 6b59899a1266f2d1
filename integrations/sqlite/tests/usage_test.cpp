// usage.hpp: when a database is put in order, with the calls that the tender makes made here.
#include "sqlite/src/usage.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace memlith::test {
namespace {

using core::Errc;
using core::Status;
using sqlite::Usage;
using std::chrono::milliseconds;

class Fake final : public sqlite::Used {
 public:
  Status make_ordinary() override {
    EXPECT_FALSE(in_use);
    not_ordinary = false;
    ++made_ordinary;
    return core::kOk;
  }
  bool is_not_ordinary() const override { return not_ordinary; }
  Status end() override {
    ++ended;
    return end_fails ? Status{Errc::busy, core::Detail::none, 0, 0} : core::kOk;
  }

  std::atomic<bool> not_ordinary{false};
  std::atomic<bool> in_use{false};
  std::atomic<int> made_ordinary{0};
  bool end_fails = false;
  int ended = 0;
};

// Calls tend() until `ends` holds, as the tender does. Nothing depends on how much time passes.
template <class Ends>
void tend_until(Usage& usage, Ends ends) {
  while (!ends()) {
    (void)usage.tend();
    std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST(Usage, BecomesOrdinaryWhenItWasIdle) {
  Fake database;
  Usage usage(database, milliseconds(1));
  ASSERT_TRUE(usage.enter().ok());
  database.not_ordinary = true;
  const auto end = Usage::Clock::now() + milliseconds(10);
  tend_until(usage, [&] { return Usage::Clock::now() >= end; });
  EXPECT_TRUE(database.not_ordinary);  // a connection uses it
  usage.leave();
  tend_until(usage, [&] { return !database.not_ordinary; });
  EXPECT_FALSE(usage.tend().has_value());  // nothing is due
}

TEST(Usage, WithoutAnIdleTimeItStaysAsItIs) {
  Fake database;
  Usage usage(database, milliseconds(0));
  database.not_ordinary = true;
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(usage.tend().has_value());
  EXPECT_TRUE(database.not_ordinary);
}

// A connection that begins while the file becomes ordinary waits.
TEST(Usage, AConnectionWaitsWhileTheFileBecomesOrdinary) {
  Fake database;
  Usage usage(database, milliseconds(1));
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    while (!stop) {
      if (!usage.enter().ok()) continue;
      database.in_use = true;
      database.not_ordinary = true;
      database.in_use = false;
      usage.leave();
      std::this_thread::sleep_for(milliseconds(3));
    }
  });
  tend_until(usage, [&] { return database.made_ordinary >= 5; });
  stop = true;
  worker.join();
}

TEST(Usage, TheEndOfTheProcessClosesAnUnusedFile) {
  Fake database;
  Usage usage(database, milliseconds(0));
  ASSERT_TRUE(usage.enter().ok());
  usage.end_process();
  EXPECT_EQ(database.ended, 0);
  usage.leave();
  database.end_fails = true;
  usage.end_process();
  EXPECT_EQ(database.ended, 1);
  ASSERT_TRUE(usage.enter().ok());  // it is as it was
  usage.leave();
  database.end_fails = false;
  usage.end_process();
  EXPECT_EQ(database.ended, 2);
  EXPECT_EQ(usage.enter().category, Errc::busy);
  usage.end_process();
  EXPECT_EQ(database.ended, 2);
}

TEST(Usage, NothingHappensAfterTheClose) {
  Fake database;
  Usage usage(database, milliseconds(1));
  database.not_ordinary = true;
  usage.close();
  EXPECT_EQ(usage.enter().category, Errc::busy);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(usage.tend().has_value());
  usage.end_process();
  EXPECT_EQ(database.ended, 0);
}

}  // namespace
}  // namespace memlith::test
