#include "shared_index.hpp"

#include <atomic>
#include <cstddef>

#include "wal_format.hpp"

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

void SharedIndex::restart() {
  const std::lock_guard lock(mutex_);
  if (regions_.empty()) return;
  // The header has 48 bytes, and a second copy follows it.
  constexpr std::size_t kWords = 12;
  auto* const words = reinterpret_cast<volatile std::uint32_t*>(regions_[0].get());
  std::uint32_t header[kWords] = {kIndexVersion, 0, words[2] + 1};  // the number of changes
  auto* const bytes = reinterpret_cast<std::uint8_t*>(header);
  if (const auto* const now = reinterpret_cast<volatile std::uint8_t*>(regions_[0].get()); now[12] == 0) return;
  bytes[12] = 1;  // it is initialized
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  for (std::size_t i = 0; i + 2 < kWords; i += 2) {
    first += header[i] + second;
    second += header[i + 1] + first;
  }
  header[kWords - 2] = first;
  header[kWords - 1] = second;
  // A connection without a lock may be reading. SQLite writes the second copy first, and believes two that are equal.
  for (std::size_t i = 0; i < kWords; ++i) words[kWords + i] = header[i];
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Nothing is in the database; the first reader's mark is 0, and the others are not in use.
  constexpr std::size_t kMarks = 2 * kWords + 1;
  words[2 * kWords] = 0;
  words[kMarks] = 0;
  for (std::size_t i = 1; i < 5; ++i) words[kMarks + i] = 0xffffffff;
  words[kMarks + 7] = 0;  // behind the eight bytes of the locks: what a checkpoint attempted
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (std::size_t i = 0; i < kWords; ++i) words[i] = header[i];
}

void SharedIndex::barrier() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::lock_guard lock(mutex_);  // and what the locks order
}

}  // namespace memlith::sqlite
