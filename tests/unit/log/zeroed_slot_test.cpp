// docs/guarantees.md, "After a crash": where the bytes on the medium cannot be the work of a crash, opening says so.
#include <gtest/gtest.h>

#include "log_fixture.hpp"

namespace memlith::test {
namespace {

// Found by the crash laboratory. The log grew, and one sector of the zeros for its new slots went astray, onto the
// header of a slot full of acknowledged frames. A slot whose header is zero was taken for one that was never used, and
// not searched for frames that vouch for the end of the log: it ended in front of that slot, and the commits in it were
// gone without a word.
class ZeroedSlotHeader : public ::testing::TestWithParam<std::uint64_t> {};
TEST_P(ZeroedSlotHeader, IsDamageAndNotASlotNeverUsed) {
  LogWorld world;
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  // Into the second slot, which no other slot behind it vouches for.
  const std::uint64_t segment_bytes = world.log().geometry().segment_bytes();
  std::size_t count = 0;
  while (world.log().head().value < segment_bytes + segment_bytes / 2) world.append(payload_of(900, ++count));
  ASSERT_LT(world.log().head().value, 2 * segment_bytes);
  const std::uint64_t header = world.log().geometry().slot_offset(1);
  world.crash([&](std::vector<std::byte>& disk) {
    ASSERT_NE(disk[header], std::byte{0});
    std::memset(disk.data() + header, 0, GetParam());
  });
  const Status status = world.open_to_read();
  EXPECT_EQ(status.category, Errc::corrupt) << "found " << world.frames().size() << " of " << count << " frames";
}
// The header alone; and, found by fuzzing, with what follows it: the first block was empty then, too, which was all
// that was asked.
INSTANTIATE_TEST_SUITE_P(Bytes, ZeroedSlotHeader, ::testing::Values(512, 1024, 2048));

}  // namespace
}  // namespace memlith::test
