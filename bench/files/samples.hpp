// Shared by the programs of `bench files`: response times, printed as one JSON object, and pseudo-random numbers.
#pragma once

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

#include "cli/clock.hpp"
#include "kit/random.hpp"
#include "kit/stats.hpp"

namespace memlith::tool {

inline void print_samples(const std::vector<std::uint64_t>& samples_ns, double seconds) {
  const Percentiles all = percentiles_of(samples_ns);
  const double count = static_cast<double>(samples_ns.size());
  const double sum_ns = std::accumulate(samples_ns.begin(), samples_ns.end(), 0.0);
  std::printf("{\"ops_per_s\": %.1f, \"mean_us\": %.2f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f}\n",
              ratio_of(count, seconds), ratio_of(sum_ns / 1000, count), all.p50_us, all.p99_us, all.p999_us);
}

}  // namespace memlith::tool
