// Counts this thread's allocations, and lets one of them fail. Replaces the program's operators new and delete, so one
// file of a program includes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

// ThreadSanitizer's runtime under clang has these operators linked in for good; its own allocator cannot be counted.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MEMLITH_CANNOT_COUNT
#endif
#endif

namespace memlith::test {
#ifdef MEMLITH_CANNOT_COUNT
inline constexpr bool kCountsAllocations = false;
#else
inline constexpr bool kCountsAllocations = true;
#endif
inline thread_local std::uint64_t allocations = 0;
inline thread_local std::uint64_t fails_in = 0;  // the so-manieth from now on throws; 0: none
inline thread_local bool keeps_failing = false;  // and all behind it
inline thread_local std::uint64_t failures = 0;
inline thread_local void (*at_each)() = nullptr;

inline void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  if (at_each != nullptr) at_each();
  if (fails_in > 0 && --fails_in == 0) {
    fails_in = keeps_failing ? 1 : 0;
    ++failures;
    throw std::bad_alloc();
  }
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(bytes)
                           : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace memlith::test

#ifndef MEMLITH_CANNOT_COUNT
// Not inlined, or the compiler sees free() meet operator new and warns.
#define MEMLITH_REPLACED [[gnu::noinline]]
MEMLITH_REPLACED void* operator new(std::size_t bytes) { return memlith::test::counted(bytes, 0); }
MEMLITH_REPLACED void* operator new[](std::size_t bytes) { return memlith::test::counted(bytes, 0); }
MEMLITH_REPLACED void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return memlith::test::counted(bytes, static_cast<std::size_t>(alignment));
}
MEMLITH_REPLACED void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return memlith::test::counted(bytes, static_cast<std::size_t>(alignment));
}
MEMLITH_REPLACED void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return memlith::test::counted(bytes, 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
MEMLITH_REPLACED void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return operator new(bytes, std::nothrow);
}
MEMLITH_REPLACED void operator delete(void* memory) noexcept { std::free(memory); }
MEMLITH_REPLACED void operator delete[](void* memory) noexcept { std::free(memory); }
MEMLITH_REPLACED void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
MEMLITH_REPLACED void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
MEMLITH_REPLACED void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
MEMLITH_REPLACED void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
MEMLITH_REPLACED void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
MEMLITH_REPLACED void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif
