// Notifies the owner of an eventfd that more has become durable. Floor: store.
#pragma once

#include <sys/eventfd.h>

#include <atomic>

#include "base/sync.hpp"

namespace memlith::core {

// Threads: any.
class DurableEvent {
 public:
  // -1 for none. When this returns, the previous eventfd is not used any more: its owner may close it, and its number
  // may be reused.
  void set(int fd) {
    const LockGuard lock(mutex_);
    fd_.store(fd, std::memory_order_relaxed);
  }
  void raise() {
    if (fd_.load(std::memory_order_relaxed) < 0) return;
    const LockGuard lock(mutex_);
    const int fd = fd_.load(std::memory_order_relaxed);
    if (fd >= 0) (void)::eventfd_write(fd, 1);
  }

 private:
  Mutex mutex_;  // held while the eventfd is raised
  std::atomic<int> fd_{-1};
};

}  // namespace memlith::core
