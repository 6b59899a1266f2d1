// The laboratory's copy of the engine has this in the place of src/base/threads.hpp: types that behave in the same way
// until a Controller takes over the calling thread. Then one thread runs at a time, and at each of these calls the
// controller decides which thread continues, so that every interleaving of a small case can be tried and repeated
// (docs/testing.md, "Schedules").
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/thread_annotations.hpp"

namespace memlith::core {

inline constexpr std::chrono::nanoseconds kForEver = std::chrono::nanoseconds::max();

// Decides which of its threads runs. All calls come from the running thread.
class Controller {
 public:
  virtual ~Controller() = default;
  // Another thread may run first. `what` is about to be done, or has just been done, to `object`. Unless it `changes`
  // something, a death before it is one before the next point, or the next wait.
  virtual void point(const char* what, const void* object, bool changes = true) = 0;
  // Continues when `until` holds (true), or when the time is over (false), which may be so at any time unless the
  // controller keeps time.
  virtual bool block(const char* what, const void* object, std::chrono::nanoseconds at_most,
                     const std::function<bool()>& until) = 0;
  // Another thread runs first, if one can.
  virtual void yield() = 0;
  // Chooses which of the waiting threads is woken.
  virtual std::size_t choose(std::size_t count) = 0;
  // A new thread under this controller; the flag is set when it has ended.
  virtual std::shared_ptr<const bool> start(std::function<void()> act) = 0;
  virtual std::chrono::nanoseconds now() = 0;
  // The number of the thread that runs, from 1 on: several may share one thread of the system's.
  [[nodiscard]] virtual std::uint32_t thread() const = 0;
  // It waits no more.
  virtual void woken(std::uint32_t thread) = 0;
  // False: it has died.
  [[nodiscard]] virtual bool lives(std::uint32_t thread) const = 0;
};

// The controller of the calling thread; null: the machine schedules the thread.
inline thread_local Controller* controller = nullptr;

// Threads that are blocked until another thread wakes them.
class WaitList {
 public:
  // Those that wait may say what for, by bits, and are woken by these.
  static constexpr std::uint32_t kAnyBit = ~std::uint32_t{0};
  bool wait(const char* what, std::chrono::nanoseconds at_most, std::uint32_t bits = kAnyBit) {
    bool woken = false;
    waiting_.push_back({&woken, bits, controller->thread()});
    if (controller->block(what, this, at_most, [&woken] { return woken; })) return true;
    std::erase_if(waiting_, [&woken](const Waiting& each) { return each.woken == &woken; });
    return false;
  }
  void wake_one(std::uint32_t bits = kAnyBit) {
    const auto behind = meant(bits);
    const auto count = static_cast<std::size_t>(waiting_.end() - behind);
    if (count == 0) return;
    const auto chosen = behind + static_cast<std::ptrdiff_t>(count == 1 ? 0 : controller->choose(count));
    wake(*chosen);
    waiting_.erase(chosen);
  }
  void wake_all(std::uint32_t bits = kAnyBit) {
    for (auto each = meant(bits); each != waiting_.end(); each = waiting_.erase(each)) wake(*each);
  }

 private:
  struct Waiting {
    bool* woken;
    std::uint32_t bits;
    std::uint32_t thread;
  };
  // Moves those that wait for one of the bits to the end; returns the first of them. Dead threads wait no more.
  std::vector<Waiting>::iterator meant(std::uint32_t bits) {
    std::erase_if(waiting_, [](const Waiting& each) { return !controller->lives(each.thread); });
    return std::stable_partition(waiting_.begin(), waiting_.end(),
                                 [bits](const Waiting& each) { return (each.bits & bits) == 0; });
  }
  static void wake(const Waiting& each) {
    *each.woken = true;
    controller->woken(each.thread);
  }
  std::vector<Waiting> waiting_;
};

class MEMLITH_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() MEMLITH_ACQUIRE() {
    if (controller == nullptr) return real_.lock();
    controller->point("lock", this);
    if (held_) controller->block("wait for the lock", this, kForEver, [this] { return !held_; });
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
  void assert_held() MEMLITH_ASSERT_CAPABILITY(this) {
    MEMLITH_ASSERT(controller == nullptr ? pthread_mutex_trylock(real_.native_handle()) == EBUSY : held_);
  }

 private:
  friend class ConditionVariable;
  std::mutex real_;
  bool held_ = false;
};

class ConditionVariable {
 public:
  template <class Predicate>
  void wait(Mutex& mutex, Predicate predicate) MEMLITH_REQUIRES(mutex) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
    while (!predicate()) {
      if (controller == nullptr) {
        real_.wait(mutex);
      } else {
        (void)wait_controlled(mutex, kForEver);
      }
    }
  }
  template <class Rep, class Period, class Predicate>
  bool wait_for(Mutex& mutex, std::chrono::duration<Rep, Period> time, Predicate predicate)
      MEMLITH_REQUIRES(mutex) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
    if (controller == nullptr) return real_.wait_for(mutex, time, predicate);
    while (!predicate()) {
      if (!wait_controlled(mutex, std::chrono::duration_cast<std::chrono::nanoseconds>(time))) return predicate();
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
  bool wait_controlled(Mutex& mutex, std::chrono::nanoseconds at_most)
      MEMLITH_REQUIRES(mutex) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
    controller->point("wait", this);
    mutex.held_ = false;
    const bool woken = waiting_.wait("wait to be notified", at_most);
    mutex.lock();
    return woken;
  }
  std::condition_variable_any real_;
  WaitList waiting_;
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
    controller->block("join", this, kForEver, [&ended] { return *ended; });
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
    at("load", order, false);
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
    while (load(std::memory_order_seq_cst) == old) (void)waiting_.wait("wait for a change", kForEver);
  }
  // The same, but not for longer, and woken by wake() with one of the bits.
  void wait_briefly(T old, std::chrono::nanoseconds at_most, std::uint32_t bits) const {
    if (load(std::memory_order_seq_cst) == old) (void)waiting_.wait("wait for a change", at_most, bits);
  }
  void wake(bool all, std::uint32_t bits) { return all ? waiting_.wake_all(bits) : waiting_.wake_one(bits); }
  void notify_one() {
    if (controller == nullptr) return value_.notify_one();
    waiting_.wake_one();
  }
  void notify_all() {
    if (controller == nullptr) return value_.notify_all();
    waiting_.wake_all();
  }

 private:
  void at(const char* what, std::memory_order order, bool changes = true) const {
    if (controller != nullptr && order != std::memory_order_relaxed) controller->point(what, this, changes);
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
