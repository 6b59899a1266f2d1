// docs/guarantees.md, "Stores": no store reaches a file unless a persist captured it, whatever the kernel does
// and however long it takes; and no home changes but by replay.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "base/buffer.hpp"
#include "support/region_words.hpp"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

namespace memlith::test {
namespace {

using namespace core;

constexpr std::uint64_t kSize = 512 * kKiB;

// The bytes on the medium, past the page cache where the file system lets us.
std::string read_medium(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0) fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const AlignedBuffer buffer = must(AlignedBuffer::allocate(64 * kKiB));
  std::string content;
  for (ssize_t got = 0; (got = ::pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(content.size()))) > 0;) {
    content.append(reinterpret_cast<const char*>(buffer.data()), static_cast<std::size_t>(got));
  }
  ::close(fd);
  return content;
}

// Everything that could make a kernel write a dirty page to its file.
void press(Region& region, const std::string& home) {
  ::madvise(region.address(), region.size(), MADV_PAGEOUT);
  ::msync(region.address(), region.size(), MS_SYNC);
  const int fd = ::open(home.c_str(), O_RDWR | O_CLOEXEC);
  ::fsync(fd);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
  ::sync();
}

class NothingLeaks : public ::testing::TestWithParam<TrackerKind> {};
INSTANTIATE_TEST_SUITE_P(By, NothingLeaks,
                         ::testing::Values(TrackerKind::scan, TrackerKind::fault, TrackerKind::touched,
                                           TrackerKind::instrumented),
                         [](const auto& given) { return name_of_tracker(given.param); });

void store_everywhere(Region& region, std::uint64_t value) {
  for (std::uint64_t offset = 0; offset + 8 <= region.size(); offset += 512) put(region, offset, value);
}

// Stores everywhere, never persisted, under every pressure and over time: the home stays as the last persist left it.
TEST_P(NothingLeaks, UnpersistedStoresStayInMemory) {
  RegionWorld world(GetParam());
  Region& region = world.open("a", kSize);
  store_everywhere(region, 1);
  ASSERT_OK(persist(region));
  ASSERT_OK(world.store().checkpoint());
  const std::string home = world.folder() / "store/objects/1";
  const std::string before = read_medium(home);
  ASSERT_EQ(before.size(), kSize);
  ASSERT_EQ(before[0], 1);
  for (std::uint64_t round = 2; round < 6; ++round) {
    store_everywhere(region, round);
    press(region, home);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ASSERT_TRUE(read_medium(home) == before) << "round " << round;
    ASSERT_EQ(get(region, 0), round) << "memory lost a store under pressure";
  }
  world.crash();
  EXPECT_EQ(get(world.open("a"), 0), 1u);
}

// A persist writes the log, not the home: that changes with a checkpoint, and then to exactly the persisted bytes.
TEST_P(NothingLeaks, HomesChangeByReplayOnly) {
  StoreOptions options;
  options.manual_checkpoint = true;
  RegionWorld world(GetParam(), options);
  Region& region = world.open("a", kSize);
  ASSERT_OK(world.store().checkpoint());
  const std::string home = world.folder() / "store/objects/1";
  const std::string before = read_medium(home);
  store_everywhere(region, 7);
  ASSERT_OK(persist(region));
  const std::string persisted(reinterpret_cast<const char*>(region.address()), kSize);
  store_everywhere(region, 8);
  press(region, home);
  EXPECT_TRUE(read_medium(home) == before);
  ASSERT_OK(world.store().checkpoint());
  EXPECT_TRUE(read_medium(home) == persisted);
}

// The user's own file in a one-file store is as safe, bytes and length.
TEST_P(NothingLeaks, OneFileStores) {
  StoreOptions options;
  options.kind = StoreKind::one_file;
  options.file_name = "data";
  RegionWorld world(GetParam(), options);
  Region& region = world.open("file", 300'001);
  store_everywhere(region, 1);
  ASSERT_OK(persist(region));
  ASSERT_OK(world.store().checkpoint());
  const std::string before = read_medium(world.folder() / "data");
  ASSERT_EQ(before.size(), 300'001u);
  store_everywhere(region, 2);
  press(region, world.folder() / "data");
  EXPECT_TRUE(read_medium(world.folder() / "data") == before);
  world.close_store();
  EXPECT_TRUE(read_medium(world.folder() / "data") == before) << "closing dropped what was not persisted";
}

// Closing a region, or opening it again, writes nothing either.
TEST_P(NothingLeaks, ClosingDropsStores) {
  RegionWorld world(GetParam());
  store_everywhere(world.open("a", kSize), 3);
  const std::string before = read_medium(world.folder() / "store/objects/1");
  world.close("a");
  EXPECT_EQ(get(world.open("a"), 0), 0u);
  store_everywhere(world["a"], 4);
  world.close_store();
  EXPECT_TRUE(read_medium(world.folder() / "store/objects/1") == before);
}

}  // namespace
}  // namespace memlith::test
