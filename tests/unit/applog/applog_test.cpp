// docs/applog.md: what is read after a crash, over the wrap, when the log is full, when it grows; the rides of the read
// position with commits of a kv store; threads.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "applog_world.hpp"

namespace memlith::test::applog_test {
namespace {

using namespace core;
using applog::AppLog;
using applog::WhenFull;
using Texts = std::vector<std::string>;

TEST(AppLogTest, ACrashKeepsWhatWasWrittenAndNothingElse) {
  AppLogWorld world(16 * kKiB);
  EXPECT_EQ(must(append(world.log(), "one")), 1u);
  EXPECT_EQ(must(append(world.log(), "two")), 2u);
  EXPECT_EQ(world.read_all(), Texts{}) << "an entry that is not durable";
  EXPECT_OK(world.log().write());
  EXPECT_EQ(must(append(world.log(), "three")), 3u);
  EXPECT_EQ(world.log().durable(), 2u);
  world.crash();
  EXPECT_EQ(world.read_all(), (Texts{"one", "two"}));
  EXPECT_EQ(must(append(world.log(), "another three")), 3u);
  EXPECT_OK(world.log().write());
  EXPECT_EQ(world.read_all(), Texts{"another three"});
  world.log().rewind();
  EXPECT_EQ(world.read_all(), (Texts{"one", "two", "another three"}));
  EXPECT_OK(world.log().consume(2));
  world.log().rewind();
  EXPECT_EQ(world.read_all(), Texts{"another three"});
}

TEST(AppLogTest, AWriteMakesDurableWhatWasConsumedBefore) {
  AppLogWorld world(16 * kKiB);
  must(append(world.log(), "one"));
  EXPECT_OK(world.log().write());
  EXPECT_EQ(world.read_all(), Texts{"one"});
  EXPECT_OK(world.log().consume(1));
  EXPECT_OK(world.log().write()) << "nothing was appended since";
  EXPECT_GE(world.regions().store().log().durable_lsn(), world.region().newest_commit());
}

TEST(AppLogTest, EntriesOfOneAppendAreTogether) {
  AppLogWorld world(16 * kKiB);
  const std::string a = "a";
  const std::string none;
  const AppLog::Content both[] = {content_of(a), content_of(none), content_of(a)};
  EXPECT_EQ(must(world.log().append(both)), 3u);
  const std::uint64_t before = world.regions().frames();
  EXPECT_OK(world.log().write());
  EXPECT_EQ(world.regions().frames(), before + 1);
  EXPECT_OK(world.log().write());
  EXPECT_EQ(world.regions().frames(), before + 1) << "nothing was appended, and a frame was written";
  EXPECT_EQ(world.read_all(), (Texts{"a", "", "a"}));
  EXPECT_ERROR(Errc::invalid, world.log().append({}));
}

// Every length of the remainder at the wrap, with crashes, and an entry as large as the log.
TEST(AppLogTest, EntriesLieAcrossTheEndOfTheRing) {
  AppLogWorld world(4 * kKiB);
  std::uint64_t consumed = 0;
  std::uint64_t number = 0;
  for (int round = 0; round < 300; ++round) {
    Texts expected;
    for (int i = 0; i < 1 + round % 7; ++i) {
      expected.push_back(entry_text(++number));
      ASSERT_EQ(must(append(world.log(), expected.back())), number);
    }
    ASSERT_OK(world.log().write());
    if (round % 19 == 0) world.crash();
    ASSERT_EQ(world.read_all(), expected) << "round " << round;
    ASSERT_OK(world.log().consume(consumed = number));
    if (round % 13 == 0) {
      ASSERT_OK(world.regions().store().checkpoint());
    }
  }
  const applog::AppLogReport report = world.log().report();
  EXPECT_EQ(report.consumed, number);
  EXPECT_EQ(report.room, report.capacity - 24);
  const std::string largest(report.room - 24, 'x');
  EXPECT_ERROR(Errc::full, append(world.log(), largest + "12345678"));
  ASSERT_OK(append(world.log(), largest));
  ASSERT_OK(world.log().write());
  EXPECT_EQ(world.log().report().room, 0u);
  world.crash();
  EXPECT_EQ(world.read_all(), Texts{largest});
}

TEST(AppLogTest, AFullLogFails) {
  AppLogWorld world(4 * kKiB);
  std::uint64_t number = 0;
  while (append(world.log(), std::string(100, 'x')).ok()) ++number;
  EXPECT_ERROR(Errc::full, append(world.log(), std::string(100, 'x')));
  EXPECT_EQ(number, (4 * kKiB - 24) / 128);
  EXPECT_OK(world.log().write());
  EXPECT_EQ(world.read_all().size(), number);
  EXPECT_OK(world.log().consume(3));
  EXPECT_OK(append(world.log(), std::string(3 * 128 - 24, 'x')));
  EXPECT_ERROR(Errc::full, append(world.log(), std::string(104, 'x')));
  EXPECT_ERROR(Errc::invalid, world.log().consume(number + 1)) << "it was not read";
  EXPECT_OK(world.log().consume(1)) << "what was consumed before is ignored";
  EXPECT_EQ(world.log().report().consumed, 3u);
}

TEST(AppLogTest, AFullLogBlocksUntilRoomIsMade) {
  AppLogWorld world(4 * kKiB, WhenFull::block);
  constexpr std::uint64_t kEntries = 400;
  std::thread writer([&] {
    for (std::uint64_t i = 1; i <= kEntries; ++i) must(append(world.log(), entry_text(i)));
    EXPECT_OK(world.log().write());
  });
  AppLog::Entry entry;
  for (std::uint64_t i = 1; i <= kEntries; ++i) {
    while (!must(world.log().read(1000, entry))) {
    }
    ASSERT_EQ(entry.number, i);
    const std::string text = entry_text(i);
    ASSERT_TRUE(std::ranges::equal(entry.content, content_of(text)));
    if (i % 3 == 0) {
      EXPECT_OK(world.log().consume(i));
    }
  }
  writer.join();
  EXPECT_ERROR(Errc::full, append(world.log(), std::string(4 * kKiB, 'x'))) << "it could never have room";
}

// A reader that waits "for ever": no clock overflows.
TEST(AppLogTest, AReaderWaitsAsLongAsItTakes) {
  AppLogWorld world(4096);
  std::atomic<bool> reads{false};
  std::thread writer([&] {
    while (!reads) std::this_thread::yield();
    ASSERT_OK(append(world.log(), "one").status());
    ASSERT_OK(world.log().write());
  });
  AppLog::Entry entry;
  reads = true;
  EXPECT_TRUE(must(world.log().read(~std::uint64_t{0}, entry)));
  writer.join();
  EXPECT_EQ(entry.number, 1u);
}

TEST(AppLogTest, AFullLogGrows) {
  AppLogWorld world(4 * kKiB, WhenFull::grow, 64 * kKiB);
  Texts expected;
  std::uint64_t number = 0;
  const auto add = [&] {
    expected.push_back(entry_text(++number));
    return append(world.log(), expected.back());
  };
  // Brings the wrap into the middle of the bytes that have to move, some of them not in the redo log yet.
  for (int i = 0; i < 15; ++i) ASSERT_OK(add());
  ASSERT_OK(world.log().write());
  ASSERT_EQ(world.read_all(), expected);
  ASSERT_OK(world.log().consume(10));
  expected.erase(expected.begin(), expected.begin() + 10);
  while (world.log().report().capacity < 64 * kKiB) {
    ASSERT_OK(add());
    if (number % 4 == 0) {
      ASSERT_OK(world.log().write());
    }
    if (number % 16 == 0) {
      ASSERT_OK(world.log().write());
      world.crash();
      ASSERT_EQ(world.read_all(), expected) << "after entry " << number;
    }
  }
  while (add().ok()) {
  }
  expected.pop_back();
  ASSERT_OK(world.log().write());
  world.crash();
  EXPECT_EQ(world.read_all(), expected);
  EXPECT_EQ(world.log().report().capacity, 64 * kKiB);
}

TEST(AppLogTest, AsynchronousWritesAreWaitedFor) {
  AppLogWorld world(64 * kKiB);
  std::vector<Lsn> tickets;
  for (int i = 0; i < 100; ++i) {
    must(append(world.log(), "entry"));
    tickets.push_back(must(world.log().write_weak()));
  }
  EXPECT_OK(world.log().region().store().wait(tickets[49]));
  EXPECT_GE(world.log().durable(), 50u);
  EXPECT_OK(world.log().region().store().wait(tickets.back()));
  EXPECT_EQ(world.log().durable(), 100u);
  world.crash();
  EXPECT_EQ(world.read_all().size(), 100u);
}

TEST(AppLogTest, WritersShareTheLog) {
  AppLogWorld world(1 * kMiB, WhenFull::block);
  constexpr int kWriters = 4;
  constexpr std::uint64_t kEach = 200;
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&, w] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const std::uint64_t number = must(append(world.log(), std::to_string(w) + " " + std::to_string(i)));
        EXPECT_OK(world.log().write());
        EXPECT_GE(world.log().durable(), number);
      }
    });
  }
  std::uint64_t next[kWriters] = {};
  AppLog::Entry entry;
  for (std::uint64_t i = 1; i <= kWriters * kEach; ++i) {
    while (!must(world.log().read(1000, entry))) {
    }
    ASSERT_EQ(entry.number, i);
    const std::string text(reinterpret_cast<const char*>(entry.content.data()), entry.content.size());
    const int w = text[0] - '0';
    ASSERT_EQ(text, std::to_string(w) + " " + std::to_string(next[w]++)) << "one writer's entries are in their order";
    if (i % 64 == 0) {
      EXPECT_OK(world.log().consume(i));
    }
  }
  for (std::thread& each : writers) each.join();
}

