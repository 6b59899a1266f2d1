// docs/format.md, "time": a mark comes behind commits that have none, once a second or when the log is idle, and none
// comes when nothing is committed.
#include "store/time_marker.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "sim/power_cuts.hpp"
#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

std::uint64_t clock_ns = 0;
std::uint64_t read_clock() { return clock_ns; }

class TimeMarkerTest : public ::testing::Test {
 protected:
  TimeMarkerTest() : files_(volume_, {}) {
    files_.log_device = must(volume_.open("log", OpenMode::create, Caching::direct));
    EXPECT_OK(volume_.sync_folder(""));
    EXPECT_OK(Log::format(*files_.log_device, {512, 16 * kKiB, 4}, {}, 7));
    files_.log = must(Log::open(*files_.log_device, {}));
    EXPECT_OK(files_.log->recover([](const Frame&) { return kOk; }));
    EXPECT_OK(files_.log->start(files_.log->recovered(), {}));
  }
  void commit() { EXPECT_OK(files_.log->append(std::vector<std::byte>(40), kFrameKindCommit).status()); }
  bool look(int ms) { return marker_->look(start_ + std::chrono::milliseconds(ms), read_clock); }
  // The log's frames: 0 for a commit, a time for a mark.
  std::vector<std::uint64_t> found() {
    EXPECT_OK(files_.log->sync(files_.log->head()));
    std::vector<std::uint64_t> found;
    LogReader reader = files_.log->reader({Lsn{0}, 7}, files_.log->durable_lsn());
    while (const auto frame = must(reader.next())) {
      TimeRecord record{};
      if (frame->kind == kFrameKindTime) std::memcpy(&record, frame->payload.data(), sizeof record);
      found.push_back(record.ns);
    }
    return found;
  }

  SimVolume volume_{{}, true};
  StoreFiles files_;
  std::shared_ptr<Background> background_ = Background::of_process();
  const Workers::Time start_{};
  std::unique_ptr<Flusher> flusher_;
  std::unique_ptr<TimeMarker> marker_;
  void SetUp() override {
    flusher_ = std::make_unique<Flusher>(files_, *background_);
    marker_ = std::make_unique<TimeMarker>(files_, *flusher_, start_);
  }
  void TearDown() override {
    marker_->stop();
    flusher_->stop();
  }
};

TEST_F(TimeMarkerTest, MarksCommitsOnceASecond) {
  EXPECT_FALSE(look(5000)) << "there is no commit";
  commit();
  EXPECT_TRUE(look(10)) << "too early";
  clock_ns = 111;
  EXPECT_FALSE(look(1000));
  EXPECT_FALSE(look(3000)) << "nothing was committed since";
  commit();
  commit();
  EXPECT_TRUE(look(1999));
  clock_ns = 99;  // it was set back
  EXPECT_FALSE(look(2000));
  EXPECT_EQ(found(), (std::vector<std::uint64_t>{0, 111, 0, 0, 99}));
  EXPECT_FALSE(look(9000)) << "the flush of a mark is no commit";
}

// The frame vouches for the newest commits.
TEST_F(TimeMarkerTest, MarksAnIdleLogSoon) {
  commit();
  EXPECT_TRUE(look(10));
  commit();
  EXPECT_TRUE(look(20)) << "it is not idle";
  clock_ns = 111;
  EXPECT_FALSE(look(30));
  EXPECT_FALSE(look(40));
  commit();
  EXPECT_TRUE(look(50));
  clock_ns = 112;
  EXPECT_FALSE(look(60));
  EXPECT_EQ(found(), (std::vector<std::uint64_t>{0, 0, 111, 0, 112}));
}

// A mark is written behind commits that nothing vouches for yet: no power cut at any operation takes one of them.
TEST_F(TimeMarkerTest, NoPowerCutInAMarkTakesACommit) {
  struct Acknowledged {
    std::size_t operations;
    Lsn lsn;
  };
  std::vector<Acknowledged> acknowledged;
  const std::size_t begin = volume_.operations();
  for (int ms = 0; ms < 100; ms += 20) {
    commit();
    acknowledged.push_back({volume_.operations(), files_.log->durable_lsn()});
    EXPECT_TRUE(look(ms));
    EXPECT_FALSE(look(ms + 10)) << "the mark is there";
    EXPECT_OK(files_.log->sync(files_.log->head()));
  }
  marker_->stop();
  flusher_->stop();
  Random random(1);
  std::size_t images = 0;
  for (CrashPoints points(volume_.trace(), begin); points.next();) {
    for (PowerCuts cuts(points.medium(), {3, 6}, random); cuts.next(); ++images) {
      SimVolume cut(cuts.image());
      const auto device = must(cut.open("log", OpenMode::read_only, Caching::direct));
      const auto log = must(Log::open(*device, {}));
      ASSERT_OK(log->recover([](const Frame&) { return kOk; })) << points.at();
      for (const Acknowledged& each : acknowledged) {
        if (each.operations > points.at()) continue;
        EXPECT_GE(log->recovered().lsn, each.lsn) << points.at();
      }
    }
  }
  EXPECT_GT(images, 30u);
}

TEST_F(TimeMarkerTest, LeavesACheckpointOfAnIdleStoreAlone) {
  while (bytes_between(files_.log->tail().lsn, files_.log->head()) < files_.log->capacity_bytes() / 4) commit();
  EXPECT_TRUE(look(10));
  EXPECT_TRUE(look(20)) << "much waits to go home";
  EXPECT_FALSE(look(1000));
}

TEST_F(TimeMarkerTest, DoesNothingOnceItIsStopped) {
  commit();
  marker_->stop();
  EXPECT_FALSE(look(5000));
  EXPECT_EQ(found(), (std::vector<std::uint64_t>{0}));
}

TEST_F(TimeMarkerTest, PutsNoMarkWhileOneMustNotCome) {
  commit();
  {
    const TimeMarker::Pause pause(marker_.get());
    EXPECT_TRUE(look(5000));
    EXPECT_EQ(found(), (std::vector<std::uint64_t>{0}));
  }
  clock_ns = 111;
  EXPECT_FALSE(look(5000));
  EXPECT_EQ(found(), (std::vector<std::uint64_t>{0, 111}));
}

// A full log takes no mark, and nothing waits for room.
TEST_F(TimeMarkerTest, WaitsWhileTheLogIsFull) {
  Log& log = *files_.log;
  for (;;) {
    auto writer = must(log.begin_at_once(40, kFrameKindCommit, true));
    if (!writer.has_value()) break;
    const std::vector<std::byte> payload(40);
    writer->put(payload.data(), payload.size());
    EXPECT_OK(log.sync(must(writer->finish())));
  }
  const Lsn head = log.head();
  EXPECT_TRUE(look(5000));
  EXPECT_EQ(log.head(), head);
  EXPECT_OK(log.trim(log.durable(), {}));
  EXPECT_FALSE(look(6000));
  EXPECT_GT(log.head(), head);
}

}  // namespace
}  // namespace memlith::test
