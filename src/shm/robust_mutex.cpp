#include "shm/robust_mutex.hpp"

#include <chrono>

namespace memlith::core::shm {

namespace {

constexpr std::uint32_t kWaiters = 1U << 31;  // one may wait: a wake is needed
constexpr std::uint32_t kDamaged = 1U << 30;  // an owner has died, and the repair has not ended
constexpr std::uint32_t kOwner = (1U << kIdBits) - 1;
static_assert(kOwner < kDamaged);

// A waiter looks this often whether the owner lives.
constexpr auto kLook = std::chrono::milliseconds(2);

}  // namespace

// From the owner in `word`, if it has died. The exchange fails if the mutex has moved on meanwhile.
RobustMutex::Got RobustMutex::take_over(const Participant& self, std::uint32_t word) {
  if (self.lives(word & kOwner)) return Got::nothing;
  // The waiters of the one that died are told by this owner's unlock.
  return word_.compare_exchange_strong(word, self.id() | kWaiters | kDamaged) ? Got::damaged : Got::nothing;
}

RobustMutex::Got RobustMutex::try_to_acquire(const Participant& self) {
  MEMLITH_DCHECK(self.is_of_this_process());
  std::uint32_t word = 0;
  if (word_.compare_exchange_strong(word, self.id())) return Got::whole;
  return take_over(self, word);
}

bool RobustMutex::acquire(const Participant& self) {
  MEMLITH_DCHECK(self.is_of_this_process());
  std::uint32_t word = 0;
  if (word_.compare_exchange_strong(word, self.id())) return false;
  for (;;) {
    if (word == 0) {
      // Others may wait: this one, which has waited, wakes one more than it has to, at most.
      if (word_.compare_exchange_strong(word, self.id() | kWaiters)) return false;
      continue;
    }
    if ((word & kWaiters) == 0) {
      if (!word_.compare_exchange_strong(word, word | kWaiters)) continue;
      word |= kWaiters;
    }
    wait_for_change(word_, word, kLook);
    const std::uint32_t now = word_.load();
    if (now == word && take_over(self, now) == Got::damaged) return true;
    word = word_.load();
  }
}

void RobustMutex::say_mended() {
  std::uint32_t word = word_.load(std::memory_order_relaxed);
  while (!word_.compare_exchange_strong(word, word & ~kDamaged)) {
  }
}

// A process that dies before the wake leaves waiters that look by themselves.
void RobustMutex::unlock() {
  if ((word_.exchange(0) & kWaiters) != 0) wake_one(word_);
}

}  // namespace memlith::core::shm
