// Threads, mutexes, condition variables and atomics under our own names: those of the standard library, with the
// annotations of base/thread_annotations.hpp on mutexes. base/sync.hpp has the locks. Floor: base.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

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

 private:
  friend class ConditionVariable;
  std::mutex real_;
};

// A wait unlocks the mutex, and has locked it again when it returns. The predicate is called with the mutex locked and
// is annotated with it: [this]() MEMLITH_REQUIRES(mutex_) { ... }. It is called only here, where the analysis cannot
// know the mutex.
class ConditionVariable {
 public:
  template <class Predicate>
  void wait(Mutex& mutex, Predicate predicate) MEMLITH_REQUIRES(mutex) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> real(mutex.real_, std::adopt_lock);
    real_.wait(real, predicate);
    real.release();
  }
  // False: timed out, and the predicate does not hold.
  template <class Rep, class Period, class Predicate>
  bool wait_for(Mutex& mutex, std::chrono::duration<Rep, Period> time, Predicate predicate)
      MEMLITH_REQUIRES(mutex) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> real(mutex.real_, std::adopt_lock);
    const bool holds = real_.wait_for(real, time, predicate);
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
