// docs/backup.md, "Archive": when a full copy is due.
#include <gtest/gtest.h>

#include <memory>

#include "archive/archiver.hpp"
#include "readers/world.hpp"
#include "support/expect.hpp"

namespace memlith::test::full_copies_test {
namespace {

constexpr std::uint64_t kHour = 3'600'000'000'000;

// A clock that was set back by days does not keep the archive from making full copies until it has caught up.
TEST(FullCopies, AreMadeWhileTheClockIsBehind) {
  World world(StoreKind::folder, 1);
  world.open();
  world.create("a", 2 * kPageBytes);
  std::uint64_t now_ns = 1000 * kHour;
  ArchiveOptions options;
  options.seal_ns = 0;
  options.full_every_ns = 24 * kHour;
  options.keep_ns = 0;
  options.now_ns = [&now_ns] { return ++now_ns; };
  SimVolume volume;
  const auto target = make_folder_target(volume);
  PageVolume reading(world.volume, world.pages);
  ArchiveSource source(reading, StoreKind::folder, "");
  Archiver archiver(source, *target, options);
  ASSERT_OK(archiver.open());
  const auto after = [&](std::int64_t hours) {
    now_ns += static_cast<std::uint64_t>(hours) * kHour;
    world.commit();
    world.show();
    EXPECT_OK(archiver.step());
    EXPECT_OK(archiver.step());
    return archiver.manifest().fulls.size();
  };
  ASSERT_EQ(after(1), 1u);
  EXPECT_EQ(after(24), 2u);
  EXPECT_EQ(after(1), 2u);
  EXPECT_EQ(after(-500), 3u);
  EXPECT_EQ(after(1), 3u);
  EXPECT_EQ(after(24), 4u);
}

}  // namespace
}  // namespace memlith::test::full_copies_test
