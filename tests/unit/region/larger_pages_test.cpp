// docs/guarantees.md, "Larger pages": what differs where the kernel's pages are larger than those of a store. All other
// tests of the region hold there as well (tests/lib/support/host_pages.cpp).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "base/host.hpp"
#include "support/expect.hpp"
#include "support/region_words.hpp"

namespace memlith::test::larger_pages_test {
namespace {

using namespace core;

class LargerPages : public ::testing::TestWithParam<TrackerKind> {
 protected:
  RegionWorld world_{GetParam(), tiny_options()};
};
INSTANTIATE_TEST_SUITE_P(By, LargerPages,
                         ::testing::Values(TrackerKind::scan, TrackerKind::fault, TrackerKind::touched,
                                           TrackerKind::instrumented),
                         [](const auto& given) { return name_of_tracker(given.param); });

// A page that goes back to zeros, or to what was committed, takes none of its neighbours with it.
TEST_P(LargerPages, NeighboursOfADiscardedPageKeepTheirStores) {
  Region& region = world_.open("a", 16 * kPageBytes);
  for (std::uint64_t page = 0; page < 16; ++page) put(region, page * kPageBytes, page + 1);
  ASSERT_OK(persist(region));
  for (std::uint64_t page = 0; page < 16; ++page) put(region, page * kPageBytes + 8, page + 100);
  ASSERT_OK(region.discard(region.address() + 5 * kPageBytes, 2 * kPageBytes));
  const auto expect_pages = [](Region& found) {
    for (std::uint64_t page = 0; page < 16; ++page) {
      const bool gone = page == 5 || page == 6;
      EXPECT_EQ(get(found, page * kPageBytes), gone ? 0 : page + 1) << page;
      EXPECT_EQ(get(found, page * kPageBytes + 8), gone ? 0 : page + 100) << page;
    }
  };
  expect_pages(region);
  put(region, 5 * kPageBytes + 16, 7);
  ASSERT_OK(persist(region));
  world_.crash();
  Region& again = world_.open("a");
  expect_pages(again);
  EXPECT_EQ(get(again, 5 * kPageBytes + 16), 7u);
  put(again, 4 * kPageBytes, 9);
  put(again, 6 * kPageBytes, 9);
  Region* const one = &again;
  ASSERT_OK(Region::rollback({&one, 1}, Scope::process));
  expect_pages(again);
  EXPECT_EQ(must(again.unpersisted()), 0u);
}

TEST_P(LargerPages, WhatIsStoredBehindTheEndIsGoneWhenTheRegionGrows) {
  if (host_page_bytes() == kPageBytes) GTEST_SKIP() << "no page of the kernel's reaches behind the end";
  Region& region = world_.open("a", kPageBytes);
  put(region, 0, 1);
  std::memset(region.address() + kPageBytes, 7, 16);
  ASSERT_OK(persist(region));
  ASSERT_OK(region.grow(3 * kPageBytes));
  EXPECT_EQ(get(region, kPageBytes), 0u);
  put(region, 2 * kPageBytes, 2);
  ASSERT_OK(persist(region));
  ASSERT_OK(region.grow(40 * kPageBytes));
  put(region, 39 * kPageBytes, 3);
  ASSERT_OK(persist(region));
  world_.crash();
  Region& again = world_.open("a");
  EXPECT_EQ(get(again, 0), 1u);
  EXPECT_EQ(get(again, kPageBytes), 0u);
  EXPECT_EQ(get(again, 2 * kPageBytes), 2u);
  EXPECT_EQ(get(again, 39 * kPageBytes), 3u);
}

TEST_P(LargerPages, ARegionThatLiesBetweenThemIsRefused) {
  if (host_page_bytes() == kPageBytes) GTEST_SKIP() << "no region lies between pages";
  constexpr std::uint64_t kAddress = 0x460000000000 + kPageBytes;
  must(world_.store().create("made elsewhere", kPageBytes, kAddress, kMiB));
  EXPECT_ERROR(Errc::unsupported, world_.try_open("made elsewhere"));
  EXPECT_NE(last_error_text().find("no multiple of this kernel's pages"), std::string_view::npos) << last_error_text();
  EXPECT_ERROR(Errc::invalid, world_.try_open("made here", kPageBytes, kMiB, kAddress));
}

}  // namespace
}  // namespace memlith::test::larger_pages_test
