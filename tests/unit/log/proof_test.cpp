// The trust of a log that is opened again: a log that was closed ends where its superblock says, and frames that may
// be in the page cache only are on the medium before anything is built upon them.
#include <gtest/gtest.h>

#include "log_fixture.hpp"
#include "sim/power_cuts.hpp"
#include "support/expect.hpp"

namespace memlith::test {
namespace {

// Damage anywhere in what a clean log holds, its last frame included, is found: the superblock knows where it ended.
TEST(ClosedLog, DamageInAnyFrameIsFound) {
  LogWorld closed;
  ASSERT_OK(closed.open());
  std::vector<std::uint64_t> places;
  for (std::uint64_t i = 0; i < 3; ++i) {
    places.push_back(closed.file_offset(closed.log().head()));
    closed.append(payload_of(900, i));
  }
  ASSERT_OK(closed.log().close({}));
  closed.crash();
  ASSERT_OK(closed.open_to_read());
  EXPECT_EQ(closed.frames().size(), 3u);
  for (const std::uint64_t place : places) {
    for (const std::uint64_t at : {0u, 20u, 52u, 70u, 600u, 1023u}) {  // header, payload, trailer
      LogWorld world;
      ASSERT_OK(world.open());
      for (std::uint64_t i = 0; i < 3; ++i) world.append(payload_of(900, i));
      ASSERT_OK(world.log().close({}));
      world.crash([&](std::vector<std::byte>& disk) { disk[place + at] ^= std::byte{1}; });
      EXPECT_ERROR(Errc::corrupt, world.open_to_read()) << place << "+" << at;
      EXPECT_NE(last_error_text().find("when it was closed"), std::string::npos) << last_error_text();
    }
  }
}

// A superblock tells how far the log was durable when it was written, so the frames before that are vouched for without
// a frame behind them.
TEST(TrimmedLog, DamageBeforeItsSuperblockIsFound) {
  for (const bool damaged : {false, true}) {
    LogWorld world;
    ASSERT_OK(world.open());
    world.append(payload_of(900, 1));
    const LogPosition tail = world.log().durable();
    const std::uint64_t place = world.file_offset(world.log().head());
    world.append(payload_of(900, 2));
    ASSERT_OK(world.log().trim(tail, {}));
    world.crash([&](std::vector<std::byte>& disk) { disk[place + 100] ^= std::byte(damaged ? 1 : 0); });
    if (damaged) {
      EXPECT_ERROR(Errc::corrupt, world.open_to_read());
      EXPECT_NE(last_error_text().find("its superblock says"), std::string::npos) << last_error_text();
    } else {
      EXPECT_OK(world.open_to_read());
    }
  }
}

class ForgottenFlush : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kFirst = 300;

  ForgottenFlush() : volume_({}, true) {
    auto device = volume_.open("log", OpenMode::create, Caching::direct);
    EXPECT_OK(Log::format(**device, {512, 8192, 3}, {}, 0x1234));
    EXPECT_OK(volume_.sync_folder(""));
  }

  struct Opened {
    std::unique_ptr<Device> device;
    std::unique_ptr<Log> log;
    Frames frames;
    Status status = kOk;
  };
  static Opened read(SimVolume& volume) {
    Opened result;
    result.device = std::move(*volume.open("log", OpenMode::read_write, Caching::direct));
    auto log = Log::open(*result.device, LogWorld::small_options());
    result.status = log.status();
    if (!log.ok()) return result;
    result.log = std::move(*log);
    result.status = result.log->recover([&result](const Frame& frame) -> Status {
      result.frames.emplace_back(frame.payload.begin(), frame.payload.end());
      return kOk;
    });
    return result;
  }
  // Every image that a power cut behind the trace's operations from `begin` on leaves, with all or nothing of what was
  // unflushed, or with all that was written spoilt.
  void for_each_cut(std::size_t begin, const std::function<void(SimVolume&, std::size_t)>& look) {
    for (CrashPoints points(volume_.trace(), begin); points.next();) {
      const SimMedium& medium = points.medium();
      for (const SimFate fate : {SimFate::kept, SimFate::lost, SimFate::garbage}) {
        std::vector<SimChoice> choices(medium.pending_count(), SimChoice{fate, 0});
        for (std::size_t i = 0; i < choices.size(); ++i) {
          if (medium.pending(i).op != SimOp::write && fate == SimFate::garbage) choices[i] = {};
        }
        SimVolume cut(medium.cut(choices, 1));
        look(cut, points.at());
      }
    }
  }

