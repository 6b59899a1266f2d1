// MEMLITH_VERIFY_TRACKING=1: a copy of a region is compared with the region at each persist, and every change that no
// instrumented code recorded is reported on standard error. Floor: region. For tests: a persist reads the whole region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "region/tracker.hpp"

namespace memlith::core {

class TrackingCheck {
 public:
  // True if the environment asks for checks.
  static bool is_wanted();
  static Result<std::unique_ptr<TrackingCheck>> make(const TrackedMemory& memory);
  ~TrackingCheck();
  TrackingCheck(const TrackingCheck&) = delete;
  TrackingCheck& operator=(const TrackingCheck&) = delete;

  // Reports what changed in the first `bytes` bytes since the last call and lies outside of the ranges that `recorded`
  // returns. Another thread may be about to record a store, so `recorded` is asked again before a report.
  void compare(std::uint64_t bytes, const std::function<std::vector<Range>()>& recorded);
  // The range was changed by memlith itself.
  void forgive(Range range);

 private:
  TrackingCheck(const std::byte* base, std::uint64_t capacity_bytes) : base_(base), capacity_bytes_(capacity_bytes) {}
  [[nodiscard]] std::vector<Range> unrecorded(std::uint64_t bytes, std::vector<Range> recorded) const;

  const std::byte* base_;
  std::uint64_t capacity_bytes_;
  std::byte* copy_ = nullptr;
};

}  // namespace memlith::core
