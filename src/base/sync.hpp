// Locks, beside the threads, mutexes and atomics of base/threads.hpp. Floor: base.
#pragma once

#include <mutex>
#include <shared_mutex>
#include <utility>

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

// Holds a mutex, or none, until it is released or gone; it can be moved. For a hold that does not follow a block: of as
// many mutexes as a list has, of one that is locked only at need, or from one call to another. The analysis does not
// see the hold: code that relies on it says mutex.assert_held().
class KeptLock {
 public:
  KeptLock() = default;
  explicit KeptLock(Mutex& mutex) MEMLITH_NO_THREAD_SAFETY_ANALYSIS : mutex_(&mutex) { mutex.lock(); }
  KeptLock(KeptLock&& other) noexcept : mutex_(std::exchange(other.mutex_, nullptr)) {}
  KeptLock& operator=(KeptLock&& other) noexcept {
    release();
    mutex_ = std::exchange(other.mutex_, nullptr);
    return *this;
  }
  ~KeptLock() { release(); }
  [[nodiscard]] bool holds() const { return mutex_ != nullptr; }
  [[nodiscard]] bool holds(const Mutex& mutex) const { return mutex_ == &mutex; }
  void release() noexcept MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
    if (mutex_ != nullptr) std::exchange(mutex_, nullptr)->unlock();
  }

 private:
  Mutex* mutex_ = nullptr;
};

// A mutex that several threads may share. No controller takes it over: it is for code below the simulated disk, and for
// what belongs to the whole process.
class MEMLITH_CAPABILITY("mutex") SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;
  void lock() MEMLITH_ACQUIRE() { real_.lock(); }
  void unlock() MEMLITH_RELEASE() { real_.unlock(); }
  void lock_shared() MEMLITH_ACQUIRE_SHARED() { real_.lock_shared(); }
  void unlock_shared() MEMLITH_RELEASE_SHARED() { real_.unlock_shared(); }

 private:
  std::shared_mutex real_;
};

// Holds the mutex for as long as it lives, alone or with others.
class MEMLITH_SCOPED_CAPABILITY ExclusiveLock {
 public:
  explicit ExclusiveLock(SharedMutex& mutex) MEMLITH_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~ExclusiveLock() MEMLITH_RELEASE() { mutex_.unlock(); }
  ExclusiveLock(const ExclusiveLock&) = delete;
  ExclusiveLock& operator=(const ExclusiveLock&) = delete;

 private:
  SharedMutex& mutex_;
};
class MEMLITH_SCOPED_CAPABILITY SharedLock {
 public:
  explicit SharedLock(SharedMutex& mutex) MEMLITH_ACQUIRE_SHARED(mutex) : mutex_(mutex) { mutex_.lock_shared(); }
  ~SharedLock() MEMLITH_RELEASE() { mutex_.unlock_shared(); }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

 private:
  SharedMutex& mutex_;
};

}  // namespace memlith::core
