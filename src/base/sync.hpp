// Threads, locks, condition variables and atomics under our own names. Floor: base.
//
// Outside of the crash laboratory these are the types of the standard library, with the annotations of
// base/thread_annotations.hpp on mutexes and locks. The laboratory's copy of the engine (MEMLITH_MUTANTS) has types
// that behave in the same way until a Controller takes over the calling thread: then one thread runs at a time, and at
// each of these calls the controller decides which thread continues, so that every interleaving of a small case can be
// tried and repeated (docs/testing.md, "Schedules").
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include "base/thread_annotations.hpp"

#ifndef MEMLITH_MUTANTS

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

using Thread = std::thread;
template <class T>
using Atomic = std::atomic<T>;
using SteadyClock = std::chrono::steady_clock;
inline void yield_thread() { std::this_thread::yield(); }
inline unsigned processors() { return std::thread::hardware_concurrency(); }

}  // namespace memlith::core

#else

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace memlith::core {

// Decides which of its threads runs. All calls come from the running thread.
class Controller {
 public:
  virtual ~Controller() = default;
  // Another thread may run first. `what` is about to be done, or has just been done, to `object`.
  virtual void point(const char* what, const void* object) = 0;
  // Continues when `until` holds (true), or when a timed wait times out (false), which may happen at any time.
  virtual bool block(const char* what, const void* object, bool timed, const std::function<bool()>& until) = 0;
  // Another thread runs first, if one can.
  virtual void yield() = 0;
  // Chooses which of the waiting threads is woken.
  virtual std::size_t choose(std::size_t count) = 0;
  // A new thread under this controller; the flag is set when it has ended.
  virtual std::shared_ptr<const bool> start(std::function<void()> act) = 0;
  virtual std::chrono::nanoseconds now() = 0;
  // The number of the thread that runs, from 1 on: several may share one thread of the system's.
  [[nodiscard]] virtual std::uint32_t thread() const = 0;
};

// The controller of the calling thread; null: the machine schedules the thread. Defined by the laboratory.
extern thread_local Controller* controller;

// Threads that are blocked until another thread wakes them.
class WaitList {
 public:
  bool wait(const char* what, bool timed) {
    bool woken = false;
    waiting_.push_back(&woken);
    if (controller->block(what, this, timed, [&woken] { return woken; })) return true;
    std::erase(waiting_, &woken);
    return false;
  }
  void wake_one() {
    if (waiting_.empty()) return;
    const std::size_t chosen = waiting_.size() == 1 ? 0 : controller->choose(waiting_.size());
    *waiting_[chosen] = true;
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  void wake_all() {
    for (bool* const each : waiting_) *each = true;
    waiting_.clear();
  }

 private:
  std::vector<bool*> waiting_;
};

class MEMLITH_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() MEMLITH_ACQUIRE() {
    if (controller == nullptr) return real_.lock();
    controller->point("lock", this);
    if (held_) controller->block("wait for the lock", this, false, [this] { return !held_; });
    held_ = true;
  }
  bool try_lock() MEMLITH_TRY_ACQUIRE(true) {
    if (controller == nullptr) return real_.try_lock();
    controller->point("try to lock", this);
    return !std::exchange(held_, true);
  }
  void unlock() MEMLITH_RELEASE() {
    if (controller == nullptr) return real_.unlock();
    held_ = false;
    controller->point("unlock", this);
  }

 private:
  friend class ConditionVariable;
  std::mutex real_;
  bool held_ = false;
};

class Thread {
 public:
  Thread() = default;
  template <class Act>
    requires(!std::is_same_v<std::remove_cvref_t<Act>, Thread>)
  explicit Thread(Act&& act) {
    if (controller == nullptr) {
      real_ = std::thread(std::forward<Act>(act));
    } else {
      ended_ = controller->start(std::forward<Act>(act));
    }
  }
  [[nodiscard]] bool joinable() const { return ended_ != nullptr || real_.joinable(); }
  void join() {
    if (ended_ == nullptr) return real_.join();
    const std::shared_ptr<const bool> ended = std::exchange(ended_, nullptr);
    controller->block("join", this, false, [&ended] { return *ended; });
  }
  void detach() {
    if (ended_ == nullptr) return real_.detach();
    ended_ = nullptr;
  }

 private:
  std::thread real_;
  std::shared_ptr<const bool> ended_;
};

// No thread switch happens at relaxed accesses: they are made under a lock, or nothing depends on them.
template <class T>
class Atomic {
 public:
  Atomic() = default;
  Atomic(T value) : value_(value) {}  // NOLINT(google-explicit-constructor): as in the standard library
  Atomic(const Atomic&) = delete;

  T load(std::memory_order order = std::memory_order_seq_cst) const {
    at("load", order);
    return value_.load(order);
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) {
    at("store", order);
    value_.store(value, order);
  }
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst) {
    at("exchange", order);
    return value_.exchange(value, order);
  }
  T fetch_add(T value, std::memory_order order = std::memory_order_seq_cst) {
    at("add", order);
    return value_.fetch_add(value, order);
  }
  T fetch_sub(T value, std::memory_order order = std::memory_order_seq_cst) {
    at("subtract", order);
    return value_.fetch_sub(value, order);
  }
  bool compare_exchange_strong(T& expected, T wanted, std::memory_order order = std::memory_order_seq_cst) {
    at("compare and exchange", order);
    return value_.compare_exchange_strong(expected, wanted, order);
  }
  bool compare_exchange_weak(T& expected, T wanted, std::memory_order order = std::memory_order_seq_cst) {
    return compare_exchange_strong(expected, wanted, order);
  }
  operator T() const { return load(); }  // NOLINT(google-explicit-constructor)
  T operator=(T value) {                 // NOLINT(misc-unconventional-assign-operator)
    store(value);
    return value;
  }
  void wait(T old, std::memory_order order = std::memory_order_seq_cst) const {
    if (controller == nullptr) return value_.wait(old, order);
    while (load(std::memory_order_seq_cst) == old) (void)waiting_.wait("wait for a change", false);
  }
  void notify_one() {
    if (controller == nullptr) return value_.notify_one();
    waiting_.wake_one();
  }
  void notify_all() {
    if (controller == nullptr) return value_.notify_all();
    waiting_.wake_all();
  }

 private:
  void at(const char* what, std::memory_order order) const {
    if (controller != nullptr && order != std::memory_order_relaxed) controller->point(what, this);
  }
  std::atomic<T> value_;
  mutable WaitList waiting_;
};

