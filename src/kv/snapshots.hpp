// Which states of a kv store are being read: the stamps of the snapshots that are active. Floor: kv.
//
// Readers come and go without waiting for each other: each takes a slot of its own, near the one that its thread had
// before. When all slots are taken, further ones stand in a list under a mutex.
//
// Dekker: a reader adds its stamp first and looks then whether a commit has begun; a commit says first that it begins
// and looks for readers then. One of them sees the other. So all that follows is sequentially consistent.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/assert.hpp"
#include "base/sync.hpp"
#include "region/thread_number.hpp"

namespace memlith::core::kv {

using Stamp = std::uint64_t;

// Threads: any. Stamps are not 0.
class Snapshots {
 public:
  static constexpr std::size_t kSlots = 32;
  // Where a stamp stands.
  struct StampSlot {
    std::size_t slot = kSlots;  // kSlots: in the list
    Stamp stamp = 0;
  };

  // Errors: no memory, as an exception.
  StampSlot add(Stamp stamp) {
    MEMLITH_ASSERT(stamp != 0);
    const std::size_t first = this_thread_number() % kSlots;
    for (std::size_t i = 0; i < kSlots; ++i) {
      const std::size_t at = (first + i) % kSlots;
      Stamp none = 0;
      if (slots_[at].stamp.load(std::memory_order_relaxed) != 0) continue;
      if (!slots_[at].stamp.compare_exchange_strong(none, stamp)) continue;
      raise_end(at + 1);
      return {at, stamp};
    }
    const LockGuard lock(mutex_);
    further_.push_back(stamp);
    ++further_count_;
    return {kSlots, stamp};
  }
  void remove(const StampSlot& at) {
    if (at.slot < kSlots) {
      MEMLITH_ASSERT(slots_[at.slot].stamp.load(std::memory_order_relaxed) == at.stamp);
      return slots_[at.slot].stamp.store(0);
    }
    const LockGuard lock(mutex_);
    const auto found = std::find(further_.begin(), further_.end(), at.stamp);
    MEMLITH_ASSERT(found != further_.end());
    further_.erase(found);
    --further_count_;
  }
  // Calls see(stamp) for each that is active, in no order.
  template <class See>
  void for_each(See&& see) {
    const std::size_t end = end_.load();
    for (std::size_t i = 0; i < end; ++i) {
      if (const Stamp stamp = slots_[i].stamp.load(); stamp != 0) see(stamp);
    }
    if (further_count_.load() == 0) return;
    const LockGuard lock(mutex_);
    for (const Stamp stamp : further_) see(stamp);
  }
  // 0: none is active.
  Stamp newest() {
    Stamp found = 0;
    for_each([&](Stamp stamp) { found = std::max(found, stamp); });
    return found;
  }
  // ~0: none is active.
  Stamp oldest() {
    Stamp found = ~Stamp{0};
    for_each([&](Stamp stamp) { found = std::min(found, stamp); });
    return found;
  }

 private:
  struct alignas(64) Slot {
    std::atomic<Stamp> stamp{0};  // 0: free
  };
  void raise_end(std::size_t end) {
    std::size_t now = end_.load();
    while (now < end && !end_.compare_exchange_weak(now, end)) {
    }
  }

  std::array<Slot, kSlots> slots_;
  std::atomic<std::size_t> end_{0};  // no slot from here on was ever taken
  std::atomic<std::size_t> further_count_{0};
  Mutex mutex_;
  std::vector<Stamp> further_ MEMLITH_GUARDED_BY(mutex_);
};

}  // namespace memlith::core::kv
