// docs/kv.md, "Limits": how commits are slowed down while memory is released beside them.
#include "region/release_pace.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace memlith::test {
namespace {

using namespace core;
using std::chrono::milliseconds;

constexpr std::uint64_t kMost = 64 * kMiB;
constexpr std::uint64_t kCommit = 8 * kKiB;

class Pace : public ::testing::Test {
 protected:
  // Commits that copy so much each, one behind the other; those that rest take that long. Returns the longest rest.
  ReleasePace::Rest commit(std::uint64_t until_bytes, std::uint64_t commit_bytes) {
    ReleasePace::Rest longest{0};
    while (copied_ < until_bytes) {
      copied_ += commit_bytes;
      ++commits_;
      const ReleasePace::Rest rest = pace_.after(copied_, kMost, now_);
      now_ += rest + std::chrono::microseconds(10);
      rests_ += rest.count() > 0 ? 1 : 0;
      longest = std::max(longest, rest);
    }
    return longest;
  }
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(now_ - ReleasePace::Time(std::chrono::hours(1))).count();
  }

  ReleasePace pace_;
  ReleasePace::Time now_{std::chrono::hours(1)};
  std::uint64_t copied_ = kMost / 2;
  std::uint64_t commits_ = 0;
  std::uint64_t rests_ = 0;
};

TEST_F(Pace, NoCommitRestsWhileThereIsRoom) {
  EXPECT_EQ(commit(kMost / 8 * 7 - kCommit, kCommit).count(), 0);
  EXPECT_GT(commits_, 1000u);
}

TEST_F(Pace, FewCommitsRestAndNoneForLong) {
  const ReleasePace::Rest longest = commit(kMost / 64 * 63, kCommit);
  EXPECT_GE(longest, ReleasePace::kRestMin);
  EXPECT_LE(longest, ReleasePace::kRestMax);
  EXPECT_LT(rests_, commits_ / 50);
  EXPECT_GT(seconds(), 0.2);
}

TEST_F(Pace, WithoutRoomEachCommitRests) {
  commit(kMost, kCommit);
  const std::uint64_t rests = rests_;
  const std::uint64_t commits = commits_;
  EXPECT_LE(commit(kMost + 100 * kCommit, kCommit), ReleasePace::kRestMax);
  EXPECT_EQ(rests_ - rests, commits_ - commits);
}

TEST_F(Pace, ALargeCommitRestsInProportion) {
  commit(kMost, kCommit);
  copied_ += 10 * ReleasePace::kSmallBytes;
  EXPECT_EQ(pace_.after(copied_, kMost, now_ + std::chrono::hours(1)), 10 * ReleasePace::kRestMax);
}

// A release that is asked for late: the commits before it did not rest, and the next one does not make up for them.
TEST_F(Pace, WhatWasCopiedBetweenTwoReleasesIsNoCommitsOwn) {
  commit(kMost / 8 * 7, kCommit);
  copied_ = kMost / 64;  // given back, seen by a commit beside that
  (void)pace_.after(copied_, kMost, now_);
  copied_ = kMost;
  pace_.begin(copied_);
  EXPECT_LE(commit(kMost + 10 * kCommit, kCommit), ReleasePace::kRestMax);
}

// A commit may copy so much that it would rest for seconds, and a release take some milliseconds.
TEST_F(Pace, NoRestOutlastsTheRelease) {
  pace_.begin(kMost / 2);
  copied_ = 2 * kMost;
  const ReleasePace::Rest rest = pace_.after(copied_, kMost, now_);
  EXPECT_GT(rest, std::chrono::seconds(30));
  std::thread commit([&] { pace_.take(std::chrono::hours(1)); });
  pace_.end();
  commit.join();
  pace_.begin(kMost);
  EXPECT_LE(pace_.after(kMost + kCommit, kMost, now_), ReleasePace::kRestMax) << "the next release's commits rest on";
}

// Each of several threads waits for its turn.
TEST_F(Pace, FarTooManyCopiesLetOneCommitOnAtATime) {
  copied_ = ReleasePace::too_many(kMost);
  const ReleasePace::Rest first = pace_.after(copied_, kMost, now_);
  for (int others = 1; others < 10; ++others) {
    EXPECT_EQ(pace_.after(copied_ += kCommit, kMost, now_), first + others * ReleasePace::kRestMax);
  }
}

}  // namespace
}  // namespace memlith::test
