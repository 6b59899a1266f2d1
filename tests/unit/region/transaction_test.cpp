// docs/architecture.md, "Transactions".
#include "region/transaction.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "region/session.hpp"
#include "support/expect.hpp"
#include "support/region_words.hpp"

namespace memlith::test::transaction_test {
namespace {

using namespace core;

constexpr std::uint64_t kSize = 64 * kPageBytes;

class Transactions : public ::testing::Test {
 protected:
  static void change(Transaction& transaction, Region& region, std::uint64_t offset, std::uint64_t value) {
    ASSERT_OK(transaction.touch_before(region, region.address() + offset, sizeof value));
    std::memcpy(region.address() + offset, &value, sizeof value);
  }
  Status commit(Transaction& transaction) {
    const auto end = transaction.capture(true);
    if (end.ok()) transaction.forget();
    return end.ok() ? world_.store().sync(*end) : end.status();
  }
  RegionWorld world_{TrackerKind::touched, tiny_options()};
};

TEST_F(Transactions, CommitWhatTheyAnnouncedAndNothingElse) {
  Region& region = world_.open("a", kSize);
  Region& other = world_.open("b", kSize);
  Transaction transaction(world_.store());
  put(region, 64, 1);  // of no transaction
  change(transaction, region, 0, 2);
  change(transaction, other, kPageBytes, 3);
  ASSERT_OK(commit(transaction));
  world_.crash();
  Region& again = world_.open("a");
  EXPECT_EQ(get(again, 0), 2u);
  EXPECT_EQ(get(again, 64), 0u);
  EXPECT_EQ(get(world_.open("b"), kPageBytes), 3u);
}

TEST_F(Transactions, APersistLeavesThemOut) {
  Region& region = world_.open("a", kSize);
  Transaction transaction(world_.store());
  change(transaction, region, 0, 2);
  put(region, 64, 1);
  ASSERT_OK(persist(region));
  world_.crash();
  EXPECT_EQ(get(world_.open("a"), 0), 0u);
  EXPECT_EQ(get(world_["a"], 64), 1u);
}

TEST_F(Transactions, AnAbortGivesTheFirstBytesBackWithoutIo) {
  Region& region = world_.open("a", kSize);
  put(region, 0, 1);
  ASSERT_OK(persist(region));
  const std::uint64_t frames = world_.frames();
  Transaction transaction(world_.store());
  change(transaction, region, 0, 2);
  change(transaction, region, 4, 3);  // overlaps
  change(transaction, region, 0, 4);
  transaction.abort();
  EXPECT_EQ(get(region, 0), 1u);
  EXPECT_EQ(world_.frames(), frames);
  ASSERT_OK(commit(transaction));  // has no ranges any more
  EXPECT_EQ(world_.frames(), frames);
}

TEST_F(Transactions, TakeAGrowthAlong) {
  Region& region = world_.open("a", kSize);
  ASSERT_OK(region.grow(2 * kSize));
  Transaction transaction(world_.store());
  change(transaction, region, 2 * kSize - 8, 7);
  ASSERT_OK(commit(transaction));
  world_.crash();
  Region& again = world_.open("a");
  ASSERT_EQ(again.size(), 2 * kSize);
  EXPECT_EQ(get(again, 2 * kSize - 8), 7u);
}

// The tracker does not know of a transaction's pages.
TEST_F(Transactions, MemoryIsNotReleasedUnderThem) {
  Region& region = world_.open("a", kSize);
  Transaction transaction(world_.store());
  change(transaction, region, 0, 2);
  EXPECT_EQ(region.release_clean().category, Errc::busy);
  EXPECT_EQ(get(region, 0), 2u);
  ASSERT_OK(commit(transaction));
  ASSERT_OK(region.release_clean());
  EXPECT_EQ(get(region, 0), 2u);
}

TEST_F(Transactions, OnlyExplicitRegionsHaveThem) {
  RegionWorld faults(TrackerKind::fault, tiny_options());
  Region& region = faults.open("a", kSize);
  Transaction transaction(faults.store());
  EXPECT_EQ(transaction.touch_before(region, region.address(), 8).category, Errc::unsupported);
  EXPECT_NE(last_error_text().find("explicit"), std::string::npos);
  Region& known = world_.open("a", kSize);
  EXPECT_EQ(transaction.touch_before(known, known.address(), 8).category, Errc::invalid);  // another store
  Transaction right(world_.store());
  EXPECT_EQ(right.touch_before(known, known.address() + kSize - 4, 8).category, Errc::invalid);
}

// Transfers between accounts of one region, beside persists of it; the log is small, so checkpoints run meanwhile.
TEST_F(Transactions, ThreadsDoNotDisturbEachOther) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kRounds = 300;
  Region& region = world_.open("a", kSize);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Transaction transaction(world_.store());
      for (std::uint64_t n = 1; n <= kRounds; ++n) {
        change(transaction, region, t * 256, n);
        change(transaction, region, t * 256 + 128, n);
        if (n % 3 == 0) {
          transaction.abort();
          continue;
        }
        const auto end = transaction.capture(false);
        ASSERT_OK(end.status());
        transaction.forget();
        put(region, t * 256 + 64, n);
        if (n % 7 == 0) {
          ASSERT_OK(persist(region, Scope::thread));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_OK(persist(region));
  world_.crash();
  Region& again = world_.open("a");
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    EXPECT_EQ(get(again, t * 256), kRounds - 1);
    EXPECT_EQ(get(again, t * 256 + 128), kRounds - 1);
    EXPECT_EQ(get(again, t * 256 + 64), kRounds - 1);
  }
}

// One thread enlarges the region while others touch, persist and commit in it.
TEST_F(Transactions, ARegionGrowsBesideThem) {
  constexpr std::uint64_t kRounds = 40;
  Region& region = world_.open("a", kSize, (kRounds + 1) * kSize);
  std::atomic<bool> stop{false};
  const auto work = [&](std::uint64_t place) {
    Transaction transaction(world_.store());
    for (std::uint64_t n = 1; !stop; ++n) {
      const std::uint64_t offset = region.size() - 64 + place;
      if (n % 2 == 0) {
        change(transaction, region, offset, offset);
        ASSERT_OK(transaction.capture(false).status());
        transaction.forget();
      } else {
        put(region, offset, offset);
        ASSERT_OK(persist(region, Scope::thread));
      }
    }
  };
  std::thread one(work, 0);
  std::thread two(work, 8);
  for (std::uint64_t n = 2; n <= kRounds; ++n) EXPECT_OK(region.grow(n * kSize));
  stop = true;
  one.join();
  two.join();
  put(region, kRounds * kSize - 8, 5);
  ASSERT_OK(persist(region));
  world_.crash();
  Region& again = world_.open("a");
  ASSERT_EQ(again.size(), kRounds * kSize);
  EXPECT_EQ(get(again, kRounds * kSize - 8), 5u);
}

// One thread touches x, then another touches y: no collect has y without x.
TEST(TouchedRanges, TakesNoTouchWithoutTheOneBeforeIt) {
  constexpr std::uint64_t kRounds = 2000;
  std::vector<std::byte> memory(8 * kPageBytes);
  auto tracker = must(attach_tracker(TrackerKind::touched, {memory.data(), memory.size(), memory.size()}));
  std::atomic<std::uint64_t> first{0};
  std::atomic<std::uint64_t> second{0};
  std::thread x([&] {
    for (std::uint64_t n = 1; n <= kRounds; ++n) {
      while (second.load() != n - 1) std::this_thread::yield();
      tracker->touch({2 * n, 1});
      first.store(n);
    }
  });
  std::thread y([&] {
    for (std::uint64_t n = 1; n <= kRounds; ++n) {
      while (first.load() != n) std::this_thread::yield();
      tracker->touch({8192 + 2 * n, 1});
      second.store(n);
    }
  });
  std::uint64_t taken_first = 0;
  std::uint64_t taken_second = 0;
  while (taken_second < kRounds) {
    std::vector<Range> ranges;
    ASSERT_OK(tracker->collect(kAllThreads, ranges));
    tracker->accept();
    for (const Range& range : ranges) {
      (range.offset >= 8192 ? taken_second : taken_first) =
          std::max(range.offset >= 8192 ? taken_second : taken_first, range.offset % 8192 / 2);
    }
    ASSERT_LE(taken_second, taken_first);
  }
  x.join();
  y.join();
}

}  // namespace
}  // namespace memlith::test::transaction_test
