// Where two stretches of memory differ. Part of the SQLite plugin.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace memlith::sqlite {

// An extent costs a record of 16 bytes in the log, so runs that are nearer than this are told as one.
inline constexpr std::uint64_t kJoinBytes = 24;

// 64 bytes, without a branch.
inline bool same_block(const std::byte* one, const std::byte* other) {
  std::uint64_t a[8];
  std::uint64_t b[8];
  std::memcpy(a, one, sizeof a);
  std::memcpy(b, other, sizeof b);
  std::uint64_t differing = 0;
  for (int i = 0; i < 8; ++i) differing |= a[i] ^ b[i];
  return differing == 0;
}

// Calls emit(begin, bytes) for each run in which they differ, in order. Runs are found by words of 8 bytes.
template <class Emit>
void for_each_difference(const std::byte* before, const std::byte* after, std::uint64_t bytes, Emit emit) {
  constexpr std::uint64_t kBlock = 64;
  constexpr std::uint64_t kWord = 8;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // of the run that is open; begin == end: none
  for (std::uint64_t block = 0; block < bytes; block += kBlock) {
    const std::uint64_t here = std::min(kBlock, bytes - block);
    if (here == kBlock && same_block(before + block, after + block)) continue;
    for (std::uint64_t word = block; word < block + here; word += kWord) {
      const std::uint64_t size = std::min(kWord, block + here - word);
      if (std::memcmp(before + word, after + word, size) == 0) continue;
      if (begin != end && word - end > kJoinBytes) {
        emit(begin, end - begin);
        begin = word;
      } else if (begin == end) {
        begin = word;
      }
      end = word + size;
    }
  }
  if (begin != end) emit(begin, end - begin);
}

}  // namespace memlith::sqlite
