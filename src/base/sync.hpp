// Locks, beside the threads, mutexes and atomics of base/threads.hpp. Floor: base.
#pragma once

#include <mutex>

#include "base/thread_annotations.hpp"
#include "base/threads.hpp"

namespace memlith::core {

// Holds the mutex for as long as it lives.
class MEMLITH_SCOPED_CAPABILITY LockGuard {
 public:
  explicit LockGuard(Mutex& mutex) MEMLITH_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  LockGuard(Mutex& mutex, std::adopt_lock_t) MEMLITH_REQUIRES(mutex) : mutex_(mutex) {}  // locked by try_lock()
  ~LockGuard() MEMLITH_RELEASE() { mutex_.unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  Mutex& mutex_;
};

// The same, and it can unlock the mutex and lock it again.
class MEMLITH_SCOPED_CAPABILITY UniqueLock {
 public:
  explicit UniqueLock(Mutex& mutex) MEMLITH_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~UniqueLock() MEMLITH_RELEASE() {
    if (held_) mutex_.unlock();
  }
  UniqueLock(const UniqueLock&) = delete;
  UniqueLock& operator=(const UniqueLock&) = delete;
  void lock() MEMLITH_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }
  void unlock() MEMLITH_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

}  // namespace memlith::core
