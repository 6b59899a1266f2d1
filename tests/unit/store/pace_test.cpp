// docs/architecture.md, "Life of a checkpoint": a background checkpoint is paced to the rate at which the log fills; a
// checkpoint that a thread waits for does not pause.
#include "store/pace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::uint64_t kRoom = 64 * kMiB;
constexpr std::uint64_t kStepMax = 2 * kMiB;

TEST(CheckpointPace, PausesWhileItIsAheadOfTheLog) {
  CheckpointPace pace(kRoom);
  pace.move(0.5, kRoom / 16);
  EXPECT_GT(pace.pause(milliseconds(10)).count(), 0);
  EXPECT_EQ(pace.step_bytes(kStepMax), CheckpointPace::kStepBytes);
  pace.move(0.5, kRoom * 3 / 8);  // half of three quarters: as far as the work is
  EXPECT_EQ(pace.pause(milliseconds(10)).count(), 0);
  EXPECT_EQ(pace.step_bytes(kStepMax), CheckpointPace::kStepBytes);
}

// No longer than the log takes, at its rate so far, to catch up; and never long.
TEST(CheckpointPace, PausesUntilTheLogHasCaughtUp) {
  CheckpointPace pace(kRoom);
  pace.move(0.55, kRoom * 3 / 8);  // a tenth ahead
  const nanoseconds pause = pace.pause(milliseconds(10));
  EXPECT_NEAR(static_cast<double>(pause.count()), 1e6, 1e4);
  EXPECT_EQ(pace.pause(milliseconds(10'000)), CheckpointPace::kPauseMax);
  pace.move(0.01, 0);  // there are no commits
  EXPECT_EQ(pace.pause(milliseconds(1)), CheckpointPace::kPauseMax);
}

TEST(CheckpointPace, StepsGrowWithTheLag) {
  CheckpointPace pace(kRoom);
  std::uint64_t last = 0;
  for (std::uint64_t filled = 0; filled <= kRoom; filled += kRoom / 64) {
    pace.move(0.1, filled);
    EXPECT_GE(pace.step_bytes(kStepMax), last);
    last = pace.step_bytes(kStepMax);
  }
  EXPECT_EQ(last, kStepMax);
  EXPECT_EQ(pace.step_bytes(8192), 8192u) << "a store may want less";
}

TEST(CheckpointPace, WithoutRoomItHurries) {
  CheckpointPace pace(0);
  pace.move(0.5, 0);
  EXPECT_EQ(pace.pause(milliseconds(10)).count(), 0);
  EXPECT_EQ(pace.step_bytes(kStepMax), kStepMax);
}

// A disk that takes 200 MB/s and 100 us a flush, commits that fill the log at so many MB/s, 128 MiB of home: where the
// disk can do it at all, the checkpoint is over before the room is used up; and where there is time, all steps are
// small.
TEST(CheckpointPace, IsOverBeforeTheRoomIs) {
  constexpr std::uint64_t kHome = 128 * kMiB;
  constexpr double kFlushNs = 100'000;
  for (const std::uint64_t log_mb_a_second : {0, 1, 5, 20, 40, 60, 80}) {
    SCOPED_TRACE(log_mb_a_second);
    CheckpointPace pace(kRoom);
    double now_ns = 0;
    std::uint64_t home = 0;
    std::uint64_t largest = 0;
    const auto filled = [&] {
      return static_cast<std::uint64_t>(now_ns * 1e-3 * static_cast<double>(log_mb_a_second));
    };
    while (home < kHome) {
      pace.move(static_cast<double>(home) / kHome, filled());
      const std::uint64_t step = std::min(pace.step_bytes(kStepMax), kHome - home);
      largest = std::max(largest, step);
      home += step;
      now_ns += static_cast<double>(step) * 5 + kFlushNs;
      pace.move(static_cast<double>(home) / kHome, filled());
      now_ns += static_cast<double>(pace.pause(nanoseconds(static_cast<std::int64_t>(now_ns))).count());
    }
    EXPECT_LT(filled(), kRoom);
    if (log_mb_a_second <= 20) {
      EXPECT_EQ(largest, CheckpointPace::kStepBytes);
    }
  }
}

TEST(IdleWatch, ABusyStoreIsNeverIdle) {
  IdleWatch watch;
  for (std::uint64_t lsn = 1; lsn < 1000; ++lsn) {
    EXPECT_NE(watch.look(Lsn{lsn}, Lsn{lsn}, kRoom / 2, kRoom), IdleWatch::Next::begin);
  }
}

TEST(IdleWatch, TwoLooksWithoutACommitFindAnIdleStore) {
  IdleWatch watch;
  EXPECT_EQ(watch.look(Lsn{5}, Lsn{5}, kRoom / 2, kRoom), IdleWatch::Next::look_again);
  EXPECT_EQ(watch.look(Lsn{6}, Lsn{6}, kRoom / 2, kRoom), IdleWatch::Next::nothing) << "there was a commit";
  EXPECT_EQ(watch.look(Lsn{6}, Lsn{6}, kRoom / 2, kRoom), IdleWatch::Next::look_again);
  EXPECT_EQ(watch.look(Lsn{6}, Lsn{5}, kRoom / 2, kRoom), IdleWatch::Next::nothing) << "one is under way";
  EXPECT_EQ(watch.look(Lsn{6}, Lsn{6}, kRoom / 2, kRoom), IdleWatch::Next::look_again);
  EXPECT_EQ(watch.look(Lsn{6}, Lsn{6}, kRoom / 2, kRoom), IdleWatch::Next::begin);
}

TEST(IdleWatch, FewPagesAreLeftInTheLog) {
  EXPECT_EQ(IdleWatch::bytes_min(1 * kMiB), 256 * kKiB);
  EXPECT_EQ(IdleWatch::bytes_min(4 * kMiB), 1 * kMiB);
  EXPECT_EQ(IdleWatch::bytes_min(64 * kMiB), 1 * kMiB);
  EXPECT_EQ(IdleWatch::bytes_min(1 * kGiB), 16 * kMiB);
  IdleWatch watch;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(watch.look(Lsn{5}, Lsn{5}, kMiB - 1, kRoom), IdleWatch::Next::nothing);
  }
}

// The bytes that a checkpoint gives the disk from one flush of a home file to the next.
class PacedStore : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kLogBytes = 4 * kMiB;
  static constexpr std::uint64_t kStepPages = CheckpointPace::kStepBytes / kPageBytes;

  PacedStore() {
    StoreOptions options;
    options.create = true;
    options.slot_bytes = 256 * kKiB;
    options.log_bytes = kLogBytes;
    store_ = must(Store::open(volume_, options));
    object_ = create_object(*store_, "a", kLogBytes * 2);
    begin_ = volume_.operations();
  }
  void commit_pages(std::uint64_t pages) {
    for (std::uint64_t page = 0; page < pages; ++page) {
      ASSERT_OK(commit(*store_, {{object_, 2 * page * kPageBytes, page_of_sevens_}}));
    }
  }
  // Commits `bytes` of every second page until half of the log is used, which wakes the checkpoint.
  void wake_checkpoint(std::uint64_t bytes) {
    tail_ = store_->home_lsn();
    const Bytes content = filled(bytes, 7);
    for (std::uint64_t page = 0; store_->home_lsn() == tail_; page += 2) {
      const Extent extent{object_, page % (kLogBytes * 2 / kPageBytes) * kPageBytes, bytes};
      FrameWriter writer = must(store_->begin_commit({&extent, 1}, {}));
      writer.put(content.data(), content.size());
      const Lsn end = must(writer.finish());
      ASSERT_OK(store_->sync(end));  // all of it is durable before the checkpoint looks
      store_->wake_checkpointer(end);
      if (bytes_between(tail_, end) >= kLogBytes / 2) return;
    }
  }
  void await_checkpoint() const {
    // Asked under the log's lock, which the checkpoint had last.
    while (store_->home_lsn() == tail_) std::this_thread::yield();
  }
  // The number of the object's home file.
  [[nodiscard]] std::uint32_t number_of_home() const {
    const auto& records = volume_.trace().records;
    const auto made = std::ranges::find_if(records, [](const SimRecord& record) {
      return record.op == SimOp::create && record.name.ends_with("objects/1");
    });
    return made == records.end() ? ~0u : made->file;
  }
  // Pages written from one flush of the object's file to the next, by all checkpoints so far; none of them runs.
  [[nodiscard]] std::vector<std::uint64_t> steps() const {
    std::vector<std::uint64_t> result;
    std::uint64_t pages = 0;
    const auto& records = volume_.trace().records;
    for (std::size_t i = begin_; i < records.size(); ++i) {
      if (records[i].file != number_of_home()) continue;
      if (records[i].op == SimOp::write) ++pages;
      if (records[i].op == SimOp::flush && pages > 0) result.push_back(std::exchange(pages, 0));
    }
    EXPECT_EQ(pages, 0u) << "written and not flushed";
    return result;
  }

  SimVolume volume_{SimImage{}, true};
  std::unique_ptr<Store> store_;
  ObjectId object_;
  const Bytes page_of_sevens_ = filled(kPageBytes, 7);
  std::size_t begin_ = 0;
  Lsn tail_;
};

TEST_F(PacedStore, HandsHomeOutInSmallSteps) {
  wake_checkpoint(kPageBytes);
  await_checkpoint();
  const std::vector<std::uint64_t> seen = steps();
  EXPECT_GE(seen.size(), kLogBytes / 2 / CheckpointPace::kStepBytes - 1);
  for (const std::uint64_t pages : seen) EXPECT_LE(pages, kStepPages);
}

// The page cache gives the disk whole pages: changes of a few bytes each count as the pages they are in.
TEST_F(PacedStore, CountsPagesNotBytes) {
  wake_checkpoint(8);
  await_checkpoint();
  const std::vector<std::uint64_t> seen = steps();
  EXPECT_GE(seen.size(), kLogBytes / 2 / CheckpointPace::kStepBytes - 1);
  for (const std::uint64_t pages : seen) EXPECT_LE(pages, kStepPages);
}

// Bringing home what a region needs to be opened is no hurry either. What is home already is left alone.
TEST_F(PacedStore, BringsHomeInSmallSteps) {
  const Lsn tail = store_->home_lsn();
  commit_pages(kLogBytes / 4 / kPageBytes);
  ASSERT_OK(store_->bring_home(tail));
  EXPECT_EQ(store_->home_lsn(), tail);
  EXPECT_TRUE(steps().empty());
  const Lsn head = store_->log().head();
  ASSERT_OK(store_->bring_home(head));
  EXPECT_GE(store_->home_lsn(), head);
  const std::vector<std::uint64_t> seen = steps();
  EXPECT_GE(seen.size(), kLogBytes / 4 / CheckpointPace::kStepBytes - 1);
  for (const std::uint64_t pages : seen) EXPECT_LE(pages, kStepPages);
}

// Commits that are written home for memory can be read there and are not flushed; the next checkpoint flushes them.
// Those that are home already are left alone.
TEST_F(PacedStore, WritesHomeWithoutFlushes) {
  const Lsn tail = store_->home_lsn();
  commit_pages(kLogBytes / 4 / kPageBytes);
  ASSERT_OK(store_->write_home(tail));
  EXPECT_TRUE(steps().empty());
  const Lsn head = store_->log().head();
  ASSERT_OK(store_->write_home(head));
  const Bytes home = must(store_->read_home(object_));
  for (std::uint64_t page = 0; page < kLogBytes / 4 / kPageBytes; ++page) {
    EXPECT_TRUE(std::equal(page_of_sevens_.begin(), page_of_sevens_.end(), home.begin() + 2 * page * kPageBytes))
        << page;
  }
  EXPECT_EQ(store_->home_lsn(), tail) << "frames left the log that a power cut could need";
  const std::uint64_t written = store_->counters().home_bytes.load();
  EXPECT_GE(written, kLogBytes / 4) << "and the directory";
  const auto& records = volume_.trace().records;
  const auto flushes = [&](const SimRecord& record) {
    return record.op == SimOp::flush && record.file == number_of_home();
  };
  EXPECT_TRUE(std::none_of(records.begin() + static_cast<std::ptrdiff_t>(begin_), records.end(), flushes));
  ASSERT_OK(store_->checkpoint());
  EXPECT_EQ(store_->home_lsn(), head);
  EXPECT_EQ(store_->counters().home_bytes.load(), written) << "written a second time";
  EXPECT_EQ(steps(), std::vector{kLogBytes / 4 / kPageBytes});
}

// Memory may be mapped to homes that were brought up to date: a later checkpoint does not write older bytes there, not
// even for a moment.
TEST_F(PacedStore, WritesNoOlderBytesOverNewerOnes) {
  for (const int value : {7, 8}) {
    for (std::uint64_t page = 0; page < 300; ++page) {
      ASSERT_OK(commit(*store_, {{object_, page * kPageBytes, filled(kPageBytes, value)}}));
    }
  }
  ASSERT_OK(store_->write_home(store_->log().head()));
  const Bytes brought = must(store_->read_home(object_));
  ASSERT_OK(commit(*store_, {{object_, 400 * kPageBytes, filled(kPageBytes, 9)}}));
  int transfers = 0;
  volume_.before_transfer = [&] {
    ++transfers;
    const Bytes now = must(store_->read_home(object_));
    EXPECT_TRUE(std::equal(brought.begin(), brought.begin() + 300 * kPageBytes, now.begin()));
  };
  ASSERT_OK(store_->bring_home_while_idle());
  volume_.before_transfer = nullptr;
  EXPECT_GT(transfers, 0);
  EXPECT_EQ(store_->home_lsn(), store_->log().head());
}

// Everything goes home while there are no commits, in pieces of some pages; a commit that comes in between ends that.
TEST_F(PacedStore, AnIdleStoreGoesHomeByPieces) {
  commit_pages(400);
  const Lsn head = store_->log().head();
  const std::uint64_t before = store_->counters().checkpoints.load();
  ASSERT_OK(store_->bring_home_while_idle());
  EXPECT_EQ(store_->home_lsn(), head);
  EXPECT_EQ(store_->counters().checkpoints.load(), before + 2) << "256 pages and the others";
  for (const std::uint64_t pages : steps()) EXPECT_LE(pages, kStepPages);

  commit_pages(400);
  bool committed = false;
  volume_.before_transfer = [&] {
    if (committed || store_->counters().checkpoints.load() < before + 3) return;
    committed = true;
    const Extent extent{object_, 0, kPageBytes};
    FrameWriter writer = must(store_->begin_commit({&extent, 1}, {}));
    writer.put(page_of_sevens_.data(), page_of_sevens_.size());
    (void)must(writer.finish());
  };
  ASSERT_OK(store_->bring_home_while_idle());
  EXPECT_TRUE(committed);
  EXPECT_LE(store_->counters().checkpoints.load(), before + 4);
  EXPECT_LT(store_->home_lsn(), store_->log().head());
}

// The home file may have lost what was written and not flushed; what a store without such bytes has lost is in its
// private pages.
TEST_F(PacedStore, TellsWhenAReadMayFindOlderBytes) {
  const auto fail_a_checkpoint = [&](bool writes_home) {
    SimVolume volume{SimImage{}, true};
    StoreOptions options;
    options.create = true;
    options.manual_checkpoint = true;
    const auto store = must(Store::open(volume, options));
    const ObjectId object = create_object(*store, "a", 4 * kPageBytes);
    EXPECT_OK(store->checkpoint());
    EXPECT_OK(commit(*store, {{object, 0, filled(100, 3)}}));
    if (writes_home) {
      EXPECT_OK(store->write_home(store->log().head()));
    }
    EXPECT_OK(store->check_homes());
    volume.faults().plan(SimFaults::Kind::fail_flush, 0);
    EXPECT_FALSE(store->checkpoint().ok());
    EXPECT_EQ(store->failure().category, Errc::poisoned);
    return store->check_homes().category;
  };
  EXPECT_EQ(fail_a_checkpoint(false), Errc::ok);
  EXPECT_EQ(fail_a_checkpoint(true), Errc::poisoned);
}

// A thread that waits for a checkpoint does not wait for pauses.
TEST_F(PacedStore, GoesOnAtOnceWhenAThreadWaits) {
  std::atomic<bool> asking{false};
  std::thread other;
  volume_.before_transfer = [&] {
    if (other.joinable() || store_->counters().home_bytes.load() < CheckpointPace::kStepBytes) return;
    other = std::thread([&] {
      asking = true;
      EXPECT_OK(store_->checkpoint());
    });
    while (!asking) std::this_thread::yield();
  };
  wake_checkpoint(kPageBytes);
  await_checkpoint();
  other.join();
  const std::vector<std::uint64_t> seen = steps();
  EXPECT_LE(*std::min_element(seen.begin(), seen.end()), kStepPages) << "it began in small steps";
  EXPECT_GE(*std::max_element(seen.begin(), seen.end()), 4 * kStepPages) << "and went on in large ones";
}

}  // namespace
}  // namespace memlith::test
