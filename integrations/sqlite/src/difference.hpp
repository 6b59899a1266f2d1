// Finds where two ranges of memory differ. Part of the SQLite plugin.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace memlith::sqlite {

// An extent costs a record of 16 bytes in the log, so runs with a smaller gap are joined.
inline constexpr std::uint64_t kJoinBytes = 24;

// True if the 64 bytes are equal, as most of a page are that SQLite stores again.
inline bool are_equal(const std::byte* one, const std::byte* other) {
  using Words = std::uint64_t __attribute__((vector_size(16)));
  Words a[4];
  Words b[4];
  std::memcpy(a, one, sizeof a);
  std::memcpy(b, other, sizeof b);
  const Words all = ((a[0] ^ b[0]) | (a[1] ^ b[1])) | ((a[2] ^ b[2]) | (a[3] ^ b[3]));
  return (all[0] | all[1]) == 0;
}

// A bit for each word of 8 bytes, of 64, that differs, the first word's lowest. Without a branch.
inline std::uint32_t differing_words(const std::byte* one, const std::byte* other) {
  std::uint64_t a[8];
  std::uint64_t b[8];
  std::memcpy(a, one, sizeof a);
  std::memcpy(b, other, sizeof b);
  std::uint32_t words = 0;
  for (int i = 0; i < 8; ++i) words |= static_cast<std::uint32_t>(a[i] != b[i]) << i;
  return words;
}

// Calls emit(begin, bytes) for each run in which they differ, in order. Runs are found by words of 8 bytes.
template <class Emit>
void for_each_difference(const std::byte* before, const std::byte* after, std::uint64_t bytes, Emit emit) {
  constexpr std::uint64_t kBlock = 64;
  constexpr std::uint64_t kWord = 8;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // of the run that is open; begin == end: none
  const auto differs = [&](std::uint64_t from, std::uint64_t to) {
    if (begin != end && from - end > kJoinBytes) {
      emit(begin, end - begin);
      begin = from;
    } else if (begin == end) {
      begin = from;
    }
    end = to;
  };
  std::uint64_t block = 0;
  for (; block + kBlock <= bytes; block += kBlock) {
    // Behind bytes that differ, more are likely to.
    if (end != block && are_equal(before + block, after + block)) continue;
    for (std::uint32_t words = differing_words(before + block, after + block); words != 0;) {
      const auto first = static_cast<std::uint32_t>(std::countr_zero(words));
      const auto count = static_cast<std::uint32_t>(std::countr_one(words >> first));
      differs(block + first * kWord, block + (first + count) * kWord);
      words &= ~(((1u << count) - 1) << first);
    }
  }
  for (std::uint64_t word = block; word < bytes; word += kWord) {
    const std::uint64_t size = std::min(kWord, bytes - word);
    if (std::memcmp(before + word, after + word, size) != 0) differs(word, word + size);
  }
  if (begin != end) emit(begin, end - begin);
}

}  // namespace memlith::sqlite
