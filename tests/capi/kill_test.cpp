// docs/guarantees.md, "What survives what": whenever a program is killed, reopening finds every persist it was told had
// succeeded, and of the one it was in the middle of, all or nothing, in all regions.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "memlith/memlith.hpp"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::kill_test {
namespace {

constexpr std::uint64_t kSize = 256 * 1024;
constexpr std::uint64_t kWordsApart = 700;  // about a word a page, in places that wander

Store open_store(const std::string& path) {
  StoreOptions options;
  options.create = true;
  options.log_bytes = 1 << 20;  // small: checkpoints are killed too
  return or_leave(Store::open(path, options), 3);
}
Region open_region(const Store& store, const std::string& name, Tracker tracker) {
  RegionOptions options;
  options.create = true;
  options.size = kSize;
  options.tracker = tracker;
  return or_leave(store.region(name, options), 4);
}
std::uint64_t* words(const Region& region) { return static_cast<std::uint64_t*>(region.address()); }

// All regions hold one number all over; persists the next, and the next, and says so, until it is killed. Every fourth
// time, discards the first half of the last region.
[[noreturn]] void persist_for_ever(const std::string& path, Tracker tracker, std::atomic<std::uint64_t>& acknowledged) {
  Store store = open_store(path);
  Region a = open_region(store, "a", tracker);
  Region b = open_region(store, "b", tracker);
  Region c = open_region(store, "c", tracker);
  for (std::uint64_t number = words(a)[0] + 1;; ++number) {
    for (const Region* region : {&a, &b, &c}) {
      for (std::uint64_t at = 0; at < kSize / 8; at += kWordsApart) words(*region)[at] = number;
      (void)region->touch(words(*region), kSize);
    }
    if (!Store::persist({&a, &b, &c}).ok()) ::_exit(5);
    acknowledged = number;
    if (number % 4 == 0 && !c.discard(c.address(), kSize / 2).ok()) ::_exit(7);
  }
}

class Kill : public ::testing::TestWithParam<Tracker> {};
INSTANTIATE_TEST_SUITE_P(By, Kill, ::testing::Values(Tracker::scan, Tracker::fault, Tracker::touched),
                         [](const auto& given) {
                           return given.param == Tracker::scan    ? "Scan"
                                  : given.param == Tracker::fault ? "Fault"
                                                                  : "Explicit";
                         });

// Twenty lives, each ended at a random moment: in opening, persisting, checkpointing or growing older.
TEST_P(Kill, TwentyKillsLoseNothingAcknowledged) {
  const TempFolder folder;
  const std::string path = folder / "store";
  std::mt19937_64 random(std::random_device{}());
  const SharedWithChildren<std::atomic<std::uint64_t>> acknowledged;
  for (int life = 0; life < 20; ++life) {
    const std::uint64_t enough = *acknowledged + (life % 4 == 3 ? 0 : random() % 60);
    KilledProcess child;
    child.start([&] { persist_for_ever(path, GetParam(), *acknowledged); }, [&] { return *acknowledged >= enough; });
    child.kill_working(random() % 3000);
    ASSERT_FALSE(HasFailure());

    Store store = open_store(path);
    Region a = open_region(store, "a", GetParam());
    Region b = open_region(store, "b", GetParam());
    const std::uint64_t found = words(a)[0];
    EXPECT_GE(found, *acknowledged) << "life " << life;
    EXPECT_LE(found, *acknowledged + 1) << "life " << life;
    for (std::uint64_t at = 0; at < kSize / 8; at += kWordsApart) {
      ASSERT_EQ(words(a)[at], found) << "life " << life << ", word " << at;
      ASSERT_EQ(words(b)[at], found) << "life " << life << ", word " << at;
    }
    Region c = open_region(store, "c", GetParam());
    const bool discarded = found % 4 == 0 && words(c)[0] == 0;
    for (std::uint64_t at = 0; at < kSize / 8; at += kWordsApart) {
      const bool first_half = at < kSize / 16;
      ASSERT_EQ(words(c)[at], discarded && first_half ? 0 : found) << "life " << life << ", word " << at;
    }
    *acknowledged = found;
    if (life % 2 == 0) {
      EXPECT_TRUE(store.close().ok());
    }
  }
  EXPECT_GT(*acknowledged, 20u) << "the children did not get far";
}

}  // namespace
}  // namespace memlith::test::kill_test
