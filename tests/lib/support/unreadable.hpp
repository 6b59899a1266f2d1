// Pages that the disk does not give back, as far as a process can tell.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/host.hpp"
#include "base/pages.hpp"
#include "region/region.hpp"

namespace memlith::test {

// As long as the region is open, a use of the kernel's page at that offset raises SIGBUS: it is mapped from a file that
// is empty.
inline void make_unreadable(const core::Region& region, std::uint64_t offset) {
  const std::uint64_t bytes = core::host_page_bytes();
  const int empty = ::memfd_create("empty", MFD_CLOEXEC);
  ASSERT_GE(empty, 0);
  void* const at = region.address() + core::round_down(offset, bytes);
  ASSERT_EQ(::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, empty, 0), at);
  ::close(empty);
}

// Before Linux 5.14 the signal comes.
inline bool unreadable_pages_are_told() {
  const int empty = ::memfd_create("empty", MFD_CLOEXEC);
  const std::uint64_t bytes = core::host_page_bytes();
  void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, empty, 0);
  ::close(empty);
  const bool told = !core::load_pages(static_cast<std::byte*>(at), bytes);
  ::munmap(at, bytes);
  return told;
}

}  // namespace memlith::test
