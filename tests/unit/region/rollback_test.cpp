// docs/guarantees.md, "memlith_rollback": a rollback of a few bytes costs what it undoes. It reads them from home and
// from the log, and neither runs a checkpoint nor waits for one.
#include <gtest/gtest.h>

#include <thread>

#include "store/format.hpp"
#include "support/expect.hpp"
#include "support/region_words.hpp"

namespace memlith::test::rollback_test {
namespace {

using namespace core;

constexpr std::uint64_t kSize = 64 * kPageBytes;

Status roll_back(Region& region, Scope scope = Scope::process) {
  Region* const one = &region;
  return Region::rollback({&one, 1}, scope);
}
Lsn capture(Region& region) {
  Region* const one = &region;
  return must(Region::capture({&one, 1}, Scope::process, false));
}

class Rollbacks : public ::testing::TestWithParam<TrackerKind> {
 protected:
  static StoreOptions options() {
    StoreOptions options = tiny_options();
    options.log_bytes = 256 * options.slot_bytes;
    options.log_max_bytes = 256 * options.slot_bytes;
    return options;
  }
  [[nodiscard]] std::uint64_t checkpoints() { return world_.store().counters().checkpoints.load(); }
  RegionWorld world_{GetParam(), options()};
};
INSTANTIATE_TEST_SUITE_P(By, Rollbacks,
                         ::testing::Values(TrackerKind::scan, TrackerKind::touched, TrackerKind::instrumented),
                         [](const auto& given) { return name_of_tracker(given.param); });

TEST_P(Rollbacks, OfAFewBytesRunNoCheckpoint) {
  Region& region = world_.open("a", kSize);
  Region& other = world_.open("b", kSize);
  put(region, 0, 1);
  put(region, 3 * kPageBytes, 1);
  ASSERT_OK(persist(region));
  ASSERT_OK(world_.store().checkpoint());
  const std::uint64_t before = checkpoints();
  put(region, 8, 2);
  put(region, 3 * kPageBytes, 2);
  ASSERT_OK(persist(region));
  // Others' captures meanwhile, which are not at home.
  for (std::uint64_t i = 0; i < 5000; ++i) {
    put(other, i % 512 * 8, i);
    (void)capture(other);
  }
  put(region, 16, 3);
  (void)capture(region);
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{16}, 3 * kPageBytes}) {
    put(region, offset, 9);
  }
  put(region, 5 * kPageBytes, 9);
  put(other, 0, 9);
  ASSERT_OK(roll_back(region));
  EXPECT_EQ(checkpoints(), before);
  EXPECT_EQ(get(region, 0), 1u);
  EXPECT_EQ(get(region, 8), 2u);
  EXPECT_EQ(get(region, 16), 3u);
  EXPECT_EQ(get(region, 3 * kPageBytes), 2u);
  EXPECT_EQ(get(region, 5 * kPageBytes), 0u);
  EXPECT_EQ(get(other, 0), 9u);
  // Nothing of it is due any more.
  const std::uint64_t frames = world_.frames();
  ASSERT_OK(persist(region));
  EXPECT_EQ(world_.frames(), frames);
  world_.crash();
  EXPECT_EQ(get(world_.open("a"), 8), 2u);
}

// The newest capture lies in the memory of the log: no caller has asked for its durability.
TEST_P(Rollbacks, ReadBackWhatIsNotDurableYet) {
  Region& region = world_.open("a", kSize);
  for (std::uint64_t round = 1; round <= 20; ++round) {
    put(region, 8 * round, round);
    const Lsn end = capture(region);
    ASSERT_LT(world_.store().durable_lsn(), end);
    put(region, 8 * round, 99);
    ASSERT_OK(roll_back(region));
    ASSERT_EQ(get(region, 8 * round), round);
  }
  EXPECT_EQ(checkpoints(), 0u);
}

// A mark of time is a frame without commits.
TEST_P(Rollbacks, ReadPastMarksOfTime) {
  Region& region = world_.open("a", kSize);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    put(region, 0, round);
    ASSERT_OK(persist(region));
    auto mark = must(const_cast<Log&>(world_.store().log()).begin_at_once(sizeof(TimeRecord), kFrameKindTime, true));
    ASSERT_TRUE(mark.has_value());
    const TimeRecord record{round};
    mark->put(&record, sizeof record);
    ASSERT_OK(mark->finish().status());
  }
  put(region, 0, 99);
  ASSERT_OK(roll_back(region));
  EXPECT_EQ(get(region, 0), 3u);
  EXPECT_EQ(checkpoints(), 0u);
}

// Beyond a MiB, a checkpoint is cheaper than reading.
TEST_P(Rollbacks, OfManyBytesGoHome) {
  if (works_by_faults(GetParam())) GTEST_SKIP() << "keeps the pages, and reads nothing";
  constexpr std::uint64_t kPages = 600;
  Region& region = world_.open("a", kPages * kPageBytes);
  const auto store_all = [&](int value) {
    std::memset(region.address(), value, region.size());
    ASSERT_OK(region.touch(region.address(), region.size()));
  };
  store_all(1);
  ASSERT_OK(persist(region));
  store_all(2);
  ASSERT_OK(roll_back(region));
  const std::vector<std::byte> expected(region.size(), std::byte{1});
  EXPECT_EQ(std::memcmp(region.address(), expected.data(), region.size()), 0);
  EXPECT_EQ(checkpoints(), 1u);
}

// The place of frames in the log is used again while a rollback reads them.
TEST_P(Rollbacks, BesideCheckpointsOfASmallLog) {
  world_.close_store();
  RegionWorld world(GetParam(), [] {
    StoreOptions options = tiny_options();
    options.manual_checkpoint = false;
    return options;
  }());
  Region& region = world.open("a", kSize);
  Region& other = world.open("b", kSize);
  std::atomic<bool> stop{false};
  std::thread beside([&] {
    for (std::uint64_t i = 1; !stop; ++i) {
      put(other, i % 4096 * 8, i);
      (void)capture(other);
    }
  });
  for (std::uint64_t round = 1; round <= 150; ++round) {
    const std::uint64_t offset = round % 64 * kPageBytes;
    put(region, offset, round);
    (void)capture(region);
    put(region, offset, 1000);
    const Status undone = roll_back(region);
    EXPECT_OK(undone);
    EXPECT_EQ(get(region, offset), round);
    if (::testing::Test::HasFailure()) break;
  }
  stop = true;
  beside.join();
}

}  // namespace
}  // namespace memlith::test::rollback_test
