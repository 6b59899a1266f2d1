// docs/architecture.md, "device": memory handed to O_DIRECT lies on a page border, whatever its size, and units are
// what their names say.
#include "base/buffer.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.hpp"
#include "base/units.hpp"

namespace memlith::core {
namespace {

AlignedBuffer buffer_of(std::uint64_t bytes) {
  auto buffer = AlignedBuffer::allocate(bytes);
  EXPECT_TRUE(buffer.ok());
  return std::move(*buffer);
}

// Page-aligned, at least as long as asked for, and writable to its last byte; the border to huge pages is 2 MiB.
TEST(AlignedBuffer, IsAlignedAndWhole) {
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{512}, kPageBytes - 1, kPageBytes, kPageBytes + 1,
                                    2 * kMiB - kPageBytes, 2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 1, 5 * kMiB}) {
    const AlignedBuffer buffer = buffer_of(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kPageBytes, 0u) << bytes;
    ASSERT_GE(buffer.size(), bytes);
    EXPECT_EQ(buffer.span().size(), buffer.size());
    std::memset(buffer.data(), 0xab, buffer.size());
    EXPECT_EQ(buffer.span().back(), std::byte{0xab});
  }
}

// Large buffers begin where a huge page can.
TEST(AlignedBuffer, LargeOnesSuitHugePages) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer_of(3 * kMiB).data()) % (2 * kMiB), 0u);
}

// Moving hands the memory on; the source is empty or holds what the target had, and nothing is freed twice.
TEST(AlignedBuffer, Moves) {
  AlignedBuffer small = buffer_of(100);
  AlignedBuffer large = buffer_of(4 * kMiB);
  std::byte* const small_data = small.data();
  std::byte* const large_data = large.data();
  AlignedBuffer taken(std::move(small));
  EXPECT_EQ(taken.data(), small_data);
  taken = std::move(large);
  EXPECT_EQ(taken.data(), large_data);
  EXPECT_EQ(taken.size(), 4 * kMiB);
  taken = AlignedBuffer();
  EXPECT_EQ(taken.size(), 0u);
}

// More memory than there can be is an error, not an end.
TEST(AlignedBuffer, TooMuchIsNoMemory) {
  auto buffer = AlignedBuffer::allocate(1ull << 60);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().category, Errc::no_memory);
}

// Rounding to powers of two, at and around the borders.
TEST(Units, Rounding) {
  static_assert(round_up(0, 512) == 0 && round_up(1, 512) == 512 && round_up(512, 512) == 512 &&
                round_up(513, 512) == 1024);
  static_assert(round_down(511, 512) == 0 && round_down(512, 512) == 512 && round_down(1023, 512) == 512);
  static_assert(!is_power_of_two(0) && is_power_of_two(1) && is_power_of_two(4096) && !is_power_of_two(4095));
  EXPECT_EQ(round_up(~0ull - 8191, 4096), ~0ull - 8191);
}

// LSNs are ordered, advance by bytes, and are as far apart as they were advanced.
TEST(Units, Lsn) {
  constexpr Lsn begin{1024};
  constexpr Lsn end = begin.advance(512);
  static_assert(begin < end && bytes_between(begin, end) == 512 && end == Lsn{1536});
  static_assert(ObjectId{1} < ObjectId{2});
  EXPECT_EQ(begin.advance(0), begin);
}

// The generator repeats itself for a seed, stays below its bound, and identities are never 0.
TEST(Random, IsSeededAndBounded) {
  Random a(5);
  Random b(5);
  bool seen[7] = {};
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(a.next(), b.next());
    const std::uint64_t value = a.below(7);
    ASSERT_LT(value, 7u);
    seen[value] = true;
    (void)b.below(7);
  }
  for (const bool each : seen) EXPECT_TRUE(each);
  EXPECT_NE(random_identity(), 0u);
  EXPECT_NE(random_identity(), random_identity());
}

}  // namespace
}  // namespace memlith::core
