#include "base/latency_histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace memlith::core {

std::size_t LatencyHistogram::index_of(std::uint64_t ns) {
  if (ns < kSteps) return static_cast<std::size_t>(ns);
  const auto power = static_cast<std::size_t>(std::bit_width(ns)) - 1;  // 4 or more
  const std::size_t step = (ns >> (power - 4)) & (kSteps - 1);
  return std::min((power - 3) * kSteps + step, kCount - 1);
}

std::uint64_t LatencyHistogram::upper_bound_of(std::size_t index) {
  if (index < kSteps) return index;
  const std::size_t power = index / kSteps + 3;
  return ((kSteps + index % kSteps + 1) << (power - 4)) - 1;
}

std::uint64_t LatencyHistogram::count() const {
  std::uint64_t sum = 0;
  for (const auto& each : counts_) sum += each.load(std::memory_order_relaxed);
  return sum;
}

std::uint64_t LatencyHistogram::percentile_ns(double share) const {
  const std::uint64_t all = count();
  if (all == 0) return 0;
  // By nearest rank.
  const auto wanted =
      std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(all))));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    seen += counts_[i].load(std::memory_order_relaxed);
    if (seen >= wanted) return upper_bound_of(i);
  }
  return upper_bound_of(kCount - 1);
}

}  // namespace memlith::core
