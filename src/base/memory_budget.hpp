// Decides when private copies have to be released. Floor: base.
#pragma once

#include <cstdint>

namespace memlith::core {

// A captured page is in memory twice, as the private copy and in the page cache of the home file, so half of the budget
// is for the copies. Constant after construction.
class MemoryBudget {
 public:
  MemoryBudget() = default;                                                  // no limit
  explicit MemoryBudget(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}  // 0: no limit

  [[nodiscard]] bool limited() const { return max_bytes_ != 0; }
  // By so much more copies have to grow after a release that left too many.
  [[nodiscard]] std::uint64_t step() const { return max_bytes_ / 8; }
  // True if `copied_bytes` exceed the half of the budget that copies may take.
  [[nodiscard]] bool used_up(std::uint64_t copied_bytes) const { return limited() && copied_bytes >= max_bytes_ / 2; }

 private:
  std::uint64_t max_bytes_ = 0;
};

}  // namespace memlith::core
