// The clock of all measurements: CLOCK_MONOTONIC in nanoseconds; and the calendar's.
#pragma once

#include <cstdint>
#include <ctime>

namespace memlith::tool {

inline constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

inline std::uint64_t now_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<std::uint64_t>(time.tv_nsec);
}

// The calendar's clock, to say how long ago something was.
inline std::uint64_t now_since_1970_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<std::uint64_t>(time.tv_nsec);
}

inline double seconds_of(std::uint64_t ns) { return static_cast<double>(ns) / static_cast<double>(kNsPerSecond); }

}  // namespace memlith::tool
