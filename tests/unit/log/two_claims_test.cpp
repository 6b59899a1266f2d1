// docs/guarantees.md, "After a crash": what is acknowledged is found again, also where an earlier life left a slot that
// says so.
#include <gtest/gtest.h>

#include "log_fixture.hpp"

namespace memlith::test {
namespace {

// A frame over three segments was in flight when the power failed, and only the header of its last slot reached the
// medium. The next program used the slots in another order and reached that segment in another slot, which lies behind
// the stale one in the file. Of two slots that claim a segment, the one of the later opening counts, wherever it lies.
TEST(TwoClaims, TheLaterOneCounts) {
  LogOptions options = LogWorld::small_options();
  options.slot_count_max = 4;
  LogWorld world({512, 4096, 4}, options);
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  const LogGeometry geometry = world.log().geometry();
  const auto into = [&](std::uint64_t segment) {
    Frames appended;
    while (world.log().head().value <= segment * geometry.segment_bytes()) {
      appended.push_back(payload_of(900, appended.size() + 10 * segment));
      world.append(appended.back());
    }
    return appended;
  };
  (void)into(3);
  ASSERT_TRUE(world.log().trim(world.log().durable(), {}).ok()) << last_error_text();
  const std::vector<std::byte> before = *world.volume().image().files.at("log");
  world.append(payload_of(7500, 1));

  // The highest segment's header, and nothing else of the frame.
  std::uint64_t slot_offset = 0;
  world.crash([&](std::vector<std::byte>& disk) {
    for (std::uint32_t slot = 0; slot < 4; ++slot) {
      SlotHeader claim;
      std::memcpy(&claim, disk.data() + geometry.slot_offset(slot), sizeof claim);
      if (claim.segment == 5) slot_offset = geometry.slot_offset(slot);
    }
    const std::vector<std::byte> after = std::exchange(disk, before);
    std::memcpy(disk.data() + slot_offset, after.data() + slot_offset, geometry.block_bytes);
  });
  ASSERT_NE(slot_offset, 0u) << "no slot claims segment 5: another story";

  ASSERT_TRUE(world.open_to_read().ok()) << last_error_text();
  ASSERT_TRUE(world.log().start(world.log().recovered(), {}).ok()) << last_error_text();
  (void)into(4);
  ASSERT_TRUE(world.log().trim(world.log().durable(), {}).ok()) << last_error_text();
  const Frames acknowledged = into(5);
  std::uint32_t claims = 0;
  world.crash([&](std::vector<std::byte>& disk) {
    for (std::uint32_t slot = 0; slot < 4; ++slot) {
      SlotHeader claim;
      std::memcpy(&claim, disk.data() + geometry.slot_offset(slot), sizeof claim);
      if (claim.magic == kSlotMagic && claim.segment == 5) ++claims;
    }
  });
  ASSERT_EQ(claims, 2u) << "the stale slot was used again: another story";
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  EXPECT_EQ(world.frames(), acknowledged);
}

}  // namespace
}  // namespace memlith::test