  SimVolume volume_;
};

// Found outside: with a log in the page cache, a frame whose flush failed was read back, believed and replayed, and was
// not on the medium. Once the log is started, no power cut takes it; until then, what was acknowledged stays, whatever
// happens to what is being written.
TEST_F(ForgottenFlush, WhatIsReadBackIsOnTheMediumBeforeItIsBuiltUpon) {
  {
    Opened first = read(volume_);
    ASSERT_OK(first.log->start(first.log->recovered(), {}));
    ASSERT_OK(first.log->append(payload_of(kFirst, 1), 1).status());
    volume_.faults().plan(SimFaults::Kind::forget_flush, 0);
    EXPECT_ERROR(Errc::io, first.log->append(payload_of(kFirst, 2), 1).status());
  }
  volume_.faults().clear();
  const std::size_t reopened = volume_.operations();
  std::size_t secured = 0;
  {
    Opened second = read(volume_);
    ASSERT_EQ(second.frames.size(), 2u) << "the page cache shows it";
    EXPECT_EQ(second.log->proven(), Lsn{512});
    ASSERT_OK(second.log->secure());
    secured = volume_.operations();
    EXPECT_EQ(second.log->proven(), second.log->recovered().lsn);
    ASSERT_OK(second.log->start(second.log->tail(), {}));
    ASSERT_OK(second.log->append(payload_of(kFirst, 3), 1).status());
  }
  for_each_cut(reopened, [&](SimVolume& cut, std::size_t at) {
    const Opened found = read(cut);
    ASSERT_OK(found.status) << at;
    ASSERT_GE(found.frames.size(), at >= secured ? 2u : 1u) << at;
    for (std::size_t i = 0; i < found.frames.size(); ++i) EXPECT_EQ(found.frames[i], payload_of(kFirst, i + 1)) << at;
  });
}

// A trim fails at the flush of the superblock's second copy, which the page cache alone has from then on; a frame that
// another thread commits meanwhile is acknowledged. The next opening finds two equal copies, and moves that frame to
// the slot that the trim freed. Whatever power cut spoils the first copy then, the second one leads to all frames.
TEST_F(ForgottenFlush, ATailThatThePageCacheAloneHas) {
  constexpr std::uint64_t kLong = 7000;
  {
    Opened first = read(volume_);
    ASSERT_OK(first.log->start(first.log->recovered(), {}));
    ASSERT_OK(first.log->append(payload_of(kLong, 1), 1).status());
    ASSERT_OK(first.log->append(payload_of(kLong, 2), 1).status());
    const LogPosition tail = first.log->durable();
    ASSERT_GT(tail.lsn.value, 8192u - 512) << "the trim frees a slot";
    bool committed = false;
    volume_.before_transfer = [&] {
      if (std::exchange(committed, true)) return;
      EXPECT_OK(first.log->append(payload_of(kFirst, 3), 1).status());
      volume_.faults().plan(SimFaults::Kind::forget_flush, 1);
    };
    EXPECT_ERROR(Errc::io, first.log->trim(tail, {}));
    volume_.before_transfer = nullptr;
  }
  volume_.faults().clear();
  const std::size_t reopened = volume_.operations();
  {
    Opened second = read(volume_);
    ASSERT_OK(second.status);
    ASSERT_EQ(second.frames, Frames{payload_of(kFirst, 3)});
    ASSERT_LT(second.log->proven(), second.log->recovered().lsn);
    ASSERT_OK(second.log->start(second.log->tail(), {}));
    ASSERT_OK(second.log->append(payload_of(kLong, 4), 1).status());
  }
  for_each_cut(reopened, [&](SimVolume& cut, std::size_t at) {
    const Opened found = read(cut);
    ASSERT_OK(found.status) << at;
    const auto third = std::ranges::find(found.frames, payload_of(kFirst, 3));
    EXPECT_NE(third, found.frames.end()) << at;
  });
}

// Frames that a later frame or the superblock proves are not written again.
TEST_F(ForgottenFlush, WhatIsProvenIsLeftAlone) {
  {
    Opened first = read(volume_);
    ASSERT_OK(first.log->start(first.log->recovered(), {}));
    ASSERT_OK(first.log->append(payload_of(kFirst, 1), 1).status());
    ASSERT_OK(first.log->trim(first.log->tail(), {}));
  }
  const Opened second = read(volume_);
  const std::size_t before = volume_.operations();
  EXPECT_EQ(second.log->proven(), second.log->recovered().lsn);
  EXPECT_OK(second.log->secure());
  EXPECT_EQ(volume_.operations(), before);
}

// A log without a free slot grows for it; on a full disk opening says so, changes nothing and loses nothing.
TEST_F(ForgottenFlush, AFullLogNeedsRoom) {
  Frames frames;
  {
    Opened first = read(volume_);
    ASSERT_OK(first.log->start(first.log->recovered(), {}));
    for (std::uint64_t i = 0; i < 3; ++i) {
      frames.push_back(payload_of(7000, i));
      ASSERT_OK(first.log->append(frames.back(), 1).status());
    }
    EXPECT_EQ(first.log->capacity_bytes(), 3 * (8192u - 512));
  }
  volume_.faults().plan(SimFaults::Kind::no_space, 0, true);
  const std::uint64_t before = volume_.image().hash();
  {
    Opened second = read(volume_);
    EXPECT_EQ(second.frames, frames);
    EXPECT_ERROR(Errc::no_space, second.log->start(second.log->tail(), {}));
    EXPECT_NE(last_error_text().find("free 16384 bytes on the disk"), std::string::npos) << last_error_text();
  }
  EXPECT_EQ(volume_.image().hash(), before);
  volume_.faults().clear();
  Opened third = read(volume_);
  EXPECT_EQ(third.frames, frames);
  ASSERT_OK(third.log->start(third.log->tail(), {}));
  EXPECT_EQ(third.log->capacity_bytes(), 5 * (8192u - 512)) << "the last frame lies in two segments";
  const Opened fourth = read(volume_);
  EXPECT_EQ(fourth.frames, frames);
}

}  // namespace
}  // namespace memlith::test
