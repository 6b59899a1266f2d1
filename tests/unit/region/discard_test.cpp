// docs/guarantees.md, "memlith_region_discard": pages become zeros, durably, in the order of the commits; they take
// neither memory nor disk space until they are stored to again.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "region/region.hpp"
#include "region/transaction.hpp"
#include "support/expect.hpp"
#include "support/region_words.hpp"

namespace memlith::test::discard_test {
namespace {

using namespace core;

constexpr std::uint64_t kSize = 64 * kPageBytes;

class Discard : public ::testing::TestWithParam<TrackerKind> {
 protected:
  static Status discard(Region& region, std::uint64_t first_page, std::uint64_t pages) {
    return region.discard(region.address() + first_page * kPageBytes, pages * kPageBytes);
  }
  Region& filled(std::uint64_t size = kSize) {
    Region& region = world_.open("a", size);
    for (std::uint64_t page = 0; page < size / kPageBytes; ++page) put(region, page * kPageBytes, page + 1);
    EXPECT_OK(persist(region));
    return region;
  }
  // Page by page: 0 for the pages [first, end), else what filled() has put there.
  static void expect_zeros(const Region& region, std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t page = 0; page < kSize / kPageBytes; ++page) {
      EXPECT_EQ(get(region, page * kPageBytes), page >= first && page < end ? 0 : page + 1) << page;
    }
  }
  [[nodiscard]] std::uint64_t space_of_home() const {
    struct stat found{};
    EXPECT_EQ(::stat((world_.folder() / "store/objects/1").c_str(), &found), 0);
    return static_cast<std::uint64_t>(found.st_blocks) * 512;
  }
  RegionWorld world_{GetParam()};
};
std::vector<TrackerKind> trackers() {
  std::vector<TrackerKind> kinds{TrackerKind::touched, TrackerKind::fault, TrackerKind::instrumented};
  if (probe_scan().ok()) kinds.push_back(TrackerKind::scan);
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(With, Discard, ::testing::ValuesIn(trackers()), [](const auto& given) {
  switch (given.param) {
    case TrackerKind::touched: return "Explicit";
    case TrackerKind::fault: return "Fault";
    case TrackerKind::instrumented: return "Instrumented";
    default: return "Scan";
  }
});

TEST_P(Discard, IsDurableAndLeavesTheRest) {
  Region& region = filled();
  ASSERT_OK(discard(region, 8, 16));
  expect_zeros(region, 8, 24);
  world_.crash();
  expect_zeros(world_.open("a"), 8, 24);
  world_.close("a");
  world_.close_store();
  world_.open_store();
  expect_zeros(world_.open("a"), 8, 24);
}

TEST_P(Discard, DropsWhatWasNotPersistedThereAndOnlyThere) {
  Region& region = filled();
  Region* const one = &region;
  put(region, 7 * kPageBytes, 100);
  put(region, 8 * kPageBytes, 200);
  ASSERT_OK(discard(region, 8, 1));
  EXPECT_EQ(get(region, 7 * kPageBytes), 100u);
  EXPECT_EQ(get(region, 8 * kPageBytes), 0u);
  ASSERT_OK(Region::rollback({&one, 1}, Scope::process));
  EXPECT_EQ(get(region, 7 * kPageBytes), 8u) << "what no commit has is undone";
  EXPECT_EQ(get(region, 8 * kPageBytes), 0u) << "a discard is a commit";
}

// Also the bytes that were there before: the capture must not compare them with what was captured last.
TEST_P(Discard, PagesTakeNewStores) {
  Region& region = filled();
  for (int round = 0; round < 3; ++round) {
    ASSERT_OK(discard(region, 4, 4));
    put(region, 5 * kPageBytes, 6);
    ASSERT_OK(persist(region));
  }
  for (const bool crashed : {false, true}) {
    if (crashed) {
      world_.crash();
      world_.open("a");
    }
    Region& now = world_["a"];
    EXPECT_EQ(get(now, 4 * kPageBytes), 0u);
    EXPECT_EQ(get(now, 5 * kPageBytes), 6u);
    EXPECT_EQ(get(now, 8 * kPageBytes), 9u);
  }
}

TEST_P(Discard, ReleasedPagesStayZeros) {
  Region& region = filled();
  ASSERT_OK(discard(region, 0, 2));
  put(region, 3 * kPageBytes, 77);
  ASSERT_OK(persist(region));
  ASSERT_OK(region.release_clean());
  EXPECT_EQ(get(region, 0), 0u);
  EXPECT_EQ(get(region, 3 * kPageBytes), 77u);
}

TEST_P(Discard, PartsThatWereNeverPersistedInAGrownRegion) {
  Region& region = filled();
  ASSERT_OK(region.grow(2 * kSize));
  put(region, kSize + 8, 5);
  ASSERT_OK(discard(region, kSize / kPageBytes - 1, 3));
  EXPECT_EQ(get(region, kSize + 8), 0u);
  world_.crash();
  Region& again = world_.open("a");
  EXPECT_EQ(again.size(), 2 * kSize);
  expect_zeros(again, kSize / kPageBytes - 1, kSize / kPageBytes);
}

TEST_P(Discard, SpaceIsReservedBeforeACommitIntoIt) {
  constexpr std::uint64_t kLarge = 8 * kMiB;
  Region& region = filled(kLarge);
  ASSERT_OK(world_.store().checkpoint());
  const std::uint64_t before = space_of_home();
  ASSERT_OK(region.discard(region.address() + kMiB, 4 * kMiB));
  const std::uint64_t after = space_of_home();
  if (after == before) GTEST_SKIP() << "the file system gives no space back";
  EXPECT_LE(after + 4 * kMiB, before + 64 * kKiB);
  // Before a checkpoint writes them home, and by a checkpoint that replays an older discard, too.
  for (std::uint64_t page = 0; page < 256; ++page) put(region, 2 * kMiB + page * kPageBytes, page + 1);
  ASSERT_OK(persist(region));
  EXPECT_GE(space_of_home(), after + kMiB);
  ASSERT_OK(world_.store().checkpoint());
  EXPECT_GE(space_of_home(), after + kMiB);
  EXPECT_EQ(get(region, 2 * kMiB + 9 * kPageBytes), 10u);
}

TEST_P(Discard, RefusesWhatItCannotDo) {
  Region& region = filled();
  EXPECT_EQ(region.discard(region.address() + 8, kPageBytes).category, Errc::invalid);
  EXPECT_EQ(region.discard(region.address(), 8).category, Errc::invalid);
  EXPECT_EQ(region.discard(region.address(), 2 * kSize).category, Errc::invalid);
  EXPECT_OK(region.discard(region.address(), 0));
  expect_zeros(region, 0, 0);
}

TEST(DiscardBesideTransactions, WaitsForNone) {
  RegionWorld world(TrackerKind::touched);
  Region& region = world.open("a", kSize);
  {
    Transaction transaction(world.store());
    ASSERT_OK(transaction.touch_before(region, region.address() + 5 * kPageBytes, 8));
    EXPECT_EQ(region.discard(region.address(), kPageBytes).category, Errc::busy);
    std::memset(region.address() + 5 * kPageBytes, 1, 8);
    ASSERT_OK(transaction.capture(true).status());
    transaction.forget();
  }
  ASSERT_OK(region.discard(region.address() + 5 * kPageBytes, kPageBytes));
  EXPECT_EQ(get(region, 5 * kPageBytes), 0u);
}

}  // namespace
}  // namespace memlith::test::discard_test
