// docs/guarantees.md, "Changes that are undone": a change is captured as a whole or undone, no capture has half of it,
// and earlier stores are not undone.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "support/expect.hpp"
#include "support/region_words.hpp"

namespace memlith::test::change_test {
namespace {

using namespace core;

constexpr std::uint64_t kSize = 64 * kPageBytes;

Result<Lsn> begin(Region& region) {
  Region* const one = &region;
  return Region::begin_change({&one, 1});
}
Status commit(Region& region) {
  Region* const one = &region;
  MEMLITH_TRY_ASSIGN(const Lsn end, Region::capture_change({&one, 1}, true));
  return region.store().sync(end);
}
Status undo(Region& region) {
  Region* const one = &region;
  return Region::undo_change({&one, 1});
}

class Changes : public ::testing::TestWithParam<TrackerKind> {
 protected:
  RegionWorld world_{GetParam(), tiny_options()};
};
INSTANTIATE_TEST_SUITE_P(By, Changes,
                         ::testing::Values(TrackerKind::scan, TrackerKind::fault, TrackerKind::touched,
                                           TrackerKind::instrumented),
                         [](const auto& given) { return name_of_tracker(given.param); });

TEST_P(Changes, AreCommittedOrUndone) {
  Region& region = world_.open("a", kSize);
  put(region, 0, 1);
  ASSERT_OK(persist(region, Scope::process));
  put(region, 8, 2);  // not persisted: captured by the beginning
  must(begin(region));
  put(region, 0, 3);
  put(region, 9 * kPageBytes, 3);
  ASSERT_OK(undo(region));
  EXPECT_EQ(get(region, 0), 1u);
  EXPECT_EQ(get(region, 8), 2u);
  EXPECT_EQ(get(region, 9 * kPageBytes), 0u);
  must(begin(region));
  put(region, 16, 4);
  ASSERT_OK(commit(region));
  must(begin(region));
  put(region, 16, 5);
  world_.crash();
  Region& again = world_.open("a");
  EXPECT_EQ(get(again, 0), 1u);
  EXPECT_EQ(get(again, 8), 2u);
  EXPECT_EQ(get(again, 16), 4u);
  EXPECT_EQ(get(again, 9 * kPageBytes), 0u);
}

TEST_P(Changes, ExcludeEveryOtherCaptureAndUndo) {
  Region& region = world_.open("a", kSize);
  Region& other = world_.open("b", kSize);
  must(begin(region));
  put(region, 0, 1);
  put(other, 0, 1);
  Region* const both[] = {&region, &other};
  const auto refused = [&] {
    EXPECT_EQ(persist(region, Scope::process).category, Errc::busy);
    EXPECT_NE(last_error_text().find("one lock"), std::string::npos) << last_error_text();
    EXPECT_EQ(Region::persist(both).category, Errc::busy);
    EXPECT_EQ(Region::rollback({&both[0], 1}, Scope::process).category, Errc::busy);
    EXPECT_EQ(region.discard(region.address(), kPageBytes).category, Errc::busy);
    EXPECT_EQ(begin(region).status().category, Errc::busy);
    EXPECT_EQ(Region::begin_change(both).status().category, Errc::busy);
    EXPECT_FALSE(other.changing()) << "a change that was refused has begun in part";
  };
  refused();
  std::thread(refused).join();
  ASSERT_OK(persist(other, Scope::process));
  EXPECT_EQ(get(region, 0), 1u);
  ASSERT_OK(undo(region));
  EXPECT_EQ(get(region, 0), 0u);
  put(region, 0, 2);
  ASSERT_OK(persist(region, Scope::process));
  world_.crash();
  EXPECT_EQ(get(world_.open("a"), 0), 2u);
  EXPECT_EQ(get(world_.open("b"), 0), 1u);
}

// Memory holds half of the change then, and no persist may make that half durable.
TEST_P(Changes, AnUndoThatFailsIsNeverCaptured) {
  if (works_by_faults(GetParam())) GTEST_SKIP() << "keeps the pages, and cannot fail so";
  constexpr std::uint64_t kMany = 2 * kMiB;  // for these an undo runs a checkpoint
  Region& region = world_.open("a", kMany);
  put(region, 0, 1);
  ASSERT_OK(persist(region, Scope::process));
  must(begin(region));
  std::memset(region.address() + kPageBytes, 7, kMany - kPageBytes);
  ASSERT_OK(region.touch(region.address() + kPageBytes, kMany - kPageBytes));
  put(region, 8, 2);
  const std::string home = world_.folder() / "store/objects/1";
  std::filesystem::copy_file(home, world_.folder() / "copy");
  std::filesystem::remove(home);  // which no checkpoint writes to any more
  ASSERT_FALSE(undo(region).ok());
  EXPECT_EQ(get(region, 8), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(persist(region, Scope::process).category, Errc::busy) << last_error_text();
    EXPECT_NE(last_error_text().find("could not be undone"), std::string::npos) << last_error_text();
    EXPECT_FALSE(begin(region).ok());
    EXPECT_OK(undo(region)) << "there is no change any more";
  }
  std::filesystem::copy_file(world_.folder() / "copy", home);
  world_.crash();
  EXPECT_EQ(get(world_.open("a"), 0), 1u);
  EXPECT_EQ(get(world_["a"], 8), 0u);
}

// A change that does not fit the log is under way until it is undone.
TEST_P(Changes, ThatDoNotFitCanBeUndone) {
  Region& region = world_.open("a", 4 * kMiB);
  put(region, 8, 1);
  must(begin(region));
  for (std::uint64_t at = 0; at < 4 * kMiB; at += 8) put(region, at, 7);
  EXPECT_EQ(commit(region).category, Errc::full) << last_error_text();
  EXPECT_TRUE(region.changing());
  ASSERT_OK(undo(region));
  EXPECT_EQ(get(region, 8), 1u);
  EXPECT_EQ(get(region, 4 * kMiB - 8), 0u);
  put(region, 16, 2);
  ASSERT_OK(persist(region, Scope::process));
  world_.crash();
  EXPECT_EQ(get(world_.open("a"), 16), 2u);
}

}  // namespace
}  // namespace memlith::test::change_test
