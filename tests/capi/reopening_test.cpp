// What a program is told, or may do, when it opens a region again: its limit, its place in a reader, its changes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "memlith/heap.hpp"
#include "memlith/memlith.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

memlith_region* opened(memlith_store* store, std::uint32_t flags, std::int32_t* code, std::uint64_t max_size = 0) {
  memlith_region_options options{};
  options.struct_size = sizeof options;
  options.flags = flags;
  options.size = kMiB;
  options.max_size = max_size;
  memlith_region* region = nullptr;
  *code = memlith_region_open(store, "r", &options, &region);
  return region;
}

std::string last_error() {
  char text[512];
  memlith_last_error(text, sizeof text);
  return text;
}

TEST(Reopening, ALargerLimitThanTheFirstIsRefused) {
  const TempFolder folder;
  for (const std::uint64_t max_size : {4 * kMiB, 8 * kMiB, 4 * kMiB, std::uint64_t{0}}) {
    auto store = Store::open(folder / "s", {.create = true});
    ASSERT_TRUE(store);
    std::int32_t code = 0;
    opened(store->handle(), MEMLITH_REGION_CREATE, &code, max_size);
    EXPECT_EQ(memlith_category(code), max_size == 8 * kMiB ? MEMLITH_INVALID : MEMLITH_OK);
    if (code != MEMLITH_OK) {
      EXPECT_NE(last_error().find("was made with a max_size of 4194304 bytes"), std::string::npos) << last_error();
    }
  }
  for (const std::uint64_t max_size : {16 * kMiB, 32 * kMiB}) {  // a heap of one file likewise
    const auto heap = Heap::open_file(folder / "h", {.create = true, .max_size = max_size});
    EXPECT_EQ(heap.ok(), max_size == 16 * kMiB);
  }
}

TEST(Reopening, AReaderMayHaveARegionAnywhere) {
  const TempFolder folder;
  std::int32_t code = 0;
  {
    auto store = Store::open(folder / "s", {.create = true});
    ASSERT_TRUE(store);
    memlith_region* const region = opened(store->handle(), MEMLITH_REGION_CREATE | MEMLITH_REGION_ANYWHERE, &code);
    EXPECT_EQ(memlith_category(code), MEMLITH_INVALID) << "a region that is written has addresses of its own";
    EXPECT_EQ(region, nullptr);
    memlith_region* const made = opened(store->handle(), MEMLITH_REGION_CREATE, &code);
    ASSERT_EQ(code, MEMLITH_OK);
    std::strcpy(static_cast<char*>(memlith_region_address(made)), "kept");
    ASSERT_EQ(memlith_persist(&made, 1, MEMLITH_SCOPE_PROCESS), MEMLITH_OK);

    // A forked child has the parent's region at these addresses, and reads what its parent has persisted.
    const pid_t child = ::fork();
    if (child == 0) {
      memlith_store_options options{};
      options.struct_size = sizeof options;
      options.flags = MEMLITH_OPEN_FOLLOW;
      memlith_store* reader = nullptr;
      if (memlith_store_open((folder / "s").c_str(), &options, &reader) != MEMLITH_OK) ::_exit(1);
      opened(reader, 0, &code);
      if (memlith_category(code) != MEMLITH_ADDRESS_TAKEN) ::_exit(2);
      memlith_region* const seen = opened(reader, MEMLITH_REGION_ANYWHERE, &code);
      if (code != MEMLITH_OK) ::_exit(3);
      if (memlith_region_address(seen) == memlith_region_address(made)) ::_exit(4);
      ::_exit(std::strcmp(static_cast<char*>(memlith_region_address(seen)), "kept") == 0 ? 0 : 5);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "exit code " << WEXITSTATUS(status);
  }
  auto one = Store::open(folder / "s", {.read_only = true});
  auto two = Store::open(folder / "s", {.read_only = true});
  ASSERT_TRUE(one);
  ASSERT_TRUE(two);
  memlith_region* const first = opened(one->handle(), 0, &code);
  ASSERT_EQ(code, MEMLITH_OK);
  memlith_region* const second = opened(two->handle(), MEMLITH_REGION_ANYWHERE, &code);
  ASSERT_EQ(code, MEMLITH_OK);
  EXPECT_NE(memlith_region_address(first), memlith_region_address(second));
  EXPECT_STREQ(static_cast<char*>(memlith_region_address(second)), "kept");
}

class Unpersisted : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(Unpersisted, CountsWhatAPersistWouldTakeAndTakesNothing) {
  const TempFolder folder;
  auto store = Store::open(folder / "s", {.create = true});
  ASSERT_TRUE(store);
  memlith_region_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_REGION_CREATE;
  options.tracker = GetParam();
  options.size = kMiB;
  memlith_region* region = nullptr;
  ASSERT_EQ(memlith_region_open(store->handle(), "r", &options, &region), MEMLITH_OK);
  const auto unpersisted = [region] {
    std::uint64_t bytes = ~0ull;
    EXPECT_EQ(memlith_region_unpersisted(region, &bytes), MEMLITH_OK);
    return bytes;
  };
  EXPECT_EQ(unpersisted(), 0u);
  char* const bytes = static_cast<char*>(memlith_region_address(region));
  for (int round = 1; round <= 20; ++round) {  // pages that every persist finds changed are left open in the end
    std::memset(bytes + 5000, round, 100);
    if (GetParam() == MEMLITH_TRACKER_EXPLICIT) {
      ASSERT_EQ(memlith_touch(region, bytes + 5000, 100), MEMLITH_OK);
    }
    EXPECT_GE(unpersisted(), 100u);
    EXPECT_GE(unpersisted(), 100u) << "the first look took them";
    ASSERT_EQ(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS), MEMLITH_OK);
    EXPECT_EQ(unpersisted(), 0u);
  }
  std::memset(bytes + 5000, 99, 100);
  if (GetParam() == MEMLITH_TRACKER_EXPLICIT) {
    ASSERT_EQ(memlith_touch(region, bytes + 5000, 100), MEMLITH_OK);
  }
  EXPECT_GE(unpersisted(), 100u);
  ASSERT_EQ(memlith_rollback(&region, 1, MEMLITH_SCOPE_PROCESS), MEMLITH_OK);
  EXPECT_EQ(unpersisted(), 0u);
  EXPECT_EQ(bytes[5000], 20);
}

INSTANTIATE_TEST_SUITE_P(Trackers, Unpersisted,
                         ::testing::Values(MEMLITH_TRACKER_SCAN, MEMLITH_TRACKER_EXPLICIT, MEMLITH_TRACKER_FAULT));

}  // namespace
}  // namespace memlith::test
