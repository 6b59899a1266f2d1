// docs/guarantees.md, "memlith_file_open": the region is the file. Its size is the file's, to the byte, and changes
// only with a persist.
#include <gtest/gtest.h>

#include "support/region_words.hpp"

namespace memlith::test::one_file_region_test {
namespace {

using namespace core;

class OneFileRegion : public ::testing::TestWithParam<TrackerKind> {
 protected:
  static StoreOptions options() {
    StoreOptions result = tiny_options();
    result.kind = StoreKind::one_file;
    result.file_name = "data";
    return result;
  }
  std::string file() { return read_file(world_.folder() / "data"); }
  RegionWorld world_{GetParam(), options()};
};
INSTANTIATE_TEST_SUITE_P(By, OneFileRegion,
                         ::testing::Values(TrackerKind::scan, TrackerKind::fault, TrackerKind::touched,
                                           TrackerKind::instrumented),
                         [](const auto& given) { return name_of_tracker(given.param); });

// A new file takes the size asked for, exactly, and its last byte can be persisted.
TEST_P(OneFileRegion, SizeIsExact) {
  Region& region = world_.open("file", 10'001);
  EXPECT_EQ(region.size(), 10'001u);
  put(region, 10'001 - 8, 0x4141414141414141);
  ASSERT_OK(persist(region));
  world_.close_store();
  std::string expected(10'001 - 8, '\0');
  expected += "AAAAAAAA";
  EXPECT_EQ(file(), expected);
}

// Bytes behind the end of the file, on its last page, do not belong to the region and do not reach the file.
TEST_P(OneFileRegion, NothingBehindTheEnd) {
  Region& region = world_.open("file", 5000);
  std::memset(region.address(), 'x', 2 * kPageBytes);
  ASSERT_OK(region.touch(region.address(), 5000));
  ASSERT_OK(persist(region));
  world_.close_store();
  EXPECT_EQ(file(), std::string(5000, 'x'));
}

// An unpersisted growth is undone by a crash; a persisted one is exact.
TEST_P(OneFileRegion, GrowthIsExact) {
  ASSERT_OK(world_.open("file", 5000).grow(9001));
  put(world_["file"], 6000, 1);
  world_.crash();
  EXPECT_EQ(file().size(), 5000u);
  Region& region = world_.open("file");
  EXPECT_EQ(region.size(), 5000u);
  ASSERT_OK(region.grow(9001));
  EXPECT_EQ(get(region, 6000), 0u);
  put(region, 9001 - 8, 7);
  ASSERT_OK(persist(region));
  world_.crash();
  EXPECT_EQ(file().size(), 9001u);
  EXPECT_EQ(get(world_.open("file"), 9001 - 8), 7u);
}

// A growth within the last page works like any other.
TEST_P(OneFileRegion, GrowsWithinAPage) {
  Region& region = world_.open("file", 100);
  put(region, 0, 1);
  ASSERT_OK(persist(region));
  ASSERT_OK(region.grow(200));
  EXPECT_EQ(get(region, 192), 0u);
  put(region, 192, 2);
  ASSERT_OK(persist(region));
  world_.crash();
  EXPECT_EQ(file().size(), 200u);
  EXPECT_EQ(get(world_.open("file"), 0), 1u);
  EXPECT_EQ(get(world_["file"], 192), 2u);
}

// An adopted file is its region's content.
TEST_P(OneFileRegion, AdoptedFilesAreTheContent) {
  world_.close_store();
  std::filesystem::remove(world_.folder() / "data.memlith");
  write_file(world_.folder() / "data", std::string(9999, 'u'));
  world_.open_store();
  Region& region = world_.open("file", 123'456);  // the size is of new or empty files only
  ASSERT_EQ(region.size(), 9999u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(region.address()), 9999), std::string(9999, 'u'));
}

// An empty file takes the size asked for, every time it is found empty (memlith.h, memlith_region_options.size).
TEST_P(OneFileRegion, EmptyFilesTakeTheSizeAskedFor) {
  put(world_.open("file", 5000), 0, 1);
  ASSERT_OK(persist(world_["file"]));
  world_.close_store();
  write_file(world_.folder() / "data", "");
  world_.open_store();
  EXPECT_EQ(world_.open("file", 7000).size(), 7000u);
}

// It has one region, named "file", and no other.
TEST_P(OneFileRegion, HasOneRegion) {
  EXPECT_ERROR(Errc::not_found, world_.try_open("other", 5000));
  EXPECT_OK(world_.try_open("file", 5000));
}

// A read-only region is cut where the file ends: a commit in the log that reaches beyond a later, smaller size is shown
// up to it.
TEST_P(OneFileRegion, ReadOnlyShowsCommitsUpToTheEnd) {
  ASSERT_OK(persist(world_.open("file", 20'000)));
  const std::vector<std::byte> bytes(10'000, std::byte{'x'});
  const Extent extent{ObjectId{1}, 1'000, bytes.size()};
  FrameWriter writer = must(world_.store().begin_commit({&extent, 1}, {}));
  writer.put(bytes.data(), bytes.size());
  ASSERT_OK(world_.store().sync(must(writer.finish())));
  const SizeChange change{ObjectId{1}, 5'000};
  FrameWriter shorter = must(world_.store().begin_commit({}, {&change, 1}));
  ASSERT_OK(world_.store().sync(must(shorter.finish())));
  world_.leave();
  StoreOptions reading = options();
  reading.create = false;
  reading.read_only = true;
  const auto store = must(Store::open(world_.volume(), reading));
  const auto region = must(Region::open(*store, "file", {}));
  ASSERT_EQ(region->size(), 5'000u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(region->address()), 5'000),
            std::string(1'000, '\0') + std::string(4'000, 'x'));
}

// The address stays over reopening, so that pointers in the file stay valid.
TEST_P(OneFileRegion, AddressStays) {
  const std::byte* const address = world_.open("file", 5000).address();
  world_.crash();
  EXPECT_EQ(world_.open("file").address(), address);
  world_.close_store();
  world_.open_store();
  EXPECT_EQ(world_.open("file").address(), address);
}

}  // namespace
}  // namespace memlith::test::one_file_region_test
