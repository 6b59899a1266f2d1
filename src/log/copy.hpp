// Copying scattered bytes into the log. Floor: log.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/units.hpp"

namespace memlith::core {

inline constexpr std::uint64_t kFewBytes = 16;

// Copies up to kFewBytes without a call.
inline void copy_few(std::byte* target, const std::byte* source, std::uint64_t count) {
  const auto both_ends = [=]<class Word>(Word first) {
    Word last;
    std::memcpy(&first, source, sizeof first);
    std::memcpy(&last, source + count - sizeof last, sizeof last);
    std::memcpy(target, &first, sizeof first);
    std::memcpy(target + count - sizeof last, &last, sizeof last);
  };
  if (count >= sizeof(std::uint64_t)) return both_ends(std::uint64_t{});
  if (count >= sizeof(std::uint32_t)) return both_ends(std::uint32_t{});
  for (std::uint64_t i = 0; i < count; ++i) target[i] = source[i];
}

// The sources lie scattered, and the processor cannot predict the next one: the beginning of `next` is fetched while
// the end of `source` is copied.
inline void copy_and_fetch(std::byte* target, const std::byte* source, std::uint64_t count,
                           std::span<const std::byte> next) {
  constexpr std::uint64_t kStep = 512;
  constexpr std::uint64_t kCacheLineBytes = 64;
  std::uint64_t done = count - std::min(count, kPageBytes);
  if (done > 0) std::memcpy(target, source, done);
  std::uint64_t fetched = 0;
  for (; done < count; done += kStep) {
    const std::uint64_t fetch_end = std::min<std::uint64_t>(next.size(), fetched + kStep);
    for (; fetched < fetch_end; fetched += kCacheLineBytes) __builtin_prefetch(next.data() + fetched);
    std::memcpy(target + done, source + done, std::min(kStep, count - done));
  }
}

}  // namespace memlith::core
