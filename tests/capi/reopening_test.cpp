// Opening a region again: its limit, its place in a reader, its changes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "memlith/heap.hpp"
#include "memlith/memlith.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::reopening_test {
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

std::uint64_t limit_of(memlith_region* region) {
  memlith_region_info info{};
  info.struct_size = sizeof info;
  EXPECT_EQ(memlith_region_get_info(region, &info), MEMLITH_OK);
  return info.max_size;
}

TEST(Reopening, ARegionIsGivenALargerLimit) {
  const TempFolder folder;
  std::uint64_t most = 0;
  const void* address = nullptr;
  for (const std::uint64_t max_size : {4 * kMiB, 8 * kMiB, 4 * kMiB, std::uint64_t{0}, 3 * 1024 * kMiB}) {
    auto store = Store::open(folder / "s", {.create = true});
    ASSERT_TRUE(store);
    std::int32_t code = 0;
    memlith_region* const region = opened(store->handle(), MEMLITH_CREATE, &code, max_size);
    ASSERT_EQ(code, MEMLITH_OK) << last_error();
    most = std::max(most, max_size);
    EXPECT_EQ(limit_of(region), most);
    EXPECT_TRUE(address == nullptr || address == memlith_region_address(region));
    address = memlith_region_address(region);
    if (max_size != 8 * kMiB) continue;
    ASSERT_EQ(memlith_region_grow(region, 8 * kMiB), MEMLITH_OK) << last_error();
    std::strcpy(static_cast<char*>(memlith_region_address(region)) + 7 * kMiB, "kept");
    memlith_region* one = region;
    ASSERT_EQ(memlith_persist(&one, 1, MEMLITH_SCOPE_PROCESS), MEMLITH_OK);
  }
  EXPECT_EQ(most, 3 * 1024 * kMiB);
  auto store = Store::open(folder / "s", {.read_only = true});
  ASSERT_TRUE(store);
  std::int32_t code = 0;
  memlith_region* const region = opened(store->handle(), 0, &code);
  ASSERT_EQ(code, MEMLITH_OK);
  EXPECT_STREQ(static_cast<char*>(memlith_region_address(region)) + 7 * kMiB, "kept");
}

// The sentence says which region lies behind, and how much there is up to it.
TEST(Reopening, ALargerLimitIsRefusedWhereAnotherRegionLies) {
  const TempFolder folder;
  constexpr std::uint64_t kAddress = 0x410000000000;
  {
    auto store = Store::open(folder / "s", {.create = true});
    ASSERT_TRUE(store);
    ASSERT_TRUE(store->region("r", {.create = true, .size = kMiB, .max_size = 4 * kMiB, .address = kAddress}));
    ASSERT_TRUE(store->region("behind", {.create = true, .size = kMiB, .address = kAddress + 64 * kMiB}));
  }
  for (const std::uint64_t max_size : {65 * kMiB, 64 * kMiB}) {
    auto store = Store::open(folder / "s");
    ASSERT_TRUE(store);
    const auto region = store->region("r", {.max_size = max_size});
    EXPECT_EQ(region.ok(), max_size == 64 * kMiB);
    if (region.ok()) continue;
    EXPECT_EQ(memlith_category(region.error().code()), MEMLITH_ADDRESS_TAKEN);
    EXPECT_NE(region.error().message().find("region \"behind\" lies behind it at 0x410004000000: ask for 67108864"),
              std::string::npos)
        << region.error().message();
  }
}

