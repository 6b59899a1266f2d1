// docs/guarantees.md, "Memory": once warm, memlith_persist allocates nothing, for one region or several; where memory
// runs out, that is an error, and no store is forgotten.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "memlith/memlith.hpp"
#include "support/count_allocations.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::allocation_test {
namespace {

memlith_store_options store_options() {
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;
  options.manual_checkpoint = 1;
  return options;
}
memlith_region_options region_options(std::uint64_t bytes) {
  memlith_region_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_CREATE;
  options.size = bytes;
  return options;
}

// One region, two, and all of the store, after a first round of each.
TEST(CInterfaceAllocation, WarmPersistAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "allocations cannot be counted under ThreadSanitizer";
  const TempFolder folder;
  const memlith_store_options options = store_options();
  memlith_store* store = nullptr;
  ASSERT_EQ(memlith_store_open((folder / "store").c_str(), &options, &store), 0);
  memlith_region* regions[2] = {};
  const memlith_region_options wanted = region_options(1 << 16);
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
  EXPECT_EQ(allocated_by([&] { memlith_persist(regions, 1, MEMLITH_SCOPE_PROCESS); }), 0u) << "one region";
  EXPECT_EQ(allocated_by([&] { memlith_persist(regions, 2, MEMLITH_SCOPE_PROCESS); }), 0u) << "two regions";
  EXPECT_EQ(allocated_by([&] { memlith_persist_all(store, MEMLITH_SCOPE_PROCESS); }), 0u) << "all regions";
  EXPECT_GT(allocations, 0u) << "the counter does not count";
  EXPECT_EQ(memlith_store_close(store), 0);
}

// A call whose n-th allocation fails, and with `keeps` all that follow; false when it did not come to that.
template <class Call>
bool failing_in(std::uint64_t n, bool keeps, const Call& call) {
  const std::uint64_t before = failures;
  keeps_failing = keeps;
  fails_in = n;
  const std::int32_t code = call();
  fails_in = 0;
  keeps_failing = false;
  EXPECT_EQ(memlith_category(code), failures != before ? MEMLITH_NO_MEMORY : 0) << "allocation " << n;
  return failures != before;
}

// Scattered pages, some of them captured before, so that they have twins; everything that a capture keeps has to grow.
class OutOfMemory : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  static constexpr std::uint64_t kPages = 200;
  static constexpr std::uint64_t kFewPages = 20;
  static constexpr std::uint64_t kStride = 3 * 4096;

  void SetUp() override {
    if (!kCountsAllocations) GTEST_SKIP() << "allocations cannot be counted under ThreadSanitizer";
    const memlith_store_options options = store_options();
    ASSERT_EQ(memlith_store_open((folder_ / "store").c_str(), &options, &store_), 0);
  }
  void TearDown() override { EXPECT_EQ(memlith_store_close(store_), 0); }

  memlith_region* open(const std::string& name) {
    memlith_region_options wanted = region_options(kPages * kStride);
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
  // Lets each allocation of the call fail in turn, by itself and with all behind it: with 1 in a few pages, persisted,
  // and 2 in `pages`, not persisted. Then `after`, a persist, and `expected` is in those pages, now and later. How
  // often that was.
  template <class Call, class After>
  std::uint64_t each_in_turn(std::uint64_t pages, char expected, const Call& call, const After& after) {
    std::uint64_t count = 0;
    for (const bool keeps : {false, true}) {
      bool failed = true;
      for (std::uint64_t n = 1; failed && !HasFailure(); ++n) {
        const std::string name = std::to_string(++count);
        // A thread of its own has kept nothing of earlier captures.
        std::thread([&] {
          memlith_region* region = open(name);
          store_to(region, 1, kFewPages);
          EXPECT_EQ(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS), 0);
          store_to(region, 2, pages);
          failed = failing_in(n, keeps, [&] { return call(region); });
          after(region);
          EXPECT_EQ(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS), 0);
          EXPECT_EQ(count_other_than(region, expected, pages), 0u) << "allocation " << n;
          EXPECT_EQ(memlith_region_close(region), 0);
        }).join();
        memlith_region* const region = open(name);
        EXPECT_EQ(count_other_than(region, expected, pages), 0u) << "allocation " << n;
        EXPECT_EQ(memlith_region_close(region), 0);
        EXPECT_EQ(memlith_region_remove(store_, name.c_str()), 0);
      }
    }
    return count;
  }

  TempFolder folder_;
  memlith_store* store_ = nullptr;
};

// Each allocation of a persist fails in turn. The next persist has all that was stored.
TEST_P(OutOfMemory, NoStoreIsForgotten) {
  EXPECT_GT(each_in_turn(
                kPages, 2, [](memlith_region* region) { return memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS); },
                [](memlith_region*) {}),
            2u);
}

// The same for a rollback: tried once more, it puts everything back.
TEST_P(OutOfMemory, ARollbackCanBeTriedAgain) {
  const auto roll_back = [](memlith_region* region) { return memlith_rollback(&region, 1, MEMLITH_SCOPE_PROCESS); };
  each_in_turn(kFewPages, 1, roll_back, [&](memlith_region* region) { EXPECT_EQ(roll_back(region), 0); });
}

// The same for a release, during which no thread can store: afterwards every thread can.
TEST_P(OutOfMemory, StoresGoOnAfterARelease) {
  each_in_turn(
      kFewPages, 3, [](memlith_region* region) { return memlith_region_release(region); },
      [](memlith_region* region) { store_to(region, 3, kFewPages); });
}

