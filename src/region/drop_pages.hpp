// Drops pages of a private mapping, so that they are read from home again at the next use. Floor: region.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24  // Linux 5.18
#endif

namespace memlith::core {

// False, with errno; also for pages that the program has locked in memory (mlock), if the kernel is too old.
inline bool drop_pages(std::byte* at, std::uint64_t bytes) {
  if (::madvise(at, bytes, MADV_DONTNEED) == 0) return true;
  return errno == EINVAL && ::madvise(at, bytes, MADV_DONTNEED_LOCKED) == 0;
}

}  // namespace memlith::core
