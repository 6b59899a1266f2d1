// Pages of a private mapping: dropped, so that they are read from home again at the next use, or copied before the
// first store. Floor: region.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "region/tracker.hpp"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24  // Linux 5.18
#endif

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace memlith::core {

// Copies the pages of a home that is slower than memory, so that no load goes there. If the kernel refuses, a page is
// copied at the first store to it, as ever.
inline void copy_pages(std::byte* at, std::uint64_t bytes) { (void)::madvise(at, bytes, MADV_POPULATE_WRITE); }

// False, with errno; also for pages that the program has locked in memory (mlock), if the kernel is too old.
inline bool drop_pages(std::byte* at, std::uint64_t bytes) {
  if (::madvise(at, bytes, MADV_DONTNEED) == 0) return true;
  return errno == EINVAL && ::madvise(at, bytes, MADV_DONTNEED_LOCKED) == 0;
}

// Tracker::restore() without marks: drops whole pages if they are at home, and reads the rest.
inline Status restore_or_drop(std::byte* base, Range range, const Tracker::ReadHome& read, bool at_home) {
  const std::uint64_t end = range.offset + range.bytes;
  const std::uint64_t first = std::min(round_up(range.offset, kPageBytes), end);
  const std::uint64_t last = std::max(round_down(end, kPageBytes), first);
  const bool dropped = at_home && first < last && drop_pages(base + first, last - first);
  const auto read_part = [&](std::uint64_t from, std::uint64_t to) {
    return from < to ? read(from, {base + from, to - from}) : kOk;
  };
  if (!dropped) return read_part(range.offset, end);
  MEMLITH_TRY(read_part(range.offset, first));
  return read_part(last, end);
}

}  // namespace memlith::core
