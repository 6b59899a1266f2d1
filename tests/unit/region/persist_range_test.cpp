// docs/guarantees.md, "memlith_persist_range": of a region, only the stores to a range become durable, and no other
// store is forgotten.
#include <gtest/gtest.h>

#include <thread>

#include "base/host.hpp"
#include "region/region.hpp"
#include "support/expect.hpp"
#include "support/region_words.hpp"

namespace memlith::test::persist_range_test {
namespace {

using namespace core;

// Trackers that find pages tell threads, and the parts of a region, apart by the kernel's pages.
std::uint64_t region_bytes() { return 64 * host_page_bytes(); }

class PersistRange : public ::testing::TestWithParam<TrackerKind> {
 protected:
  static Status persist_range(Region& region, std::uint64_t offset, std::uint64_t bytes, Scope scope = Scope::process) {
    return region.persist_range(region.address() + offset, bytes, scope);
  }
  // The word at `offset` after a crash now.
  std::uint64_t after_crash(std::uint64_t offset) {
    world_.crash();
    return get(world_.open("a"), offset);
  }
  RegionWorld world_{GetParam(), tiny_options()};
};
std::vector<TrackerKind> trackers() {
  std::vector<TrackerKind> kinds{TrackerKind::touched, TrackerKind::fault};
  if (probe_scan().ok()) kinds.push_back(TrackerKind::scan);
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(With, PersistRange, ::testing::ValuesIn(trackers()), [](const auto& given) {
  return given.param == TrackerKind::touched ? "Explicit" : given.param == TrackerKind::fault ? "Fault" : "Scan";
});

TEST_P(PersistRange, TakesTheRangeAndLeavesTheRest) {
  for (const bool rest_persisted : {false, true}) {
    {
      Region& region = world_.open("a", region_bytes());
      for (std::uint64_t page = 0; page < 8; ++page)
        put(region, page * host_page_bytes(), page + (rest_persisted ? 20 : 10));
      ASSERT_OK(persist_range(region, 2 * host_page_bytes(), 3 * host_page_bytes()));
      if (rest_persisted) {
        ASSERT_OK(persist(region));
      }
    }
    world_.crash();
    Region& again = world_.open("a");
    for (std::uint64_t page = 0; page < 8; ++page) {
      const bool taken = rest_persisted || (page >= 2 && page < 5);
      EXPECT_EQ(get(again, page * host_page_bytes()), taken ? page + (rest_persisted ? 20 : 10) : 0) << page;
    }
    world_.close("a");
  }
}

// The part that was taken changes again before the rest is persisted, and a rollback undoes what no persist took.
TEST_P(PersistRange, TheRestCanBeChangedPersistedAndRolledBack) {
  Region& region = world_.open("a", region_bytes());
  Region* const one = &region;
  put(region, 0, 1);
  put(region, host_page_bytes(), 2);
  put(region, 2 * host_page_bytes(), 3);
  ASSERT_OK(persist_range(region, host_page_bytes(), 8));
  put(region, host_page_bytes(), 4);
  put(region, 2 * host_page_bytes(), 5);
  ASSERT_OK(Region::rollback({&one, 1}, Scope::process));
  EXPECT_EQ(get(region, 0), 0u);
  EXPECT_EQ(get(region, host_page_bytes()), 2u);
  EXPECT_EQ(get(region, 2 * host_page_bytes()), 0u);
  put(region, 0, 6);
  put(region, host_page_bytes(), 7);
  ASSERT_OK(persist_range(region, 0, 8));
  ASSERT_OK(persist(region));
  EXPECT_EQ(after_crash(host_page_bytes()), 7u);
  EXPECT_EQ(get(world_["a"], 0), 6u);
}

// A range that does not fit the log as a whole is persisted part by part.
TEST_P(PersistRange, SplitsWhatDoesNotFit) {
  Region& region = world_.open("a", 256 * kPageBytes);
  for (std::uint64_t at = 0; at < region.size(); at += 8) {
    const std::uint64_t value = at * 31 + 7;
    std::memcpy(region.address() + at, &value, sizeof value);
  }
  ASSERT_OK(region.touch(region.address(), region.size()));
  EXPECT_EQ(persist(region).category, Errc::full);
  for (std::uint64_t at = 0; at < region.size(); at += 16 * kPageBytes) {
    ASSERT_OK(persist_range(region, at, 16 * kPageBytes));
  }
  ASSERT_OK(persist(region));  // nothing is due any more
  world_.crash();
  Region& again = world_.open("a");
  for (std::uint64_t at = 0; at < again.size(); at += 8) ASSERT_EQ(get(again, at), at * 31 + 7);
}

TEST_P(PersistRange, IsRefused) {
  Region& region = world_.open("a", region_bytes());
  put(region, 0, 1);
  EXPECT_EQ(persist_range(region, region_bytes() - 4, 8).category, Errc::invalid);
  EXPECT_OK(persist_range(region, region_bytes(), 0));
  EXPECT_EQ(persist_range(region, 0, 8, Scope::thread).category,
            GetParam() == TrackerKind::scan ? Errc::unsupported : Errc::ok);
}

// Thread scope takes the caller's stores only, if two threads stored to the range.
TEST_P(PersistRange, OfOneThread) {
  if (GetParam() == TrackerKind::scan) GTEST_SKIP() << "scan does not tell threads apart";
  Region& region = world_.open("a", region_bytes());
  std::thread([&region] { put(region, 0, 1); }).join();
  put(region, host_page_bytes(), 2);
  put(region, 9 * host_page_bytes(), 3);
  ASSERT_OK(persist_range(region, 0, 4 * host_page_bytes(), Scope::thread));
  EXPECT_EQ(after_crash(host_page_bytes()), 2u);
  EXPECT_EQ(get(world_["a"], 0), 0u);
  EXPECT_EQ(get(world_["a"], 9 * host_page_bytes()), 0u);
}

}  // namespace
}  // namespace memlith::test::persist_range_test
