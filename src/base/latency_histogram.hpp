// A histogram of latencies. Floor: base.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace memlith::core {

// It has 16 steps per power of two, so a percentile is off by at most 6 %. Threads: any; the counters are independent
// (relaxed). A histogram may lie in memory that other processes copy (store/stats.hpp); all zeros is an empty
// histogram.
class LatencyHistogram {
 public:
  void add(std::uint64_t ns) { counts_[index_of(ns)].fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t count() const;
  // The time that a share of `share` of all calls took at most; 0 if there were none.
  [[nodiscard]] std::uint64_t percentile_ns(double share) const;

 private:
  static constexpr std::size_t kSteps = 16;
  static constexpr std::size_t kCount = 40 * kSteps;
  static std::size_t index_of(std::uint64_t ns);
  static std::uint64_t upper_bound_of(std::size_t index);
  std::array<std::atomic<std::uint64_t>, kCount> counts_;
};

}  // namespace memlith::core
