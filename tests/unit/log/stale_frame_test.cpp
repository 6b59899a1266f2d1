// The stale-frame trap. A crash can lose a frame and keep the one that was in flight behind it. When a new frame is
// written over the lost one, the old one behind it must not be taken for its successor: it was never acknowledged,
// and it may say the opposite of what was decided since. docs/guarantees.md, "After a crash". [log/stale_frame]
#include <gtest/gtest.h>

#include "log_fixture.hpp"

namespace memlith::test {
namespace {

constexpr std::uint64_t kPayload = 700;  // two sectors a frame

// X is durable; Y and Z were in flight together; the crash lost Y and kept Z.
class StaleFrame : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(world_.open().ok()) << last_error_text();
    world_.append(x_);
    const Lsn y_begin = world_.log().head();
    const Lsn y_end = world_.add(y_);
    ASSERT_TRUE(world_.log().sync(world_.add(z_)).ok());
    const std::uint64_t begin = world_.file_offset(y_begin);
    const std::uint64_t bytes = bytes_between(y_begin, y_end);
    world_.crash([=](std::vector<std::byte>& disk) { std::memset(disk.data() + begin, 0, bytes); });
    ASSERT_TRUE(world_.open().ok()) << last_error_text();
    ASSERT_EQ(world_.frames(), (Frames{x_}));
  }
  LogWorld world_;
  const std::vector<std::byte> x_ = payload_of(kPayload, 1);
  const std::vector<std::byte> y_ = payload_of(kPayload, 2);
  const std::vector<std::byte> z_ = payload_of(kPayload, 3);
};

// Another frame in Y's place, of the same length: the chain of checksums tells that Z was not written after it.
TEST_F(StaleFrame, DoesNotFollowAnotherFrame) {
  const auto other = payload_of(kPayload, 4);
  world_.append(other);
  world_.crash();
  ASSERT_TRUE(world_.open().ok()) << last_error_text();
  EXPECT_EQ(world_.frames(), (Frames{x_, other}));
}

// The very same bytes in Y's place, as a program that simply tries again writes them: only the incarnation makes the
// new frame differ from the lost one.
TEST_F(StaleFrame, DoesNotFollowTheSamePayloadWrittenAgain) {
  world_.append(y_);
  world_.crash();
  ASSERT_TRUE(world_.open().ok()) << last_error_text();
  EXPECT_EQ(world_.frames(), (Frames{x_, y_}));
}

// A second crash before anything was written leaves the trap armed; it must stay harmless.
TEST_F(StaleFrame, StaysHarmlessOverSeveralCrashes) {
  world_.crash();
  ASSERT_TRUE(world_.open().ok()) << last_error_text();
  world_.append(y_);
  world_.crash();
  ASSERT_TRUE(world_.open().ok()) << last_error_text();
  EXPECT_EQ(world_.frames(), (Frames{x_, y_}));
}

// Found by the crash laboratory. Y was torn: its header reached the medium, its payload did not; Z behind it is whole.
// The program tries again with the same bytes, and is torn the other way round: of the new Y the payload reaches the
// medium, the header does not. What stands there now is the *old* Y, whole, chain and all, with Z, which was not
// written in this life, behind it. From where an incarnation began, frames of earlier ones are stale
// (Superblock::begun_lsn).
TEST(TornStaleFrame, IsNotMadeWholeByTheSamePayloadWrittenAgain) {
  LogWorld world;
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  const auto x = payload_of(kPayload, 1);
  const auto y = payload_of(kPayload, 2);
  // The frame behind y proves x, so that x stays where it is, and the place behind it is that of the old y.
  world.append(x);
  const std::uint64_t begin = world.file_offset(world.log().head());
  (void)world.add(y);
  ASSERT_TRUE(world.log().sync(world.add(payload_of(kPayload, 3))).ok());
  std::vector<std::byte> old_header;
  world.crash([&](std::vector<std::byte>& disk) {
    old_header.assign(disk.begin() + static_cast<std::ptrdiff_t>(begin),
                      disk.begin() + static_cast<std::ptrdiff_t>(begin) + 512);
    std::memset(disk.data() + begin + 512, 0, 512);
  });
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  ASSERT_EQ(world.frames(), (Frames{x}));
  world.append(y);
  world.crash([&](std::vector<std::byte>& disk) { std::memcpy(disk.data() + begin, old_header.data(), 512); });
  ASSERT_TRUE(world.open().ok()) << last_error_text();
  EXPECT_EQ(world.frames(), (Frames{x}));
}

}  // namespace
}  // namespace memlith::test
