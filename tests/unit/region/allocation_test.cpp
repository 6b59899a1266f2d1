// docs/guarantees.md, "memory": once warm, persist allocates nothing, so running out of memory cannot strike in its middle.
#include <gtest/gtest.h>

#include "support/count_allocations.hpp"
#include "support/region_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

class Allocation : public ::testing::TestWithParam<TrackerKind> {};
INSTANTIATE_TEST_SUITE_P(By, Allocation, ::testing::Values(TrackerKind::scan, TrackerKind::fault, TrackerKind::touched),
                         [](const auto& given) { return name_of_tracker(given.param); });

// Small and streamed transactions, of one region and of two, after a first round of each.
TEST_P(Allocation, WarmPersistAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "allocations cannot be counted under ThreadSanitizer";
  StoreOptions options;
  options.manual_checkpoint = true;
  options.log_bytes = 32 * kMiB;
  RegionWorld world(GetParam(), options);
  Region& a = world.open("a", 1 * kMiB);
  Region& b = world.open("b", 1 * kMiB);
  const auto round = [&](std::uint64_t value) {
    for (std::uint64_t offset = 0; offset < kMiB; offset += 8192) put(a, offset, value);  // 512 KiB of pages: streamed
    ASSERT_TRUE(persist(a).ok());
    put(a, 0, value + 1);
    put(b, 0, value + 1);
    ASSERT_TRUE(persist(a, b).ok());
    ASSERT_TRUE(persist(b).ok());  // nothing stored
  };
  for (std::uint64_t i = 0; i < 3; ++i) round(i);
  const std::uint64_t before = allocations;
  for (std::uint64_t i = 3; i < 13; ++i) round(i);
  EXPECT_EQ(allocations, before);
  EXPECT_GT(before, 0u) << "the counter does not count";
}

}  // namespace
}  // namespace memlith::test
