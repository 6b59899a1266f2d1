// Decides when private copies have to be released. Floor: base.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace memlith::core {

// The memory that this process may have, in bytes: the smallest limit of its control groups, else the machine's.
// `root`: the folder that has `proc` and `sys`.
std::uint64_t memory_allowed(const std::string& root = "");

// The part of it that is for the stores of the process.
std::uint64_t memory_for_stores();

// A captured page is in memory twice, as the private copy and in the page cache of the home file, so half of the budget
// is for the copies. Threads: any.
class MemoryBudget {
 public:
  // 0: this budget and the others of the process that were made so share memory_for_stores().
  explicit MemoryBudget(std::uint64_t told_bytes);
  ~MemoryBudget();
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  [[nodiscard]] bool told() const { return told_; }
  // By so much more copies have to grow after a release that left too many.
  [[nodiscard]] std::uint64_t step() const { return max_bytes() / 8; }
  // The part of the budget that copies may take.
  [[nodiscard]] std::uint64_t copied_max() const { return max_bytes() / 2; }
  [[nodiscard]] bool used_up(std::uint64_t copied_bytes) const { return copied_bytes >= copied_max(); }

 private:
  [[nodiscard]] std::uint64_t max_bytes() const {
    return told_ ? max_bytes_ : max_bytes_ / sharing_.load(std::memory_order_relaxed);
  }

  static inline std::atomic<std::uint64_t> sharing_{0};  // budgets of the process that were not told
  const bool told_;
  const std::uint64_t max_bytes_;
};

}  // namespace memlith::core
