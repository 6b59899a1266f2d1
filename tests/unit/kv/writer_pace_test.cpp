// docs/kv.md, "Durability": while the log cannot keep up, commits rest a little, each the longer the more waits.
#include "kv/writer_pace.hpp"

#include <gtest/gtest.h>

namespace memlith::test::writer_pace_test {
namespace {

using namespace core;
using core::kv::kWaitingBytesMax;
using core::kv::WriterPace;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::uint64_t kRecord = 124;
constexpr auto kWork = nanoseconds(1'500);  // what a commit takes without a rest

TEST(WriterPace, NoCommitRestsWhileLittleWaits) {
  WriterPace pace;
  const WriterPace::Time now{};
  EXPECT_EQ(pace.after(kRecord, 0, now), now);
  EXPECT_EQ(pace.after(kRecord, WriterPace::kFreeBytes, now), now);
  EXPECT_GT(pace.after(kRecord, WriterPace::kFreeBytes * 2, now), now);
}

TEST(WriterPace, RestsGrowWithWhatWaits) {
  nanoseconds last{0};
  for (std::uint64_t waiting = 5 * kMiB; waiting < kWaitingBytesMax; waiting += kMiB) {
    WriterPace pace;
    const WriterPace::Time now{};
    const nanoseconds rest = pace.after(kRecord, waiting, now) - now;
    EXPECT_GT(rest, last) << waiting;
    last = rest;
  }
  WriterPace pace;
  const WriterPace::Time now{};
  EXPECT_EQ(pace.after(16 * kMiB, 2 * kWaitingBytesMax, now) - now, WriterPace::kRestMax);
}

// Rests of several threads follow each other: together they leave no more than one alone would.
TEST(WriterPace, ThreadsShareThePace) {
  WriterPace pace;
  const WriterPace::Time now{};
  constexpr std::uint64_t kWaiting = 10 * kMiB;
  const nanoseconds one = pace.after(kRecord, kWaiting, now) - now;
  for (int i = 2; i <= 8; ++i) EXPECT_EQ(pace.after(kRecord, kWaiting, now) - now, i * one);
}

// A thread that commits without end, in time that the test keeps. The log takes so many bytes a second, and nothing at
// all for a while.
struct CommittingThread {
  WriterPace pace;
  WriterPace::Time now{};
  double waiting = 0;
  nanoseconds longest{0};
  std::uint64_t full = 0;
  std::uint64_t commits = 0;

  void go(double log_bytes_a_second, nanoseconds time) {
    const WriterPace::Time end = now + time;
    while (now < end) {
      const WriterPace::Time begin = now;
      waiting += kRecord;
      if (waiting >= static_cast<double>(kWaitingBytesMax)) ++full;
      const WriterPace::Time due = pace.after(kRecord, static_cast<std::uint64_t>(waiting), now);
      now += kWork;
      if (due - now >= WriterPace::kRestMin) now = due;
      longest = std::max<nanoseconds>(longest, now - begin);
      waiting = std::max(0.0, waiting - log_bytes_a_second * std::chrono::duration<double>(now - begin).count());
      ++commits;
    }
  }
};

TEST(WriterPace, KeepsToWhatTheLogTakes) {
  for (const double mb_a_second : {2, 5, 20, 50}) {
    SCOPED_TRACE(mb_a_second);
    CommittingThread run;
    run.go(mb_a_second * 1e6, std::chrono::seconds(20));
    run.commits = 0;
    run.longest = nanoseconds(0);
    run.go(mb_a_second * 1e6, std::chrono::seconds(10));
    EXPECT_EQ(run.full, 0u);
    EXPECT_NEAR(static_cast<double>(run.commits * kRecord), mb_a_second * 1e7, mb_a_second * 1e6);
    EXPECT_LT(run.longest, nanoseconds(200'000));
  }
}

TEST(WriterPace, APauseOfTheLogIsSpreadOverManyCommits) {
  CommittingThread run;
  run.go(100e6, std::chrono::seconds(1));
  EXPECT_LT(run.longest, WriterPace::kRestMin) << "the log keeps up, and no commit rests";
  run.go(0, milliseconds(1'500));
  EXPECT_EQ(run.full, 0u);
  EXPECT_LT(run.longest, nanoseconds(200'000));
  run.go(0, milliseconds(2'500));
  EXPECT_EQ(run.full, 0u);
  EXPECT_LE(run.longest, WriterPace::kRestMax);
}

}  // namespace
}  // namespace memlith::test::writer_pace_test
