// Each row of log/recovery_table.hpp, by its letter: a log that is left so that the row is the one that matches. That
// exactly one row matches whatever is found is checked by the compiler.
#include <gtest/gtest.h>

#include "log/recovery_table.hpp"
#include "log_fixture.hpp"
#include "support/expect.hpp"

namespace memlith::test {
namespace {

constexpr std::uint64_t kRowPayload = 600;

RecoveryDecision decision_of(char letter) {
  for (const RecoveryRow& row : recovery_table::kRows) {
    if (row.letter == letter) return row.decision;
  }
  ADD_FAILURE() << "no row " << letter;
  return RecoveryDecision::refuse;
}

// A log that was opened and has these frames, each acknowledged.
void fill(LogWorld& world, std::uint64_t frames, std::uint64_t seed = 0) {
  ASSERT_OK(world.open());
  for (std::uint64_t i = 0; i < frames; ++i) world.append(payload_of(kRowPayload, seed + i));
}

TEST(RecoveryRow, ALogEndsWhereItWasClosed) {
  for (const std::uint64_t frames : {0u, 3u}) {
    LogWorld world;
    fill(world, frames);
    ASSERT_OK(world.log().close({}));
    world.crash();
    ASSERT_OK(world.open_to_read());
    EXPECT_EQ(world.log().recovery_row(), 'A') << frames;
    EXPECT_EQ(world.frames().size(), frames);
  }
  EXPECT_EQ(decision_of('A'), RecoveryDecision::take);
}

TEST(RecoveryRow, BFramesThatTheSuperblockVouchesForAreMissing) {
  LogWorld world;
  fill(world, 1);
  const LogPosition tail = world.log().durable();
  const std::uint64_t place = world.file_offset(world.log().head());
  world.append(payload_of(kRowPayload, 1));
  ASSERT_OK(world.log().trim(tail, {}));  // its superblock says that the second frame was durable
  world.crash([place](std::vector<std::byte>& disk) { disk[place + 100] ^= std::byte{1}; });
  EXPECT_ERROR(Errc::corrupt, world.open_to_read());
  EXPECT_EQ(world.log().recovery_row(), 'B');
  EXPECT_EQ(decision_of('B'), RecoveryDecision::refuse);
}

TEST(RecoveryRow, CAnotherFrameStandsWhereItWasDurable) {
  // The frames of a log with the same identity and other bytes, each of them valid.
  LogWorld other;
  fill(other, 1, 100);
  const std::uint64_t begin = other.log().geometry().slot_offset(0);
  const std::uint64_t bytes = other.log().geometry().slot_bytes;
  const SimImage image = other.volume().image();
  const auto& theirs = *image.files.at("log");
  LogWorld world;
  fill(world, 1);
  ASSERT_OK(world.log().close({}));
  world.crash([&](std::vector<std::byte>& disk) { std::memcpy(disk.data() + begin, theirs.data() + begin, bytes); });
  EXPECT_ERROR(Errc::corrupt, world.open_to_read());
  EXPECT_NE(last_error_text().find("another frame stands"), std::string::npos) << last_error_text();
  EXPECT_EQ(world.log().recovery_row(), 'C');
  EXPECT_EQ(decision_of('C'), RecoveryDecision::refuse);
}

TEST(RecoveryRow, DALaterFrameShowsThatMoreWasDurable) {
  LogWorld world;
  fill(world, 1);
  const std::uint64_t place = world.file_offset(world.log().head());
  for (std::uint64_t i = 1; i < 4; ++i) world.append(payload_of(kRowPayload, i));
  world.crash([place](std::vector<std::byte>& disk) { disk[place + 300] ^= std::byte{4}; });
  EXPECT_ERROR(Errc::corrupt, world.open_to_read());
  EXPECT_EQ(world.log().recovery_row(), 'D');
  EXPECT_EQ(decision_of('D'), RecoveryDecision::refuse);
}

TEST(RecoveryRow, EEverythingWasDurableBeforeTheCrash) {
  LogWorld world;
  fill(world, 0);
  world.crash();
  ASSERT_OK(world.open_to_read());
  EXPECT_EQ(world.log().recovery_row(), 'E');
  EXPECT_EQ(world.log().proven(), world.log().recovered().lsn);
  EXPECT_EQ(decision_of('E'), RecoveryDecision::take);
}

TEST(RecoveryRow, FNothingProvesTheNewestFrame) {
  LogWorld world;
  fill(world, 3);
  world.crash();
  ASSERT_OK(world.open_to_read());
  EXPECT_EQ(world.log().recovery_row(), 'F');
  EXPECT_EQ(world.frames().size(), 3u);
  EXPECT_LT(world.log().proven(), world.log().recovered().lsn);
  ASSERT_OK(world.log().secure());
  EXPECT_EQ(world.log().proven(), world.log().recovered().lsn);
  EXPECT_EQ(decision_of('F'), RecoveryDecision::take_anew);
}

}  // namespace
}  // namespace memlith::test
