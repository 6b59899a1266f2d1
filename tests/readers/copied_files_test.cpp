// docs/backup.md, "Copies by other means": a folder store whose files were copied while it was closed, or whose copy
// was accepted, is opened after a power cut at any operation from then on; the files of a store that was not closed are
// refused, and stay as they are. And the tests notice each mistake that is planted.
#include <gtest/gtest.h>

#include "mutants/mutants.hpp"
#include "sim/power_cuts.hpp"
#include "support/store_words.hpp"

namespace memlith::test::copied_files_test {
namespace {

using namespace core;

constexpr std::uint64_t kOfACopy = 1000;

StoreOptions options_for(bool accept_copy) {
  StoreOptions options = tiny_options();
  options.create = false;
  options.accept_copy = accept_copy;
  return options;
}

// The same bytes in files of their own.
SimImage copied(SimImage image) {
  for (auto& [name, birth] : image.births) birth += kOfACopy;
  return image;
}

// The files of a program that makes a store, commits and is killed, or closes the store.
SimImage left(bool closed) {
  SimVolume volume;
  const auto store = must(Store::open(volume, tiny_options()));
  const ObjectId object = create_object(*store, "a", 4096);
  EXPECT_OK(commit(*store, {{object, 0, filled(100, 1)}}));
  if (closed) {
    EXPECT_OK(store->close());
  }
  return volume.image();
}

// Commits 2, 3, ... to the store of the image, with checkpoints in between, and closes it.
void live(SimVolume& volume, bool accept_copy) {
  const auto store = must(Store::open(volume, options_for(accept_copy)));
  for (int value = 2; value < 60; ++value) {
    EXPECT_OK(commit(*store, {{ObjectId{1}, 0, filled(100, value)}}));
    if (value % 3 == 0) {
      EXPECT_OK(store->checkpoint());
    }
  }
  EXPECT_OK(store->close());
}

// True if the store is opened; then it has what one commit left.
bool is_whole(SimVolume& volume, bool accept_copy) {
  const auto store = Store::open(volume, options_for(accept_copy));
  if (!store.ok()) return false;
  const Bytes bytes = content_of(**store, ObjectId{1});
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + 99, bytes.begin() + 1)) << "half of a commit";
  return true;
}

// How many power cuts during live() leave a store that is not opened.
int refused_after_cuts(const SimImage& start, bool accepted) {
  SimVolume volume(start, true);
  live(volume, accepted);
  Random random(1);
  int refused = 0;
  int tried = 0;
  for (CrashPoints points(volume.trace()); points.next();) {
    for (PowerCuts cuts(points.medium(), {3, 6}, random); cuts.next();) {
      SimVolume after(cuts.image());
      // The first superblock of the acceptance may be lost; then the files have to be accepted again.
      const bool opens = is_whole(after, false) || (accepted && is_whole(after, true));
      refused += opens ? 0 : 1;
      ++tried;
    }
  }
  EXPECT_GT(tried, 200);
  return refused;
}

class CopiedFiles : public ::testing::Test {
 protected:
  ~CopiedFiles() override { active_mutant = Mutant::none; }
};

TEST_F(CopiedFiles, OfAClosedStoreSurvivePowerCuts) {
  EXPECT_EQ(refused_after_cuts(copied(left(true)), false), 0);
  EXPECT_EQ(refused_after_cuts(left(false), false), 0) << "these are no copies";
}

TEST_F(CopiedFiles, ThatWereAcceptedSurvivePowerCuts) { EXPECT_EQ(refused_after_cuts(copied(left(false)), true), 0); }

TEST_F(CopiedFiles, OfAStoreThatWasNotClosedAreRefusedAndStayAsTheyAre) {
  SimVolume volume(copied(left(false)), true);
  for (const bool read_only : {false, true}) {
    StoreOptions options = options_for(false);
    options.read_only = read_only;
    EXPECT_ERROR(Errc::corrupt, Store::open(volume, options));
  }
  EXPECT_EQ(volume.operations(), 0u);
  // Nothing is known of files from elsewhere.
  SimImage unknown = left(false);
  unknown.births.clear();
  SimVolume other(unknown);
  EXPECT_OK(Store::open(other, options_for(false)).status());
}

TEST_F(CopiedFiles, NoticesThatACopyIsNotRefused) {
  const SimImage image = copied(left(false));
  active_mutant = Mutant::copied_files_taken;
  SimVolume volume(image);
  EXPECT_OK(Store::open(volume, options_for(false)).status());
}

TEST_F(CopiedFiles, NoticesASuperblockThatDoesNotSayItsFile) {
  const SimImage image = copied(left(true));
  active_mutant = Mutant::file_birth_kept;
  EXPECT_GT(refused_after_cuts(image, false), 0);
}

}  // namespace
}  // namespace memlith::test::copied_files_test
