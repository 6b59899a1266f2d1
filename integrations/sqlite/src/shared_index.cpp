#include "shared_index.hpp"

#include <atomic>
#include <cstddef>

namespace memlith::sqlite {

namespace {
std::uint8_t bits(int first, int count) { return static_cast<std::uint8_t>(((1 << count) - 1) << first); }
}  // namespace

void SharedIndex::join() {
  const std::lock_guard lock(mutex_);
  ++users_;
}

void SharedIndex::leave() {
  const std::lock_guard lock(mutex_);
  if (--users_ == 0) regions_.clear();
}

volatile void* SharedIndex::map(int region, int region_bytes, bool extend) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(region);
  if (index >= regions_.size() && !extend) return nullptr;
  while (index >= regions_.size()) {
    regions_.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(region_bytes)));  // zeros
  }
  return regions_[index].get();
}

bool SharedIndex::lock(Locks& mine, int first, int count, bool exclusive) {
  const std::lock_guard lock(mutex_);
  const std::uint8_t wanted = bits(first, count);
  for (int i = first; i < first + count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto bit = static_cast<std::uint8_t>(1 << i);
    const bool is_held = exclusive_[at] || (exclusive && shared_[at] > 0);
    const bool is_mine = ((exclusive ? mine.exclusive : mine.shared) & bit) != 0;
    if (is_held && !is_mine) return false;
  }
  for (int i = first; i < first + count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto bit = static_cast<std::uint8_t>(1 << i);
    if (exclusive) {
      exclusive_[at] = true;
    } else if ((mine.shared & bit) == 0) {
      ++shared_[at];
    }
  }
  (exclusive ? mine.exclusive : mine.shared) |= wanted;
  return true;
}

void SharedIndex::unlock(Locks& mine, int first, int count) {
  const std::lock_guard lock(mutex_);
  for (int i = first; i < first + count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto bit = static_cast<std::uint8_t>(1 << i);
    if ((mine.exclusive & bit) != 0) exclusive_[at] = false;
    if ((mine.shared & bit) != 0) --shared_[at];
  }
  const auto kept = static_cast<std::uint8_t>(~bits(first, count));
  mine.exclusive &= kept;
  mine.shared &= kept;
}

void SharedIndex::barrier() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::lock_guard lock(mutex_);  // and what the locks order
}

}  // namespace memlith::sqlite
