// Stores of whole lines that a fence makes durable on byte-addressable memory, by processor. Floor: device.
//
// x86-64: the stores go past the cache, so nothing has to be written back; the fence waits until the memory controller
// has them, which keeps them when the power fails.
// arm64: each line is written back to the point of persistence (DC CVAP, Armv8.2), or of coherency where the processor
// has no other (DC CVAC), as the kernel's own driver does; the barrier waits for that.
#pragma once

#include <cstddef>
#include <cstring>

#include "device/lines.hpp"

#if defined(__x86_64__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstdint>
#endif

namespace memlith::core {

#if defined(__x86_64__)

inline constexpr bool kHasLineStores = true;

inline void store_line(std::byte* to, const std::byte* line) {
  auto* const target = reinterpret_cast<__m128i*>(to);
  const auto* const source = reinterpret_cast<const __m128i*>(line);
  for (int i = 0; i < 4; ++i) _mm_stream_si128(target + i, _mm_loadu_si128(source + i));
}
inline void fence_lines() { _mm_sfence(); }

#elif defined(__aarch64__)

inline constexpr bool kHasLineStores = true;

inline void store_line(std::byte* to, const std::byte* line) {
  static const bool has_persistence = (::getauxval(AT_HWCAP) & HWCAP_DCPOP) != 0;
  static const std::uint64_t step = [] {
    std::uint64_t cache_type = 0;
    asm("mrs %0, ctr_el0" : "=r"(cache_type));
    return std::min<std::uint64_t>(std::uint64_t{4} << (cache_type >> 16 & 0xf), kLineBytes);  // the smallest line
  }();
  std::memcpy(to, line, kLineBytes);
  for (std::byte* at = to; at < to + kLineBytes; at += step) {
    if (has_persistence) {
      asm volatile("sys #3, c7, c12, #1, %0" : : "r"(at) : "memory");  // dc cvap
    } else {
      asm volatile("dc cvac, %0" : : "r"(at) : "memory");
    }
  }
}
inline void fence_lines() { asm volatile("dsb sy" : : : "memory"); }

#else

// No byte-addressable memory is written here: DaxMapping::open() refuses.
inline constexpr bool kHasLineStores = false;
inline void store_line(std::byte* to, const std::byte* line) { std::memcpy(to, line, kLineBytes); }
inline void fence_lines() {}

#endif

}  // namespace memlith::core