struct SteadyClock {
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<std::chrono::steady_clock, std::chrono::nanoseconds>;
  static time_point now() {
    return controller == nullptr ? std::chrono::steady_clock::now() : time_point(controller->now());
  }
};

// The same on every machine, so that what was seen on one can be repeated on another.
inline unsigned processors() { return 1; }

inline void yield_thread() {
  if (controller == nullptr) return std::this_thread::yield();
  controller->yield();
}

}  // namespace memlith::core

#endif

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

// A wait unlocks the mutex, and has locked it again when it returns. The predicate is called with the mutex locked and
// is annotated with it: [this]() MEMLITH_REQUIRES(mutex_) { ... }. It is called only here, where the analysis cannot
// know the mutex.
#ifndef MEMLITH_MUTANTS

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

#else

class ConditionVariable {
 public:
  template <class Predicate>
  void wait(Mutex& mutex, Predicate predicate) MEMLITH_REQUIRES(mutex) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
    while (!predicate()) {
      if (controller == nullptr) {
        real_.wait(mutex);
      } else {
        (void)wait_controlled(mutex, false);
      }
    }
  }
  template <class Rep, class Period, class Predicate>
  bool wait_for(Mutex& mutex, std::chrono::duration<Rep, Period> time, Predicate predicate)
      MEMLITH_REQUIRES(mutex) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
    if (controller == nullptr) return real_.wait_for(mutex, time, predicate);
    while (!predicate()) {
      if (!wait_controlled(mutex, true)) return predicate();
    }
    return true;
  }
  void notify_one() {
    if (controller == nullptr) return real_.notify_one();
    waiting_.wake_one();
  }
  void notify_all() {
    if (controller == nullptr) return real_.notify_all();
    waiting_.wake_all();
  }

 private:
  // A thread that does not hold the lock may run between the check of the condition and the wait.
  bool wait_controlled(Mutex& mutex, bool timed) MEMLITH_REQUIRES(mutex) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
    controller->point("wait", this);
    mutex.held_ = false;
    const bool woken = waiting_.wait("wait to be notified", timed);
    mutex.lock();
    return woken;
  }
  std::condition_variable_any real_;
  WaitList waiting_;
};

#endif

}  // namespace memlith::core
