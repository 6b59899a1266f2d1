// docs/heap.md, "Undo": a change that is undone leaves the heap's blocks and names as they were.
#include <gtest/gtest.h>

#include "heap/heap.hpp"
#include "support/expect.hpp"
#include "support/heap_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

class HeapChanges : public ::testing::TestWithParam<TrackerKind> {};
INSTANTIATE_TEST_SUITE_P(By, HeapChanges,
                         ::testing::Values(TrackerKind::scan, TrackerKind::fault, TrackerKind::touched,
                                           TrackerKind::instrumented),
                         [](const auto& given) { return name_of_tracker(given.param); });

// Blocks and names are undone with the bytes, also where the heap grew meanwhile.
TEST_P(HeapChanges, UndoBlocksAndNames) {
  HeapWorld world(GetParam());
  const ObjectType type{"test", 100, 16, 1};
  std::byte* const kept = world.allocate(100);
  std::byte* const freed = world.allocate(5000);
  ASSERT_OK(world.heap().names().set("kept", kept, type));
  const Blocks before = world.blocks;
  for (int round = 0; round < 3; ++round) {
    Region* const region = &world.region();
    must(Region::begin_change({&region, 1}));
    for (int i = 0; i < 200; ++i) world.allocate(static_cast<std::uint64_t>(16 + i * 37));
    world.allocate(3 * kMiB);
    world.free(freed);
    ASSERT_OK(world.heap().names().remove("kept"));
    ASSERT_OK(world.heap().names().set("new", world.allocate(100), type));
    EXPECT_EQ(world.persist().category, Errc::busy);
    ASSERT_OK(Region::undo_change({&region, 1}));
    world.blocks = before;
    const auto names = must(world.heap().names().all());
    ASSERT_EQ(names.size(), 1u);
    EXPECT_EQ(names.front().address, kept);
    EXPECT_EQ(must(world.heap().verify()).blocks, before.size() + 1);
  }
}

}  // namespace
}  // namespace memlith::test
