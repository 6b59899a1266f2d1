// docs/guarantees.md, "memlith_persist": after a failure nothing is done any more. docs/architecture.md, crash case 10.
#include <gtest/gtest.h>

#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

// Found by the crash laboratory. The superblock with which a checkpoint gives its frames up was reported as failed, but
// had reached the medium. The store was poisoned, and yet a second checkpoint (a removal, a release of memory, closing)
// wrote the same frames home again. The power went: a sector on its way home was garbage, and the frame that would have
// mended it had been given up. A poisoned store leaves its homes alone.
TEST(PoisonedHomes, AreLeftAlone) {
  SimVolume volume({}, true);
  auto store = must(Store::open(volume, tiny_options()));
  const ObjectId a = create_object(*store, "a", 4096);
  ASSERT_OK(store->checkpoint());
  ASSERT_OK(commit(*store, {{a, 0, filled(600, 1)}}));
  volume.faults().done_nevertheless = true;
  volume.faults().plan(SimFaults::Kind::fail_write, 1);  // the first write of the checkpoint is the home's
  ASSERT_ERROR(Errc::io, store->checkpoint());
  ASSERT_EQ(volume.faults().fired(), 1u);
  const std::size_t failed_at = volume.operations();

  EXPECT_ERROR(Errc::poisoned, store->checkpoint());
  EXPECT_EQ(volume.operations(), failed_at) << volume.trace().describe(volume.operations());
  store = nullptr;

  for (std::size_t count = failed_at; count <= volume.operations(); ++count) {
    const SimMedium medium(volume.trace(), count);
    std::vector<SimChoice> choices(medium.pending_count());
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const bool home = medium.name_of_file(medium.pending(i).file) == "objects/1";
      choices[i].fate = home ? SimFate::garbage : SimFate::kept;
    }
    SimVolume rest(medium.cut(choices, 1));
    auto again = must(Store::open(rest, tiny_options()));
    EXPECT_EQ(again->counters().replayed_commits, 0u) << "the superblock did not reach the medium: another story";
    const Bytes found = content_of(*again, a);
    EXPECT_EQ(Bytes(found.begin(), found.begin() + 600), filled(600, 1)) << "after operation " << count;
  }
}

}  // namespace
}  // namespace memlith::test
