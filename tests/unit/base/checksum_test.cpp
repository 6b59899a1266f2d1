// docs/guarantees.md, "Rot": one bit changed anywhere changes the checksum, every way of computing it
// agrees, and another seed is another checksum.
#include "base/checksum.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "base/checksum_impl.hpp"
#include "base/random.hpp"

namespace memlith::core {
namespace {

// Around every border of XXH3: short inputs, 16, 128, 240, its 1024-byte blocks and the 256-byte buffer of the stream.
const std::size_t kLengths[] = {0,   1,   3,   4,   8,   9,   16,   17,   63,   64,   127,  128,  129,   239,
                                240, 241, 255, 256, 257, 511, 1023, 1024, 1025, 4095, 4096, 4097, 70001, 300000};
const std::uint64_t kSeeds[] = {0, 1, 0x6d656d6c697468u, ~0ull};

std::vector<std::byte> noise(std::size_t count, std::uint64_t seed = 7) {
  Random random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

std::uint64_t streamed(std::span<const std::byte> bytes, std::uint64_t seed, std::size_t step) {
  StreamingChecksum stream;
  stream.reset(seed);
  for (std::size_t at = 0; at < bytes.size(); at += step)
    stream.update(bytes.subspan(at, std::min(step, bytes.size() - at)));
  return stream.digest();
}

// Fed piece by piece, whatever the pieces, gives what one shot gives.
TEST(Checksum, StreamingEqualsOneShot) {
  for (const std::size_t length : kLengths) {
    const auto bytes = noise(length);
    for (const std::uint64_t seed : kSeeds) {
      for (const std::size_t step : {1u, 7u, 64u, 255u, 256u, 257u, 4096u, 262144u}) {
        if (length / step > 5000) continue;
        ASSERT_EQ(streamed(bytes, seed, step), checksum(bytes, seed))
            << length << " bytes by " << step << ", seed " << seed;
      }
    }
  }
}

// Pieces of random length, empty ones among them, change nothing either.
TEST(Checksum, StreamingTakesAnySplit) {
  Random random(11);
  for (int round = 0; round < 200; ++round) {
    const auto bytes = noise(random.below(5000), random.next());
    StreamingChecksum stream;
    stream.reset(round);
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t step = std::min<std::size_t>(random.below(700), bytes.size() - at);
      stream.update(std::span(bytes).subspan(at, step));
      at += step;
    }
    ASSERT_EQ(stream.digest(), checksum(bytes, static_cast<std::uint64_t>(round)));
  }
}

// A stream can be used again with another seed, seed 0 included, as if it were new.
TEST(Checksum, ResetForgetsEverything) {
  const auto bytes = noise(5000);
  StreamingChecksum stream;
  for (const std::uint64_t seed : {5u, 0u, 9u, 0u}) {
    stream.reset(seed);
    stream.update(bytes);
    EXPECT_EQ(stream.digest(), checksum(bytes, seed)) << "seed " << seed;
    stream.update(bytes);  // dirt for the next use
  }
}

// A digest in the middle does not disturb the stream.
TEST(Checksum, DigestMayBeTakenAtAnyTime) {
  const auto bytes = noise(3000);
  StreamingChecksum stream;
  stream.reset(3);
  stream.update(std::span(bytes).first(1000));
  EXPECT_EQ(stream.digest(), checksum(std::span(bytes).first(1000), 3));
  stream.update(std::span(bytes).subspan(1000));
  EXPECT_EQ(stream.digest(), checksum(bytes, 3));
}

// The same bytes under another seed, the identity of another log, have another checksum.
TEST(Checksum, SeedMatters) {
  for (const std::size_t length : kLengths) {
    if (length == 0) continue;
    const auto bytes = noise(length);
    EXPECT_NE(checksum(bytes, 1), checksum(bytes, 2)) << length;
    EXPECT_NE(checksum(bytes, 0), checksum(bytes, ~0ull)) << length;
  }
}

// Every single flipped bit of a header-sized block is noticed.
TEST(Checksum, NoticesEveryFlippedBit) {
  for (const std::size_t length : {56u, 504u}) {
    auto bytes = noise(length);
    const std::uint64_t right = checksum(bytes, 42);
    for (std::size_t bit = 0; bit < length * 8; ++bit) {
      bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      ASSERT_NE(checksum(bytes, 42), right) << "bit " << bit;
      bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    }
  }
}

// Data does not come aligned; the value does not depend on where it lies.
TEST(Checksum, AlignmentDoesNotMatter) {
  const auto bytes = noise(2000);
  for (std::size_t shift = 0; shift < 64; ++shift) {
    std::vector<std::byte> moved(shift + bytes.size());
    std::copy(bytes.begin(), bytes.end(), moved.begin() + static_cast<std::ptrdiff_t>(shift));
    ASSERT_EQ(checksum(std::span(moved).subspan(shift), 5), checksum(bytes, 5)) << shift;
  }
}

#if defined(__x86_64__)
// A store written on a machine with AVX2 is read on one without it.
TEST(Checksum, Avx2EqualsBaseline) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this processor has no AVX2";
  const auto& plain = detail::baseline_checksum();
  const auto& wide = detail::avx2_checksum();
  ASSERT_EQ(plain.state_bytes, wide.state_bytes);
  void* const state = std::aligned_alloc(64, (plain.state_bytes + 63) / 64 * 64);
  for (const std::size_t length : kLengths) {
    const auto bytes = noise(length);
    for (const std::uint64_t seed : kSeeds) {
      ASSERT_EQ(plain.hash(bytes.data(), length, seed), wide.hash(bytes.data(), length, seed)) << length;
      for (const auto* functions : {&plain, &wide}) {
        functions->reset(state, seed);
        functions->update(state, bytes.data(), length / 3);
        functions->update(state, bytes.data() + length / 3, length - length / 3);
        ASSERT_EQ(functions->digest(state), plain.hash(bytes.data(), length, seed)) << length;
      }
    }
  }
  std::free(state);
}
#endif

}  // namespace
}  // namespace memlith::core