// Entries and the read position in one frame of a transaction of the store.
TEST(AppLogTest, ATransactionAppendsAndConsumesInOneFrame) {
  AppLogWorld world(4 * kKiB);
  const std::string text(1000, 'x');
  for (int i = 0; i < 3; ++i) ASSERT_OK(append(world.log(), text));
  ASSERT_OK(world.log().write());
  ASSERT_EQ(world.read_all().size(), 3u);
  const auto attempt = [&](std::uint64_t consumed, const std::string& entry, Transaction& transaction) {
    auto part = std::make_unique<applog::AppLogPart>(world.log());
    const auto content = content_of(entry);
    EXPECT_OK(part->append({&content, 1}));
    if (consumed != 0) {
      EXPECT_OK(part->consume(consumed));
    }
    EXPECT_OK(transaction.add(std::move(part)));
  };
  Transaction transaction(world.region().store());
  attempt(2, text, transaction);
  EXPECT_ERROR(Errc::full, transaction.capture(true)) << "what it consumes leaves no room for what it appends";
  transaction.abort();
  EXPECT_EQ(world.log().report().consumed, 0u);

  attempt(2, "small", transaction);
  const std::uint64_t frames = world.regions().frames();
  const Lsn end = must(transaction.capture(true));
  transaction.forget();
  EXPECT_EQ(world.regions().frames(), frames + 1);
  EXPECT_EQ(world.log().report().consumed, 2u);
  EXPECT_EQ(world.log().report().newest, 4u);
  ASSERT_OK(append(world.log(), text)) << "the room of the consumed entries is free";
  ASSERT_OK(world.region().store().sync(end));
  world.crash();
  const std::vector<std::string> left = world.read_all();
  ASSERT_EQ(left.size(), 2u) << "the third, and the one of the transaction";
  EXPECT_EQ(left[1], "small");
  EXPECT_EQ(world.log().report().consumed, 2u);
}

