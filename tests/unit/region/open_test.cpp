// docs/guarantees.md, "memlith_region_open": opening a region disturbs no commit of another region, and shows what was
// persisted.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

#include "sim/sim.hpp"
#include "support/region_words.hpp"
#include "support/sanitizers.hpp"

namespace memlith::test::open_test {
namespace {

using namespace core;

constexpr std::uint64_t kSize = 64 * kKiB;

class OpeningARegion : public ::testing::Test {
 protected:
  [[nodiscard]] std::uint64_t checkpoints() { return world_.store().counters().checkpoints.load(); }

  RegionWorld world_{TrackerKind::touched, tiny_options()};
};

// A new region, a region without commits since the store was opened, and one whose commits are home: none needs a
// checkpoint, whatever the log has of other regions.
TEST_F(OpeningARegion, MakesNoCheckpointForOtherRegions) {
  put(world_.open("old", kSize), 8, 5);
  ASSERT_OK(persist(world_["old"]));
  world_.crash();
  put(world_.open("busy", kSize), 8, 1);
  ASSERT_OK(persist(world_["busy"]));
  const std::uint64_t before = checkpoints();
  world_.open("new", kSize);
  EXPECT_EQ(get(world_.open("old"), 8), 5u);
  world_.close("new");
  world_.open("new");
  EXPECT_EQ(checkpoints(), before);

  put(world_["old"], 16, 6);
  ASSERT_OK(persist(world_["old"]));
  world_.close("old");
  ASSERT_OK(world_.store().checkpoint());
  put(world_["busy"], 8, 2);
  ASSERT_OK(persist(world_["busy"]));
  EXPECT_EQ(get(world_.open("old"), 16), 6u);
  EXPECT_EQ(checkpoints(), before + 1) << "the one that was asked for";
}

// A region whose newest bytes are in the log only, or not even flushed, is opened with them.
TEST_F(OpeningARegion, ShowsWhatIsInTheLogOnly) {
  put(world_.open("a", kSize), 8, 1);
  ASSERT_OK(persist(world_["a"]));
  world_.close("a");
  EXPECT_EQ(get(world_.open("a"), 8), 1u);
  put(world_["a"], 8, 2);
  Region* const one = &world_["a"];
  ASSERT_OK(Region::capture({&one, 1}, Scope::process, false));
  world_.close("a");
  EXPECT_EQ(get(world_.open("a"), 8), 2u);
  ASSERT_OK(world_["a"].grow(2 * kSize));
  put(world_["a"], kSize + 8, 3);
  ASSERT_OK(persist(world_["a"]));
  world_.close("a");
  EXPECT_EQ(get(world_.open("a"), kSize + 8), 3u);
  EXPECT_EQ(world_["a"].size(), 2 * kSize);
}

// More regions than the handler's table began with: stores to each of them are served, and persisted.
TEST(OpeningRegions, TrackedByFaultsHasNoLimit) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer counts no more than 64 locks of a thread";
  constexpr std::uint64_t kRegions = 600;
  rlimit descriptors{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &descriptors), 0);
  if (descriptors.rlim_max < 4096) GTEST_SKIP() << "at most " << descriptors.rlim_max << " descriptors";
  descriptors.rlim_cur = std::max<rlim_t>(descriptors.rlim_cur, 4096);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &descriptors), 0);
  SimVolume volume;
  StoreOptions options = tiny_options();
  options.create = true;
  const std::unique_ptr<Store> store = must(Store::open(volume, options));
  std::vector<std::unique_ptr<Region>> regions;
  for (std::uint64_t i = 0; i < kRegions; ++i) {
    RegionOptions wanted;
    wanted.create = true;
    wanted.tracker = TrackerKind::fault;
    wanted.size_bytes = kPageBytes;
    wanted.reserve_bytes = kPageBytes;
    regions.push_back(must(Region::open(*store, "r" + std::to_string(i), wanted)));
  }
  for (std::uint64_t i = 0; i < kRegions; ++i) put(*regions[i], 8, i + 1);
  std::vector<Region*> all;
  for (const auto& region : regions) all.push_back(region.get());
  ASSERT_OK(Region::persist(all));
  for (std::uint64_t i = 0; i < kRegions; ++i) put(*regions[i], 16, i + 1);
  ASSERT_OK(Region::rollback(all, Scope::process));
  regions.clear();
  for (std::uint64_t i = 0; i < kRegions; ++i) {
    RegionOptions wanted;
    wanted.tracker = TrackerKind::fault;
    const auto region = must(Region::open(*store, "r" + std::to_string(i), wanted));
    EXPECT_EQ(get(*region, 8), i + 1);
    EXPECT_EQ(get(*region, 16), 0u);
  }
}

}  // namespace
}  // namespace memlith::test::open_test
