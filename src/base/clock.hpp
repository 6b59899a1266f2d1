// The system's clock. It may be set at any time: for people and records, not for durations. Floor: base.
#pragma once

#include <chrono>
#include <cstdint>

namespace memlith::core {

inline std::uint64_t now_since_1970_ns() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

}  // namespace memlith::core
