// When a user of private copies has to give their memory back. Floor: base.
#pragma once

#include <cstdint>

namespace memlith::core {

// What was captured stands in memory twice, in the private copy and in the page cache of the home file, so half of the budget is for
// the copies. Constant once it was made.
class MemoryBudget {
 public:
  MemoryBudget() = default;                                                  // no limit
  explicit MemoryBudget(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}  // 0: no limit

  [[nodiscard]] bool limited() const { return max_bytes_ != 0; }
  // Whether copies of `copied_bytes`, made since memory was given back, are more than the budget has room for.
  [[nodiscard]] bool used_up(std::uint64_t copied_bytes) const { return limited() && copied_bytes >= max_bytes_ / 2; }

 private:
  std::uint64_t max_bytes_ = 0;
};

}  // namespace memlith::core
