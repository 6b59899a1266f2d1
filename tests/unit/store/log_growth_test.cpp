// docs/architecture.md, "Life of a checkpoint": a log that commits fill within a minute grows by what checkpoints have
// cost so far, up to a bound.
#include "store/log_growth.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;
using std::chrono::seconds;

// Half of sixteen slots in ten seconds, and checkpoints that have written home what six slots hold.
LogLoad busy() {
  LogLoad load;
  load.slots = 16;
  load.slots_max = 128;
  load.slot_bytes = 8 * kMiB;
  load.filled = 0.5;
  load.took = seconds(10);
  load.home_bytes = 50 * kMiB;
  load.free_bytes = 1024 * kGiB;
  return load;
}

TEST(LogGrowth, GrowsByWhatCheckpointsWrote) {
  EXPECT_EQ(slots_to_add(busy()), 6u);
  LogLoad load = busy();
  load.grown_bytes = 40 * kMiB;  // of it matched by growth already
  EXPECT_EQ(slots_to_add(load), 1u);
  load.grown_bytes = 48 * kMiB;
  EXPECT_EQ(slots_to_add(load), 0u);
  load.grown_bytes = 64 * kMiB;
  EXPECT_EQ(slots_to_add(load), 0u);
}

// A given size needs no earning, costs nothing of the earned bytes, and is no reason to grow a log that is filled
// slowly.
TEST(LogGrowth, GrowsAtOnceToWhatItIsGiven) {
  LogLoad load = busy();
  load.slot_bytes = 256 * kKiB;
  load.slots = 4;
  load.slots_max = 4096;
  load.home_bytes = 0;
  EXPECT_EQ(slots_to_add(load), 0u);
  load.given_bytes = 128 * kMiB;
  EXPECT_EQ(slots_to_add(load), 9u) << "two slots in ten seconds: thirteen last a minute";
  load.took = std::chrono::milliseconds(20);
  EXPECT_EQ(slots_to_add(load), 508u);
  load.slots = 500;
  EXPECT_EQ(slots_to_add(load), 12u);
  load.slots = 512;
  EXPECT_EQ(slots_to_add(load), 0u);
  load.home_bytes = 3 * kMiB;
  EXPECT_EQ(slots_to_add(load), 12u) << "earned";
  load.slots = 4;
  load.took = seconds(30);
  EXPECT_EQ(slots_to_add(load), 0u);
  load.took = seconds(0);
  EXPECT_EQ(slots_to_add(load), 508u);
}

TEST(LogGrowth, ALogThatLastsAMinuteStays) {
  LogLoad load = busy();
  load.took = seconds(29);
  EXPECT_EQ(slots_to_add(load), 6u);
  load.took = seconds(30);
  EXPECT_EQ(slots_to_add(load), 0u);
  load.filled = 1;
  EXPECT_EQ(slots_to_add(load), 6u);
}

TEST(LogGrowth, AtMostDoublesAtMostToTheBound) {
  LogLoad load = busy();
  load.home_bytes = 1024 * kGiB;
  EXPECT_EQ(slots_to_add(load), 16u);
  load.slots = 120;
  EXPECT_EQ(slots_to_add(load), 8u);
  load.slots = 128;
  EXPECT_EQ(slots_to_add(load), 0u);
  load.slots = 500;  // a transaction made it that large
  EXPECT_EQ(slots_to_add(load), 0u);
  load.slots = 16;
  load.slots_max = 0;
  EXPECT_EQ(slots_to_add(load), 0u);
}

TEST(LogGrowth, LeavesMostOfTheVolumeToOthers) {
  LogLoad load = busy();
  load.free_bytes = 100 * kMiB;
  EXPECT_EQ(slots_to_add(load), 3u);
  load.free_bytes = 31 * kMiB;
  EXPECT_EQ(slots_to_add(load), 0u);
}

