// The two builds of XXH3 behind checksum.hpp, one per instruction set. Floor: base, private to it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlith::core::detail {

struct ChecksumFunctions {
  std::uint64_t (*hash)(const void* bytes, std::size_t count, std::uint64_t seed);
  void (*reset)(void* state, std::uint64_t seed);
  void (*update)(void* state, const void* bytes, std::size_t count);
  std::uint64_t (*digest)(const void* state);
  std::size_t state_bytes;
};

const ChecksumFunctions& baseline_checksum();
#if defined(__x86_64__)
const ChecksumFunctions& avx2_checksum();
#endif

}  // namespace memlith::core::detail
