// Pages of a private mapping of a file: dropped, so that they are read from the file again at the next use; read before
// the first use; or copied before the first store. Floor: base.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

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

// The same for many ranges, at most 1024. By one call where the kernel has it (Linux 6.15), because each call makes the
// other processors forget their translations, which takes longer than all else.
inline bool drop_pages(std::span<const iovec> ranges) {
  constexpr int kOwnProcess = -10000;  // PIDFD_SELF of newer headers
  std::size_t bytes = 0;
  for (const iovec& each : ranges) bytes += each.iov_len;
  const bool at_once = ranges.size() > 1;
  if (at_once && ::syscall(SYS_process_madvise, kOwnProcess, ranges.data(), ranges.size(), MADV_DONTNEED, 0) ==
                     static_cast<long>(bytes)) {
    return true;
  }
  return std::ranges::all_of(ranges, [](const iovec& each) {
    return drop_pages(static_cast<std::byte*>(each.iov_base), each.iov_len);
  });
}

}  // namespace memlith::core