// A store whose four slots a few commits fill, and which may have sixteen.
class BusyStore : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kObjectBytes = 256 * kKiB;

  static StoreOptions busy_options() {
    StoreOptions options = tiny_options();
    options.manual_checkpoint = false;
    options.log_busy_bytes = 16 * options.slot_bytes;
    return options;
  }
  void open(const StoreOptions& options) {
    store_ = must(Store::open(volume_, options));
    if (!store_->find("a").has_value()) create_object(*store_, "a", kObjectBytes);
    object_ = store_->find("a")->id;
    slots_at_open_ = slots();
  }
  [[nodiscard]] std::uint64_t slots() const {
    return store_->log().capacity_bytes() / store_->log().geometry().segment_bytes();
  }
  // Commits a page here and there so many times, or until the log has so many slots.
  void commit_until(std::uint64_t wanted_slots, int commits) {
    for (int i = 0; i < commits && slots() < wanted_slots; ++i) {
      const std::uint64_t page = static_cast<std::uint64_t>(i) * 7 % (kObjectBytes / kPageBytes);
      const Bytes content = filled(kPageBytes, ++value_);
      ASSERT_OK(commit(*store_, {{object_, page * kPageBytes, content}})) << i;
      std::copy(content.begin(), content.end(), expected_.begin() + static_cast<std::ptrdiff_t>(page * kPageBytes));
      const std::uint64_t grown = slots() - slots_at_open_;
      ASSERT_LE(grown * tiny_options().slot_bytes, store_->counters().home_bytes.load())
          << "costs more than not growing";
    }
  }
  void expect_content() { ASSERT_TRUE(content_of(*store_, object_) == expected_); }

  SimVolume volume_;
  std::unique_ptr<Store> store_;
  ObjectId object_;
  Bytes expected_ = filled(kObjectBytes, 0);
  std::uint64_t slots_at_open_ = 0;
  int value_ = 0;
};

TEST_F(BusyStore, GrowsWhileCommitsFillIt) {
  open(busy_options());
  EXPECT_EQ(slots(), 4u);
  commit_until(16, 100'000);
  EXPECT_EQ(slots(), 16u);
  commit_until(17, 500);
  EXPECT_EQ(slots(), 16u) << "beyond the bound";
  expect_content();
  store_ = nullptr;  // as a crash leaves it
  open(busy_options());
  EXPECT_EQ(slots(), 16u);
  expect_content();
}

// A log with a given size has exactly that size.
TEST_F(BusyStore, ALogOfAGivenSizeStays) {
  StoreOptions options = busy_options();
  options.log_busy_bytes = 0;
  open(options);
  commit_until(5, 1000);
  EXPECT_GT(store_->counters().checkpoints.load(), 5u);
  EXPECT_EQ(slots(), 4u);
  expect_content();
}

TEST_F(BusyStore, StaysSmallOnAFullVolume) {
  volume_.free_bytes_told = 3 * tiny_options().slot_bytes;
  open(busy_options());
  commit_until(5, 1000);
  EXPECT_EQ(slots(), 4u);
  expect_content();
}

// Refused room is no failure: the log stays as it is, and commits go on.
TEST_F(BusyStore, GoesOnWhenRoomIsRefused) {
  open(busy_options());
  volume_.faults().plan(SimFaults::Kind::no_space, 0);
  commit_until(5, 1000);
  EXPECT_EQ(volume_.faults().fired(SimFaults::Kind::no_space), 1u);
  EXPECT_EQ(slots(), 4u);
  EXPECT_FALSE(store_->log().poisoned());
  expect_content();
  ASSERT_OK(store_->close());
}

// One that is closed while it may be growing is closed cleanly, and as large as it was made.
TEST_F(BusyStore, ClosesAtAnyTime) {
  for (std::uint64_t wanted = 5; wanted <= 16; ++wanted) {
    open(busy_options());
    commit_until(wanted, 100'000);
    ASSERT_OK(store_->close());
    open(busy_options());
    EXPECT_TRUE(store_->was_clean());
    EXPECT_EQ(slots(), 4u);
    expect_content();
    ASSERT_OK(store_->close());
  }
}

}  // namespace
}  // namespace memlith::test
