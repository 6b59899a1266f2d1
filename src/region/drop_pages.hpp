// Pages of a private mapping: dropped, so that they are read from home again at the next use, read before the first
// use, or copied before the first store. Floor: region.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "base/host.hpp"
#include "region/tracker.hpp"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24  // Linux 5.18
#endif

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ 22  // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif

namespace memlith::core {

// Copies the pages of a home that is slower than memory, so that no load goes there. If the kernel refuses, a page is
// copied at the first store to it, as ever.
inline void copy_pages(std::byte* at, std::uint64_t bytes) { (void)::madvise(at, bytes, MADV_POPULATE_WRITE); }

// Reads the kernel's pages of the range. False, with errno: the disk does not give one of them back, and its use would
// raise SIGBUS. True, too, if the kernel does not try: the use shows then how the page is.
inline bool load_pages(std::byte* at, std::uint64_t bytes) {
  if (::madvise(at, bytes, MADV_POPULATE_READ) == 0) return true;
  return errno != EFAULT && errno != EHWPOISON && errno != EIO;
}

// The kernel's pages that lie in the range completely.
inline Range host_pages_in(Range range) {
  const std::uint64_t begin = round_up(range.offset, host_page_bytes());
  return {begin, std::max(round_down(range.offset + range.bytes, host_page_bytes()), begin) - begin};
}

// The kernel's pages that hold a byte of the range.
inline Range host_pages_around(Range range) {
  const std::uint64_t begin = round_down(range.offset, host_page_bytes());
  return {begin, round_up(range.offset + range.bytes, host_page_bytes()) - begin};
}

// False, with errno; also for what is no whole pages of the kernel's, and for pages that the program has locked in
// memory (mlock), if the kernel is too old.
inline bool drop_pages(std::byte* at, std::uint64_t bytes) {
  if ((reinterpret_cast<std::uintptr_t>(at) | bytes) % host_page_bytes() != 0) {
    errno = EINVAL;
    return false;
  }
  if (::madvise(at, bytes, MADV_DONTNEED) == 0) return true;
  return errno == EINVAL && ::madvise(at, bytes, MADV_DONTNEED_LOCKED) == 0;
}

// Tracker::restore() without marks: drops whole pages if they are at home, and reads the rest.
inline Status restore_or_drop(std::byte* base, Range range, const Tracker::ReadHome& read, bool at_home) {
  const std::uint64_t end = range.offset + range.bytes;
  const Range whole = host_pages_in(range);
  MEMLITH_ASSERT(whole.bytes == 0 || (range.offset <= whole.offset && whole.offset + whole.bytes <= end));
  const bool dropped = at_home && whole.bytes > 0 && drop_pages(base + whole.offset, whole.bytes);
  const auto read_part = [&](std::uint64_t from, std::uint64_t to) {
    return from < to ? read(from, {base + from, to - from}) : kOk;
  };
  if (!dropped) return read_part(range.offset, end);
  MEMLITH_TRY(read_part(range.offset, whole.offset));
  return read_part(whole.offset + whole.bytes, end);
}

}  // namespace memlith::core
