// docs/guarantees.md, "memory": once warm, memlith_persist allocates nothing, for one region or several; where memory runs out,
// that is an error, and no store is forgotten.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

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

// Scattered pages, some of them captured before, so that they have twins; everything that a capture keeps has to grow.
class OutOfMemory : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  static constexpr std::uint64_t kPages = 200;
  static constexpr std::uint64_t kFewPages = 20;
  static constexpr std::uint64_t kStride = 3 * 4096;

  void SetUp() override {
    if (!kCountsAllocations) GTEST_SKIP() << "allocations cannot be counted under ThreadSanitizer";
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_OPEN_CREATE;
    options.manual_checkpoint = 1;
    ASSERT_EQ(memlith_store_open((folder_ / "store").c_str(), &options, &store_), 0);
  }
  void TearDown() override { EXPECT_EQ(memlith_store_close(store_), 0); }

  memlith_region* open(const std::string& name) {
    memlith_region_options wanted{};
    wanted.struct_size = sizeof wanted;
    wanted.flags = MEMLITH_REGION_CREATE;
    wanted.size = kPages * kStride;
    wanted.tracker = GetParam();
    memlith_region* region = nullptr;
    EXPECT_EQ(memlith_region_open(store_, name.c_str(), &wanted, &region), 0);
    return region;
  }
  static void store_to(memlith_region* region, int value, std::uint64_t pages) {
    auto* const memory = static_cast<char*>(memlith_region_address(region)) + 100;
    for (std::uint64_t page = 0; page < pages; ++page) {
      std::memset(memory + page * kStride, value, 8);
      EXPECT_EQ(memlith_touch(region, memory + page * kStride, 8), 0);
    }
  }
  static std::uint64_t count_other_than(memlith_region* region, char value, std::uint64_t pages) {
    const auto* const memory = static_cast<const char*>(memlith_region_address(region)) + 103;
    std::uint64_t count = 0;
    for (std::uint64_t page = 0; page < pages; ++page) count += memory[page * kStride] != value ? 1 : 0;
    return count;
  }
  // The outcome of a call whose n-th allocation fails; false when it did not come to that.
  template <class Call>
  static bool failing_in(std::uint64_t n, const Call& call) {
    fails_in = n;
    const std::int32_t code = call();
    const bool failed = fails_in == 0;
    fails_in = 0;
    EXPECT_EQ(memlith_category(code), failed ? MEMLITH_NO_MEMORY : 0) << "allocation " << n;
    return failed;
  }

  TempFolder folder_;
  memlith_store* store_ = nullptr;
};

// Each allocation of a persist fails in turn. The next persist has all that was stored.
TEST_P(OutOfMemory, NoStoreIsForgotten) {
  std::uint64_t n = 0;
  for (bool failed = true; failed && !HasFailure();) {
    ++n;
    const std::string name = std::to_string(n);
    // A thread of its own has kept nothing of earlier captures.
    std::thread([&] {
      memlith_region* region = open(name);
      store_to(region, 1, kFewPages);
      EXPECT_EQ(memlith_persist(&region, 1, MEMLITH_SCOPE_USUAL), 0);
      store_to(region, 2, kPages);
      failed = failing_in(n, [&] { return memlith_persist(&region, 1, MEMLITH_SCOPE_USUAL); });
      EXPECT_EQ(memlith_persist(&region, 1, MEMLITH_SCOPE_USUAL), 0);
      EXPECT_EQ(memlith_region_close(region), 0);
    }).join();
    memlith_region* const region = open(name);
    EXPECT_EQ(count_other_than(region, 2, kPages), 0u) << "allocation " << n;
    EXPECT_EQ(memlith_region_close(region), 0);
    EXPECT_EQ(memlith_region_remove(store_, name.c_str()), 0);
  }
  EXPECT_GT(n, 1u) << "a persist allocates nothing at all";
}

// The same for a rollback: tried once more, it puts everything back.
TEST_P(OutOfMemory, ARollbackCanBeTriedAgain) {
  for (std::uint64_t n = 1, failed = 1; failed != 0 && !HasFailure(); ++n) {
    const std::string name = std::to_string(n);
    std::thread([&] {
      memlith_region* region = open(name);
      store_to(region, 1, kFewPages);
      EXPECT_EQ(memlith_persist(&region, 1, MEMLITH_SCOPE_USUAL), 0);
      store_to(region, 2, kFewPages);
      failed = failing_in(n, [&] { return memlith_rollback(&region, 1, MEMLITH_SCOPE_USUAL); }) ? 1 : 0;
      EXPECT_EQ(memlith_rollback(&region, 1, MEMLITH_SCOPE_USUAL), 0);
      EXPECT_EQ(count_other_than(region, 1, kFewPages), 0u) << "allocation " << n;
      EXPECT_EQ(memlith_persist(&region, 1, MEMLITH_SCOPE_USUAL), 0);
      EXPECT_EQ(memlith_region_close(region), 0);
    }).join();
    memlith_region* const region = open(name);
    EXPECT_EQ(count_other_than(region, 1, kFewPages), 0u) << "allocation " << n;
    EXPECT_EQ(memlith_region_close(region), 0);
    EXPECT_EQ(memlith_region_remove(store_, name.c_str()), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Trackers, OutOfMemory,
                         ::testing::Values(MEMLITH_TRACKER_SCAN, MEMLITH_TRACKER_FAULT, MEMLITH_TRACKER_EXPLICIT),
                         [](const auto& each) {
                           return each.param == MEMLITH_TRACKER_SCAN    ? "scan"
                                  : each.param == MEMLITH_TRACKER_FAULT ? "fault"
                                                                        : "touched";
                         });

}  // namespace
}  // namespace memlith::test
