// The oracle of the power rig (docs/testing.md, "power"): it accepts the state after one commit and no other.
#include "power/stream.hpp"

#include <gtest/gtest.h>

namespace memlith::power {
namespace {

StreamPlan plan() { return {'t', {{"one", 40, 8, 3, 0}, {"two", 20, 0, 0, 9}}, 5, 12}; }

// The regions after `commit`, made by doing every commit.
std::vector<std::vector<std::byte>> state_after(const Stream& stream, std::uint64_t commit) {
  std::vector<std::vector<std::byte>> regions(2);
  for (std::uint64_t n = 0; n <= commit; ++n) {
    for (std::size_t region = 0; region < 2; ++region) regions[region].resize(stream.size_after(region, n));
    if (n == 0) continue;
    for (const Change& change : stream.changes(n)) {
      stream.fill(Cell(regions[change.region].data() + change.cell * kCellBytes, kCellBytes), change, n);
    }
  }
  return regions;
}

std::optional<std::string> check(Stream& stream, const std::vector<std::vector<std::byte>>& regions,
                                 std::uint64_t commit) {
  return stream.check({regions[0], regions[1]}, commit);
}

TEST(PowerStream, AcceptsEachCommitAndNoOther) {
  Stream stream(plan(), 7);
  for (std::uint64_t commit = 0; commit < 30; ++commit) {
    const auto regions = state_after(stream, commit);
    EXPECT_EQ(Stream::commit_in(regions[0]), commit);
    EXPECT_EQ(check(stream, regions, commit), std::nullopt);
    EXPECT_NE(check(stream, regions, commit + 1), std::nullopt);
    if (commit > 0) {
      EXPECT_NE(check(stream, regions, commit - 1), std::nullopt);
    }
  }
}

// Any byte that is wrong is found, and so is a cell of an older commit.
TEST(PowerStream, FindsEveryWrongByte) {
  Stream stream(plan(), 8);
  auto regions = state_after(stream, 12);
  for (auto& region : regions) {
    for (std::size_t at = 0; at < region.size(); at += 7) {
      region[at] ^= std::byte{1};
      EXPECT_NE(check(stream, regions, 12), std::nullopt) << at;
      region[at] ^= std::byte{1};
    }
  }
  const auto older = state_after(stream, 11);
  for (const Change& change : stream.changes(12)) {
    auto mixed = regions;
    const auto offset = static_cast<std::ptrdiff_t>(change.cell * kCellBytes);
    if (static_cast<std::size_t>(offset) >= older[change.region].size()) continue;
    std::copy_n(older[change.region].begin() + offset, kCellBytes, mixed[change.region].begin() + offset);
    EXPECT_NE(check(stream, mixed, 12), std::nullopt);
  }
}

TEST(PowerStream, OtherSeedsStoreOtherBytes) {
  Stream stream(plan(), 9);
  Stream other(plan(), 10);
  EXPECT_NE(check(other, state_after(stream, 5), 5), std::nullopt);
}

}  // namespace
}  // namespace memlith::power
