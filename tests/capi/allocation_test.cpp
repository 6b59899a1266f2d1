// docs/guarantees.md, "memory": once warm, memlith_persist allocates nothing, for one region or several.
#include <gtest/gtest.h>

#include "memlith/memlith.hpp"
#include "support/count_allocations.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

// One region, two, and all of the store, after a first round of each.
TEST(CInterfaceAllocation, WarmPersistAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "allocations cannot be counted under ThreadSanitizer";
  const TempFolder folder;
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;
  options.manual_checkpoint = 1;
  memlith_store* store = nullptr;
  ASSERT_EQ(memlith_store_open((folder / "store").c_str(), &options, &store), 0);
  memlith_region* regions[2] = {};
  memlith_region_options wanted{};
  wanted.struct_size = sizeof wanted;
  wanted.flags = MEMLITH_REGION_CREATE;
  wanted.size = 1 << 16;
  ASSERT_EQ(memlith_region_open(store, "a", &wanted, &regions[0]), 0);
  ASSERT_EQ(memlith_region_open(store, "b", &wanted, &regions[1]), 0);
  const auto allocated_by = [&](const auto& persist) {
    std::uint64_t before = 0;
    for (int i = 0; i < 13; ++i) {
      if (i == 3) before = allocations;  // warm
      for (memlith_region* region : regions) ++*static_cast<int*>(memlith_region_address(region));
      persist();
    }
    return allocations - before;
  };
  EXPECT_EQ(allocated_by([&] { memlith_persist(regions, 1, MEMLITH_SCOPE_USUAL); }), 0u) << "one region";
  EXPECT_EQ(allocated_by([&] { memlith_persist(regions, 2, MEMLITH_SCOPE_USUAL); }), 0u) << "two regions";
  EXPECT_EQ(allocated_by([&] { memlith_persist_all(store, MEMLITH_SCOPE_USUAL); }), 0u) << "all regions";
  EXPECT_GT(allocations, 0u) << "the counter does not count";
  EXPECT_EQ(memlith_store_close(store), 0);
}

}  // namespace
}  // namespace memlith::test
