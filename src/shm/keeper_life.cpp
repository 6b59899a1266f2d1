#include "shm/keeper_life.hpp"

#include <linux/futex.h>

namespace memlith::core::shm {

Status KeeperLife::begin() {
  pthread_mutexattr_t attributes;
  bool made = ::pthread_mutexattr_init(&attributes) == 0;
  if (made) {
    made = ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
           ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
           ::pthread_mutex_init(&mutex_, &attributes) == 0 && ::pthread_mutex_lock(&mutex_) == 0;
    ::pthread_mutexattr_destroy(&attributes);
  }
  if (made) return kOk;
  return fail(Errc::unsupported, Detail::mapping, "this system has no mutexes that processes can share");
}

void KeeperLife::end() {
  say_ended();
  ::pthread_mutex_unlock(&mutex_);
}

bool KeeperLife::lasts() const {
  if (ended_.load(std::memory_order_acquire) != 0) return false;
  const auto word = static_cast<std::uint32_t>(__atomic_load_n(&mutex_.__data.__lock, __ATOMIC_ACQUIRE));
  return (word & FUTEX_OWNER_DIED) == 0 && (word & FUTEX_TID_MASK) != 0;
}

}  // namespace memlith::core::shm