// Heaps in a file and in a store, filled to each limit; the last limit takes a second table of its own.
TEST(Reopening, AHeapIsGivenALargerLimit) {
  const TempFolder folder;
  for (const bool one_file : {true, false}) {
    std::size_t before = 0;
    std::uint64_t limit = 0;
    const void* root_at = nullptr;
    for (const std::uint64_t max_size : {4 * kMiB, 16 * kMiB, std::uint64_t{0}, 300 * 1024 * kMiB, 8 * kMiB}) {
      auto store =
          one_file ? Store::open_file(folder / "h", {.create = true}) : Store::open(folder / "s", {.create = true});
      ASSERT_TRUE(store);
      // An address that memlith chooses may lie too close to the end of the addresses.
      auto heap = Heap::open(*store, one_file ? "file" : "heap",
                             {.create = true, .max_size = max_size, .address = 0x510000000000});
      ASSERT_TRUE(heap) << heap.error().message();
      auto root = heap->root<memlith::list<memlith::string>>();
      ASSERT_TRUE(root) << root.error().message();
      EXPECT_TRUE(root_at == nullptr || root_at == *root);
      root_at = *root;
      EXPECT_EQ((*root)->size(), before);
      limit = std::max(limit, max_size);
      const bool full = (before + 100) * 28 * 4096 > limit;  // a string takes 28 pages
      try {
        for (int i = 0; i < 100; ++i) (*root)->push_back(memlith::string(100'000, static_cast<char>('a' + i % 26)));
        EXPECT_FALSE(full);
      } catch (const std::bad_alloc& error) {
        EXPECT_TRUE(full) << error.what();
        EXPECT_NE(std::string(error.what()).find("open the heap again with a larger max_size"), std::string::npos)
            << error.what();
      }
      EXPECT_GT((*root)->size(), before);
      for (std::size_t i = before; i < (*root)->size(); i += 7) {
        EXPECT_EQ(std::next((*root)->begin(), static_cast<std::ptrdiff_t>(i))->size(), 100'000u);
      }
      before = (*root)->size();
      auto report = heap->verify();
      ASSERT_TRUE(report) << report.error().message();
      EXPECT_EQ(report->blocks, 2 * before + 2) << "strings, nodes, the root and its name";
      ASSERT_TRUE(heap->persist());
    }
    EXPECT_GT(before, 200u);
  }
}

// A region that is too small for the table of its limit grows; a killed program may have left one of zeros.
TEST(Reopening, ANewHeapHasRoomForItsTable) {
  const TempFolder folder;
  auto store = Store::open(folder / "s", {.create = true});
  ASSERT_TRUE(store);
  // An address that memlith chooses may lie too close to the end of the addresses.
  ASSERT_TRUE(store->region("heap", {.create = true, .size = kMiB, .address = 0x510000000000}));
  for (int round = 0; round < 2; ++round) {
    auto heap = Heap::open(*store, "heap", {.create = true, .max_size = 400 * 1024 * kMiB});
    ASSERT_TRUE(heap) << heap.error().message();
    ASSERT_TRUE(heap->verify());
    ASSERT_TRUE(heap->persist());
  }
}

// A limit that has no room for the table that it needs is refused, and the heap is as it was.
TEST(Reopening, TooSmallAStepIsRefused) {
  const TempFolder folder;
  const std::string path = folder / "h";
  constexpr std::uint64_t kFirst = 512 * kMiB;  // its table fills a page
  const auto open = [&](std::uint64_t max_size) {
    return Heap::open_file(path, {.create = true, .size = kFirst, .max_size = max_size});
  };
  {
    const auto heap = open(kFirst);
    ASSERT_TRUE(heap);
    ASSERT_TRUE(heap->persist());
  }
  const auto heap = open(kFirst + 4096);
  ASSERT_FALSE(heap);
  EXPECT_EQ(memlith_category(heap.error().code()), MEMLITH_INVALID);
  EXPECT_NE(heap.error().message().find("ask for 537919488 or more"), std::string::npos) << heap.error().message();
  EXPECT_TRUE(open(0));
  EXPECT_TRUE(open(kFirst + kMiB));
  const auto beyond = open(5 * 1024 * 1024 * kMiB);
  EXPECT_EQ(memlith_category(beyond.error().code()), MEMLITH_INVALID);
  EXPECT_TRUE(open(0));
}

using List = memlith::list<memlith::string>;

// A process that follows the store: opens its heap, and moves on when it is told to. 0: as it should be.
int follow(const std::string& path, int told, int answer) {
  const auto is_told = [told] {
    char word = 0;
    return ::read(told, &word, 1) == 1;
  };
  const auto done = [answer](char word) { return ::write(answer, &word, 1) == 1; };
  if (!is_told()) return 1;
  auto store = Store::open(path, {.follow = true});
  if (!store) return 2;
  {
    const auto heap = Heap::open(*store, "heap", {.max_size = 64 * kMiB});
    if (!heap) return 3;
    List& list = **heap->find<List>("");
    if (list.size() != 3 || !done(1) || !is_told()) return 4;
    // A writer that has no time to tell what is durable may be asked again.
    for (int i = 0; i < 200 && store->refresh() && list.size() != 23; ++i) ::usleep(50'000);
    if (list.size() != 23 || !heap->verify()) return 5;  // the table has moved
    if (!done(2) || !is_told()) return 6;
    auto moved = store->refresh();
    for (int i = 0; i < 200 && moved; ++i) ::usleep(50'000), moved = store->refresh();
    if (moved || memlith_category(moved.error().code()) != MEMLITH_ADDRESS_TAKEN) return 7;
    if (list.size() != 23 || !done(3)) return 8;  // what was shown stays
  }
  const auto heap = Heap::open(*store, "heap");
  if (!heap || (*heap->find<List>(""))->size() != 923 || !heap->verify()) return 9;
  return 0;
}

// A reader moves on to the larger heap, if it has the addresses.
TEST(Reopening, AReaderMovesOnToTheLargerHeap) {
  const TempFolder folder;
  int tell[2];
  int answer[2];
  ASSERT_EQ(::pipe(tell), 0);
  ASSERT_EQ(::pipe(answer), 0);
  const pid_t reader = ::fork();
  if (reader == 0) {
    ::close(tell[1]);
    ::_exit(follow(folder / "s", tell[0], answer[1]));
  }
  ::close(tell[0]);
  ::close(answer[1]);
  const auto add = [&](std::uint64_t max_size, int times) {
    auto store = Store::open(folder / "s", {.create = true});
    ASSERT_TRUE(store);
    const auto heap = Heap::open(*store, "heap", {.create = true, .max_size = max_size});
    ASSERT_TRUE(heap) << heap.error().message();
    List& list = **heap->root<List>();
    for (int i = 0; i < times; ++i) list.push_back(memlith::string(100'000, 'x'));
    ASSERT_TRUE(heap->persist());
    char word = 0;
    ASSERT_EQ(::write(tell[1], &word, 1), 1);
    EXPECT_EQ(::read(answer[0], &word, 1), 1);  // with the store open here
  };
  add(8 * kMiB, 3);
  add(16 * kMiB, 20);
  add(512 * kMiB, 900);
  int status = 0;
  ASSERT_EQ(::waitpid(reader, &status, 0), reader);
  EXPECT_EQ(status, 0) << "exit code " << WEXITSTATUS(status);
  ::close(tell[1]);
  ::close(answer[0]);
}

TEST(Reopening, AReaderMayHaveARegionAnywhere) {
  const TempFolder folder;
  std::int32_t code = 0;
  {
    auto store = Store::open(folder / "s", {.create = true});
    ASSERT_TRUE(store);
    memlith_region* const region = opened(store->handle(), MEMLITH_CREATE | MEMLITH_REGION_ANYWHERE, &code);
    EXPECT_EQ(memlith_category(code), MEMLITH_INVALID) << "a region that is written has addresses of its own";
    EXPECT_EQ(region, nullptr);
    memlith_region* const made = opened(store->handle(), MEMLITH_CREATE, &code);
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
  options.flags = MEMLITH_CREATE;
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
}  // namespace memlith::test::reopening_test