// Entries of other writers that were not in the redo log go there before the transaction's.
TEST(AppLogTest, EntriesOfATransactionAreBehindThoseThatWereAppendedBefore) {
  AppLogWorld world(64 * kKiB);
  ASSERT_OK(append(world.log(), "first"));
  Transaction transaction(world.region().store());
  auto part = std::make_unique<applog::AppLogPart>(world.log());
  const std::string text = "second";
  const auto content = content_of(text);
  ASSERT_OK(part->append({&content, 1}));
  ASSERT_OK(transaction.add(std::move(part)));
  ASSERT_OK(world.region().store().sync(must(transaction.capture(true))));
  transaction.forget();
  world.crash();
  EXPECT_EQ(world.read_all(), (std::vector<std::string>{"first", "second"}));
}

TEST(AppLogTest, ManyEntriesOfAnUnwrittenLogGoToTheRedoLogInParts) {
  StoreOptions store = tiny_options();
  AppLogWorld world(1 * kMiB, WhenFull::fail, 0, store);
  const std::uint64_t before = world.regions().frames();
  std::uint64_t number = 0;
  for (; number < 200; ++number) ASSERT_OK(append(world.log(), std::string(2000, 'x')));
  EXPECT_GT(world.regions().frames(), before) << "it would not fit one frame";
  ASSERT_OK(world.log().write());
  EXPECT_ERROR(Errc::full, append(world.log(), std::string(200 * kKiB, 'x'))) << "more than half of the redo log";
  world.crash();
  EXPECT_EQ(world.read_all().size(), number);
}

}  // namespace
}  // namespace memlith::test::applog_test
