// The cost of a persist in bytes written, by the counters of memlith_store_get_stats: small changes make small frames,
// and a page persisted over and over goes home a few times at most (docs/performance.md, "Bytes written"). Both hold
// for the trackers that know bytes, and neither depends on how fast the machine is.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "memlith/memlith.h"
#include "support/temp_folder.hpp"

namespace memlith::test::amplification_test {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kPages = 16;  // of each change
constexpr std::uint64_t kRegionPages = 1024;

class Amplification : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_OPEN_CREATE;
    ASSERT_EQ(memlith_store_open((folder_ / "store").c_str(), &options, &store_), MEMLITH_OK);
    memlith_region_options wanted{};
    wanted.struct_size = sizeof wanted;
    wanted.flags = MEMLITH_CREATE;
    wanted.tracker = GetParam();
    wanted.size = kRegionPages * kPageBytes;
    ASSERT_EQ(memlith_region_open(store_, "a", &wanted, &region_), MEMLITH_OK);
    base_ = static_cast<unsigned char*>(memlith_region_address(region_));
  }
  void TearDown() override { EXPECT_EQ(memlith_store_close(store_), MEMLITH_OK); }

  [[nodiscard]] memlith_stats stats() {
    memlith_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_EQ(memlith_store_get_stats(store_, &stats), MEMLITH_OK);
    return stats;
  }
  void release() { ASSERT_EQ(memlith_region_release(region_), MEMLITH_OK); }
  void checkpoint() { ASSERT_EQ(memlith_store_checkpoint(store_), MEMLITH_OK); }

  // Every byte of the range gets another value than it had, whatever round it was changed in before.
  void change(std::uint64_t offset, std::uint64_t bytes) {
    for (std::uint64_t i = 0; i < bytes; ++i)
      base_[offset + i] = static_cast<unsigned char>(base_[offset + i] + 1 + i % 7);
    ASSERT_EQ(memlith_touch(region_, base_ + offset, bytes), MEMLITH_OK);  // no effect on fault
  }
  void persist() { ASSERT_EQ(memlith_persist(&region_, 1, MEMLITH_SCOPE_PROCESS), MEMLITH_OK); }

 private:
  TempFolder folder_;
  memlith_store* store_ = nullptr;
  memlith_region* region_ = nullptr;
  unsigned char* base_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(By, Amplification,
                         ::testing::Values(MEMLITH_TRACKER_EXPLICIT, MEMLITH_TRACKER_FAULT, MEMLITH_TRACKER_SCAN),
                         [](const auto& given) {
                           if (given.param == MEMLITH_TRACKER_SCAN) return "Scan";
                           return given.param == MEMLITH_TRACKER_FAULT ? "Fault" : "Explicit";
                         });

// 16 changes of 200 bytes, scattered over pages and places in them: at most 1.5 times their bytes go into the log,
// counted in the whole sectors that a frame takes.
TEST_P(Amplification, SmallChangesMakeSmallFrames) {
  constexpr std::uint64_t kChangeBytes = 200;
  constexpr std::uint64_t kRounds = 100;
  for (std::uint64_t first = 0; first < kRegionPages / kPages; ++first) {
    for (std::uint64_t i = 0; i < kPages; ++i) change((first + i * (kRegionPages / kPages)) * kPageBytes, 1);
    persist();
  }
  const memlith_stats before = stats();
  const auto began = std::chrono::steady_clock::now();
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    for (std::uint64_t i = 0; i < kPages; ++i) {
      const std::uint64_t page = (round * 131 + i * 61) % kRegionPages;
      change(page * kPageBytes + (round * 37 + i * 251) % (kPageBytes - kChangeBytes), kChangeBytes);
    }
    persist();
  }
  const memlith_stats after = stats();
  constexpr std::uint64_t kChanged = kRounds * kPages * kChangeBytes;
  // A mark of the time takes a frame about once a second.
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(std::chrono::steady_clock::now() - began).count();
  EXPECT_GE(after.frames - before.frames, kRounds);
  EXPECT_LE(after.frames - before.frames, kRounds + static_cast<std::uint64_t>(seconds));
  // Fault logs whole words.
  const std::uint64_t slack = GetParam() == MEMLITH_TRACKER_FAULT ? kRounds * kPages * 14 : 0;
  EXPECT_GE(after.captured_bytes - before.captured_bytes, kChanged) << "not the bytes that were changed";
  EXPECT_LE(after.captured_bytes - before.captured_bytes, kChanged + slack) << "not the bytes that were changed";
  const std::uint64_t logged = after.logged_bytes - before.logged_bytes;
  EXPECT_EQ(logged % 512, 0u);
  EXPECT_GT(logged, kChanged);
  EXPECT_LE(logged * 10, kChanged * 15);
}

// Pages that were never captured, and pages of which no copy is kept any more, make small frames, too: scan reads them
// from home, where that is in memory.
TEST_P(Amplification, FirstChangesMakeSmallFrames) {
  constexpr std::uint64_t kChangeBytes = 200;
  const auto change_all = [this] {
    const memlith_stats before = stats();
    for (std::uint64_t page = 0; page < kRegionPages; page += kRegionPages / kPages) {
      change(page * kPageBytes + page, kChangeBytes);
    }
    persist();
    const std::uint64_t captured = stats().captured_bytes - before.captured_bytes;
    EXPECT_GE(captured, kPages * kChangeBytes);
    EXPECT_LE(captured, kPages * (kChangeBytes + 14));
  };
  change_all();
  release();
  change_all();
}

// 1,000 persists of the same 16 pages write them home a few times, not a thousand times: with the usual log of 128 MiB
// one checkpoint comes by itself when half of it is used, and one is asked for.
TEST_P(Amplification, PersistsOfTheSamePagesGoHomeTogether) {
  constexpr std::uint64_t kRounds = 1000;
  constexpr std::uint64_t kTimesMax = 4;
  const auto page_of = [](std::uint64_t i) { return i * 61 % kRegionPages; };
  checkpoint();
  const memlith_stats before = stats();
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    for (std::uint64_t i = 0; i < kPages; ++i) change(page_of(i) * kPageBytes, kPageBytes);
    persist();
  }
  checkpoint();
  const memlith_stats after = stats();
  // Beside them, a mark of the time for each second.
  EXPECT_GE(after.frames - before.frames, kRounds);
  EXPECT_LE(after.frames - before.frames, kRounds + kRounds / 10);
  EXPECT_EQ(after.captured_bytes - before.captured_bytes, kRounds * kPages * kPageBytes);
  const std::uint64_t home = after.home_bytes - before.home_bytes;
  EXPECT_GE(home, kPages * kPageBytes) << "they have not gone home at all";
  EXPECT_LE(home, kTimesMax * kPages * kPageBytes) << "by " << after.checkpoints - before.checkpoints << " checkpoints";
}

}  // namespace
}  // namespace memlith::test::amplification_test
