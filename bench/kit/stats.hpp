// Percentiles of latencies, by nearest rank: the value shown was really measured, nothing is interpolated.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace memlith::tool {

struct Percentiles {
  double p50_us = 0;
  double p99_us = 0;
  double p999_us = 0;
};

// The smallest value that at least the share `rank` of all values does not exceed; 0 where there are none.
template <class T>
[[nodiscard]] T nearest_rank(const std::vector<T>& sorted, double rank) {
  if (sorted.empty()) return T{};
  const auto position = static_cast<std::size_t>(std::ceil(rank * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(position, 1, sorted.size()) - 1];
}

[[nodiscard]] inline Percentiles percentiles_of(std::vector<std::uint64_t> samples_ns) {
  std::sort(samples_ns.begin(), samples_ns.end());
  const auto at = [&samples_ns](double rank) { return static_cast<double>(nearest_rank(samples_ns, rank)) / 1000.0; };
  return {at(0.5), at(0.99), at(0.999)};
}

template <class T>
[[nodiscard]] T median_of(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  return nearest_rank(values, 0.5);
}

// The ratio where there is nothing to divide by: 0, which no measurement gives.
[[nodiscard]] inline double ratio_of(double value, double base) { return base > 0 ? value / base : 0; }

// To three places, which is more than any measurement here is good for.
[[nodiscard]] inline double rounded(double value) {
  return static_cast<double>(static_cast<std::int64_t>(value * 1000 + 0.5)) / 1000;
}

}  // namespace memlith::tool
