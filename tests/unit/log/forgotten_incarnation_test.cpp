// docs/guarantees.md, "After a crash": what is acknowledged is found again, also after a superblock has rotted away.
#include <gtest/gtest.h>

#include "log_fixture.hpp"

namespace memlith::test {
namespace {

// Found by fuzzing. An opening wrote slots and frames, and was lost with the superblock that told of it: that one
// rotted, and the other copy counts. The next opening took the number of the lost one, or an earlier one, and of two
// slots that claim a segment the later incarnation counts: the lost opening's slot won over the one with the commits
// acknowledged since. An opening's number is later than that of every slot and frame there is.
TEST(ForgottenIncarnation, LosesToTheOpeningThatCameAfterIt) {
  LogWorld world;
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  Frames frames;
  const auto append = [&] {
    frames.push_back(payload_of(900, frames.size() + 1));
    world.append(frames.back());
  };
  append();
  // The rest of it: a slot that claims the second segment.
  const LogGeometry geometry = world.log().geometry();
  SlotHeader claim{};
  claim.magic = kSlotMagic;
  claim.segment = 1;
  claim.incarnation = 7;
  claim.checksum = header_checksum(claim, 0x1234);
  world.crash([&](std::vector<std::byte>& disk) {
    std::memcpy(disk.data() + geometry.slot_offset(2), &claim, sizeof claim);
  });
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  while (world.log().head().value < geometry.segment_bytes() + 2048) append();
  world.crash();
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  EXPECT_EQ(world.frames(), frames);
}

}  // namespace
}  // namespace memlith::test
