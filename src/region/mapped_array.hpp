// Memory for arrays that are large and mostly empty: pages are allocated at the first use and can be released. Floor:
// region.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

#include "base/status.hpp"

namespace memlith::core {

// Zeros. Errors: NO_MEMORY.
template <class T>
Status map_array(T*& array, std::uint64_t count, int protection = PROT_READ | PROT_WRITE) {
  MEMLITH_ASSERT(array == nullptr && count > 0);
  void* const memory =
      ::mmap(nullptr, count * sizeof(T), protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail_errno(errno, Detail::tracker, "no memory for an array of {} times {} bytes", count, sizeof(T));
  }
  array = static_cast<T*>(memory);
  return kOk;
}

template <class T>
void unmap_array(T* array, std::uint64_t count) {
  if (array != nullptr) ::munmap(static_cast<void*>(array), count * sizeof(T));
}

}  // namespace memlith::core
