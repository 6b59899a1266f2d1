// Times of the interface. Floor: capi.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace memlith::core {

// More than kMost is as good as without end; that can be added to a point of time.
inline std::chrono::milliseconds milliseconds_of(std::uint64_t count) {
  constexpr std::uint64_t kMost = 1ull << 40;
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(count, kMost)));
}

}  // namespace memlith::core
