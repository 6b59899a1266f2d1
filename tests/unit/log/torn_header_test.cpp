// docs/dax.md, "torn slot headers": on a medium that tears a slot's header, what is left of one must not come true.
#include <gtest/gtest.h>

#include <algorithm>

#include "log_fixture.hpp"
#include "support/expect.hpp"

namespace memlith::test {
namespace {

// The free slots have all words of a header but its magic number, as an interrupted recovery may leave them. The header
// that the next recovery writes brings the magic number. If the power fails when only that word has arrived, the slot
// claims what it says, so by then the other words must be gone, and they must be gone before the slot gets other bytes.
TEST(TornHeader, IsGoneBeforeFramesMoveToItsSlot) {
  const LogOptions options = LogWorld::small_options();
  constexpr std::uint64_t kId = 0x1234;
  SimImage image;
  image.lines = true;
  LogGeometry geometry{64, 4096};
  {
    SimVolume volume(image);
    auto device = must(volume.open("log", OpenMode::create, Caching::direct));
    ASSERT_OK(Log::format(*device, {64, 4096, 4}, {}, kId));
    auto log = must(Log::open(*device, options));
    ASSERT_OK(log->recover([](const Frame&) { return kOk; }));
    ASSERT_OK(log->start(log->tail(), {}));
    for (std::uint64_t i = 0; i < 3; ++i) ASSERT_OK(log->append(payload_of(500, i), 1).status());
    image = volume.image();
  }
  auto bytes = *image.files.at("log");
  std::vector<std::uint64_t> torn;
  for (std::uint32_t slot = 0; slot < 4; ++slot) {
    SlotHeader header;
    std::memcpy(&header, bytes.data() + geometry.slot_offset(slot), sizeof header);
    if (header.magic != 0) continue;
    header = {kSlotMagic, 0, 0, 9, 0};
    header.checksum = header_checksum(header, kId);
    header.magic = 0;
    std::memcpy(bytes.data() + geometry.slot_offset(slot), &header, sizeof header);
    torn.push_back(geometry.slot_offset(slot));
  }
  ASSERT_FALSE(torn.empty());
  image.files["log"] = std::make_shared<const std::vector<std::byte>>(std::move(bytes));

  SimVolume volume(image, true);
  auto device = must(volume.open("log", OpenMode::read_write, Caching::direct));
  auto log = must(Log::open(*device, options));
  ASSERT_OK(log->recover([](const Frame&) { return kOk; }));
  ASSERT_OK(log->start(log->tail(), {}));
  SimMedium medium(volume.trace());
  std::uint64_t moved = 0;
  for (const SimRecord& record : volume.trace().records) {
    for (const std::uint64_t slot : torn) {
      if (record.op != SimOp::write || record.offset <= slot || record.offset >= slot + geometry.slot_bytes) continue;
      const SimImage durable = medium.cut([](std::size_t) { return false; });
      const auto header = std::span(*durable.files.at("log")).subspan(slot, sizeof(SlotHeader));
      EXPECT_TRUE(std::all_of(header.begin(), header.end(), [](std::byte b) { return b == std::byte{0}; }))
          << "the slot at " << slot << " still has a torn header when bytes move to it";
      ++moved;
    }
    medium.step();
  }
  EXPECT_GT(moved, 0u) << "nothing was moved: another story";
}

}  // namespace
}  // namespace memlith::test
