// Units that must not be mixed up. Floor: base.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace memlith::core {

// Log sequence number: the byte offset of a frame in the endless logical log. LSNs only rise, and none is used twice
// for acknowledged frames.
struct Lsn {
  std::uint64_t value = 0;
  [[nodiscard]] constexpr Lsn advance(std::uint64_t bytes) const { return Lsn{value + bytes}; }
  friend constexpr auto operator<=>(const Lsn&, const Lsn&) = default;
};
constexpr std::uint64_t bytes_between(Lsn begin, Lsn end) { return end.value - begin.value; }

// An object of a store. 0 is the directory of objects; numbers are never used again.
struct ObjectId {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(const ObjectId&, const ObjectId&) = default;
};

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

// The page of stores and regions, on every machine. The kernel's pages may be larger (base/host.hpp).
inline constexpr std::uint64_t kPageBytes = 4096;

// `unit` is a power of two.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) & ~(unit - 1); }
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) { return value & ~(unit - 1); }
constexpr bool is_power_of_two(std::uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace memlith::core