INSTANTIATE_TEST_SUITE_P(Trackers, OutOfMemory,
                         ::testing::Values(MEMLITH_TRACKER_SCAN, MEMLITH_TRACKER_FAULT, MEMLITH_TRACKER_EXPLICIT),
                         [](const auto& each) {
                           return each.param == MEMLITH_TRACKER_SCAN    ? "scan"
                                  : each.param == MEMLITH_TRACKER_FAULT ? "fault"
                                                                        : "touched";
                         });

// An asynchronous persist without memory captured nothing, or it captured and says so: there may be none for the thread
// that flushes.
TEST(OutOfMemoryStore, AnAsynchronousPersistIsCapturedOrNot) {
  if (!kCountsAllocations) GTEST_SKIP() << "allocations cannot be counted under ThreadSanitizer";
  const TempFolder folder;
  const memlith_store_options options = store_options();
  const memlith_region_options wanted = region_options(1 << 16);
  for (const bool keeps : {false, true}) {
    bool failed = true;
    for (std::uint64_t n = 1; failed && !::testing::Test::HasFailure(); ++n) {
      memlith_store* store = nullptr;
      memlith_region* region = nullptr;
      ASSERT_EQ(memlith_store_open((folder / "store").c_str(), &options, &store), 0);
      ASSERT_EQ(memlith_region_open(store, "a", &wanted, &region), 0);
      auto* const memory = static_cast<unsigned char*>(memlith_region_address(region));
      const unsigned char before = memory[0];
      ++memory[0];
      std::uint64_t ticket = 0;
      const std::uint64_t failures_before = failures;
      keeps_failing = keeps;
      fails_in = n;
      const std::int32_t code = memlith_persist_async(&region, 1, MEMLITH_SCOPE_PROCESS, &ticket);
      fails_in = 0;
      keeps_failing = false;
      failed = failures != failures_before;
      ASSERT_EQ(memlith_rollback(&region, 1, MEMLITH_SCOPE_PROCESS), 0);
      EXPECT_EQ(memory[0], before + (code == 0 ? 1 : 0)) << "allocation " << n << ", code " << code;
      EXPECT_EQ(ticket != 0, code == 0) << "allocation " << n;
      EXPECT_EQ(memlith_store_close(store), 0);
    }
  }
}

// A region is made or it is not, wherever memory runs out in making it; the store can be opened again, and the region,
// too.
TEST(OutOfMemoryStore, ARegionIsMadeOrNot) {
  if (!kCountsAllocations) GTEST_SKIP() << "allocations cannot be counted under ThreadSanitizer";
  const TempFolder folder;
  const memlith_store_options options = store_options();
  const memlith_region_options wanted = region_options(1 << 16);
  const char* const name = "a region whose name is too long to need no memory";
  for (const bool keeps : {false, true}) {
    bool failed = true;
    for (std::uint64_t n = 1; failed && !::testing::Test::HasFailure(); ++n) {
      memlith_store* store = nullptr;
      memlith_region* first = nullptr;
      memlith_region* second = nullptr;
      ASSERT_EQ(memlith_store_open((folder / "store").c_str(), &options, &store), 0) << "allocation " << n;
      ASSERT_EQ(memlith_region_open(store, "first", &wanted, &first), 0);
      failed = failing_in(n, keeps, [&] { return memlith_region_open(store, name, &wanted, &second); });
      EXPECT_EQ(memlith_region_close(first), 0);
      EXPECT_EQ(memlith_region_remove(store, "first"), 0);
      if (failed) {
        EXPECT_EQ(memlith_region_open(store, name, &wanted, &second), 0) << "allocation " << n;
      }
      EXPECT_EQ(memlith_region_close(second), 0);
      EXPECT_EQ(memlith_store_close(store), 0);
      ASSERT_EQ(memlith_store_open((folder / "store").c_str(), &options, &store), 0) << "allocation " << n;
      EXPECT_EQ(memlith_region_remove(store, name), 0);
      EXPECT_EQ(memlith_store_close(store), 0);
    }
  }
}

// A log that lacks memory to count more slots says that nothing was written, and is as long as before.
TEST(OutOfMemoryStore, ALogGrowsOrNot) {
  if (!kCountsAllocations) GTEST_SKIP() << "allocations cannot be counted under ThreadSanitizer";
  const memlith_store_options options = store_options();
  const memlith_region_options wanted = region_options(8 << 20);
  bool told = false;
  bool failed = true;
  for (std::uint64_t n = 1; failed && !::testing::Test::HasFailure(); ++n) {
    const TempFolder folder;
    memlith_store* store = nullptr;
    memlith_region* region = nullptr;
    ASSERT_EQ(memlith_store_open((folder / "store").c_str(), &options, &store), 0);
    ASSERT_EQ(memlith_region_open(store, "large", &wanted, &region), 0);
    std::memset(memlith_region_address(region), 1, 4 << 20);  // more than the log holds
    const auto log_bytes = [&] { return std::filesystem::file_size(folder / "store/log"); };
    const auto before = log_bytes();
    failed = failing_in(n, false, [&] { return memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS); });
    char sentence[512] = "";
    memlith_last_error(sentence, sizeof sentence);
    if (failed && std::string(sentence).find("out of memory for a log of") != std::string::npos) {
      told = true;
      EXPECT_EQ(log_bytes(), before) << "allocation " << n;
    }
    EXPECT_EQ(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS), 0) << "allocation " << n;
    EXPECT_EQ(memlith_region_close(region), 0);
    EXPECT_EQ(memlith_store_close(store), 0);
  }
  EXPECT_TRUE(told) << "no allocation of the log's failed";
}

}  // namespace
}  // namespace memlith::test::allocation_test
