// Pages of a private mapping of a file: dropped, so that they are read from the file again at the next use; read before
// the first use; or copied before the first store. Floor: base.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "base/host.hpp"

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

}  // namespace memlith::core
