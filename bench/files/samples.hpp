// What the programs of `bench files` share: response times, printed as one JSON object, and pseudo-random numbers.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

#include "kit/random.hpp"
#include "kit/stats.hpp"

namespace memlith::tool {

using SampleClock = std::chrono::steady_clock;

[[nodiscard]] inline std::uint64_t ns_since(SampleClock::time_point begin) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(SampleClock::now() - begin)
                                        .count());
}

inline void print_samples(const std::vector<std::uint64_t>& samples_ns, double seconds) {
  const Percentiles all = percentiles_of(samples_ns);
  const double count = static_cast<double>(samples_ns.size());
  const double sum_ns = std::accumulate(samples_ns.begin(), samples_ns.end(), 0.0);
  std::printf("{\"ops_per_s\": %.1f, \"mean_us\": %.2f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f}\n",
              ratio_of(count, seconds), ratio_of(sum_ns / 1000, count), all.p50_us, all.p99_us, all.p999_us);
}

}  // namespace memlith::tool
