// Percentiles of a histogram are those of the times themselves, to a sixteenth.
#include "base/latency_histogram.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/random.hpp"

namespace memlith::test {
namespace {

using namespace core;

// Percentiles are those of the sorted times, to a sixteenth.
TEST(LatencyHistogram, AgreesWithSortedTimes) {
  Random random(3);
  for (const std::uint64_t most : {20ull, 1'000ull, 5'000'000ull, 60'000'000'000ull}) {
    auto histogram = std::make_unique<LatencyHistogram>();
    EXPECT_EQ(histogram->percentile_ns(0.5), 0u);
    std::vector<std::uint64_t> times(5000);
    for (std::uint64_t& time : times) histogram->add(time = random.below(most));
    std::sort(times.begin(), times.end());
    EXPECT_EQ(histogram->count(), times.size());
    for (const double share : {0.0, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const std::uint64_t exact = times[static_cast<std::size_t>(share * 4999)];
      const std::uint64_t told = histogram->percentile_ns(share);
      EXPECT_GE(told, exact) << most << " " << share;
      EXPECT_LE(told, exact + exact / 16 + 1) << most << " " << share;
    }
  }
}

// By nearest rank: of few times a high percentile is the longest.
TEST(LatencyHistogram, AHighPercentileOfFewIsTheLongest) {
  auto histogram = std::make_unique<LatencyHistogram>();
  for (const std::uint64_t time : {1, 2, 3, 4, 1'000'000}) histogram->add(time);
  EXPECT_GE(histogram->percentile_ns(0.999), 1'000'000u);
  EXPECT_EQ(histogram->percentile_ns(0.8), 4u);
}

}  // namespace
}  // namespace memlith::test
