// FileBirth: what tells a file from its copies, where the file system tells it.
#include <gtest/gtest.h>

#include <filesystem>

#include "device/posix.hpp"
#include "support/expect.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::birth_test {
namespace {

using namespace core;

TEST(FileBirth, DiffersWhereBothAreKnown) {
  const FileBirth written{100, 7};
  EXPECT_FALSE((FileBirth{100, 7}).differs_from(written));
  EXPECT_TRUE((FileBirth{101, 8}).differs_from(written));
  EXPECT_TRUE((FileBirth{101, 7}).differs_from(written)) << "a number that was used again";
  EXPECT_FALSE((FileBirth{100, 8}).differs_from(written)) << "a file system that was made smaller";
  EXPECT_FALSE((FileBirth{}).differs_from(written));
  EXPECT_FALSE(written.differs_from({}));
  // Without times: by the numbers.
  EXPECT_TRUE((FileBirth{0, 8}).differs_from(written));
  EXPECT_FALSE((FileBirth{0, 7}).differs_from(written));
  EXPECT_TRUE((FileBirth{100, 8}).differs_from({0, 7}));
  // An overlay, which copies a file before the first write.
  EXPECT_FALSE((FileBirth{101, 0}).differs_from(written));
  EXPECT_TRUE((FileBirth{101, 0}).differs_from({100, 0}));
  EXPECT_TRUE(written.differs_from({99, 0}));
}

TEST(FileBirth, StaysWithTheFileAndNotWithItsCopy) {
  const TempFolder folder;
  const auto volume = make_posix_volume(folder.path());
  const FileBirth first = must(volume->open("a", OpenMode::create, Caching::buffered))->birth();
  if (first.ns == 0 && first.number == 0) GTEST_SKIP() << "skip: this file system tells neither";
  ASSERT_OK(volume->rename("a", "b"));
  EXPECT_FALSE(must(volume->open("b", OpenMode::read_only, Caching::direct))->birth().differs_from(first));
  std::filesystem::copy_file(folder / "b", folder / "c");
  EXPECT_TRUE(must(volume->open("c", OpenMode::read_only, Caching::buffered))->birth().differs_from(first));
}

}  // namespace
}  // namespace memlith::test::birth_test
