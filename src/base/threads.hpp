// Threads, mutexes, condition variables and atomics under our own names: those of the standard library, with the
// annotations of base/thread_annotations.hpp on mutexes. base/sync.hpp has the locks. Floor: base.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/assert.hpp"
#include "base/thread_annotations.hpp"

namespace memlith::core {

class MEMLITH_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() MEMLITH_ACQUIRE() { real_.lock(); }
  bool try_lock() MEMLITH_TRY_ACQUIRE(true) { return real_.try_lock(); }
  void unlock() MEMLITH_RELEASE() { real_.unlock(); }
  // The caller holds the mutex, which the analysis cannot see (KeptLock in base/sync.hpp). A debug build checks that
  // the mutex is locked.
  void assert_held() MEMLITH_ASSERT_CAPABILITY(this) {
    MEMLITH_DCHECK(pthread_mutex_trylock(real_.native_handle()) == EBUSY);
  }

 private:
  friend class ConditionVariable;
  std::mutex real_;
};

// A wait unlocks the mutex, and has locked it again when it returns. The predicate is called with the mutex locked and
// is annotated with it: [this]() MEMLITH_REQUIRES(mutex_) { ... }.
class ConditionVariable {
 public:
  template <class Predicate>
  void wait(Mutex& mutex, Predicate predicate) MEMLITH_REQUIRES(mutex) {
    std::unique_lock<std::mutex> real(mutex.real_, std::adopt_lock);
    while (!call_annotated(predicate)) real_.wait(real);
    real.release();
  }
  // False: timed out, and the predicate does not hold.
  template <class Rep, class Period, class Predicate>
  bool wait_for(Mutex& mutex, std::chrono::duration<Rep, Period> time, Predicate predicate) MEMLITH_REQUIRES(mutex) {
    std::unique_lock<std::mutex> real(mutex.real_, std::adopt_lock);
    const bool holds = real_.wait_for(real, time, [&predicate] { return call_annotated(predicate); });
    real.release();
    return holds;
  }
  void notify_one() { real_.notify_one(); }
  void notify_all() { real_.notify_all(); }

 private:
  std::condition_variable real_;
};

using Thread = std::thread;
template <class T>
using Atomic = std::atomic<T>;
using SteadyClock = std::chrono::steady_clock;
inline void yield_thread() { std::this_thread::yield(); }
inline unsigned processors() { return std::thread::hardware_concurrency(); }

}  // namespace memlith::core
