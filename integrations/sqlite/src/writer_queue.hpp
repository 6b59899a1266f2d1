// The connections that wait for the write lock of a database in WAL mode, in order of arrival. Part of the SQLite
// plugin.
//
// SQLite asks for the lock, hears BUSY, lets its busy handler sleep, and asks again. A connection waits in the queue
// while its busy handler sleeps (xSleep) and no longer, so that SQLite's timeout is honoured, a connection without a
// busy handler hears BUSY at once, and no thread waits while it holds a lock. When the lock becomes free it is promised
// to the connection whose turn it is, and the sleep ends. (A connection that waited for the lock itself would get it
// with a snapshot that is out of date.)
//
// Waking a blocked thread takes longer than a small transaction, so a waiting thread yields for a while before it
// blocks, and the lock goes to the first thread that is awake; a blocked one is passed over a limited number of times.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/sync.hpp"

namespace memlith::sqlite {

class WriterQueue {
 public:
  // How long the lock stays promised. A connection comes for it within microseconds, unless its thread does not run, or
  // its program has given up.
  explicit WriterQueue(std::chrono::milliseconds promise = std::chrono::milliseconds(10)) : promise_(promise) {}

  // A connection.
  class Waiter {
   public:
    // The lock is promised to it: only this connection can get it now.
    [[nodiscard]] bool is_promised() const { return promised_.load(std::memory_order_relaxed); }

   private:
    friend class WriterQueue;
    std::uint64_t ticket_ = 0;  // 0: not waiting
    std::uint32_t passed_ = 0;  // how often a later one was preferred
    bool slept_ = false;        // since it was refused last
    bool awake_ = false;
    std::atomic<bool> promised_{false};
    core::ConditionVariable wake_;
  };

  // Runs `lock`, which says whether it got the lock, unless the lock is promised to another connection.
  template <class Lock>
  bool try_lock(Waiter& who, Lock lock) MEMLITH_EXCLUDES(mutex_) {
    const core::LockGuard guard(mutex_);
    if (!promised_to_another(who) && lock()) {
      take(who);
      return true;
    }
    refuse(who);
    return false;
  }
  // Runs `unlock`; then it is the next one's turn.
  template <class Unlock>
  void unlock(Unlock unlock) MEMLITH_EXCLUDES(mutex_) {
    const core::LockGuard guard(mutex_);
    unlock();
    free_ = true;
    hand_over();
  }
  // Returns when the lock is promised to `who`, or the time is over.
  void wait(Waiter& who, std::chrono::microseconds time) MEMLITH_EXCLUDES(mutex_);
  // The connection is closed.
  void leave(Waiter& who) MEMLITH_EXCLUDES(mutex_);

 private:
  using Time = core::SteadyClock::time_point;
  bool promised_to_another(const Waiter& who) MEMLITH_REQUIRES(mutex_);
  void take(Waiter& who) MEMLITH_REQUIRES(mutex_);
  static void refuse(Waiter& who);
  void hand_over() MEMLITH_REQUIRES(mutex_);
  void end_promise() MEMLITH_REQUIRES(mutex_);
  void stand_in_line(Waiter& who) MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] bool promise_is_over() const MEMLITH_REQUIRES(mutex_);
  void block(Waiter& who, Time end) MEMLITH_REQUIRES(mutex_);

  const std::chrono::milliseconds promise_;
  core::Mutex mutex_;
  std::vector<Waiter*> waiting_ MEMLITH_GUARDED_BY(mutex_);  // by ticket
  std::uint64_t tickets_ MEMLITH_GUARDED_BY(mutex_) = 0;
  bool free_ MEMLITH_GUARDED_BY(mutex_) = true;
  Waiter* promised_ MEMLITH_GUARDED_BY(mutex_) = nullptr;
  Time promised_until_ MEMLITH_GUARDED_BY(mutex_);
};

// The connection that this thread was refused the lock for a moment ago, and its queue: SQLite's busy handler, if there
// is one, sleeps next. xSleep does not say for which connection it is called.
struct Refused {
  std::shared_ptr<WriterQueue> queue;
  std::shared_ptr<WriterQueue::Waiter> waiter;
  core::SteadyClock::time_point when;
};
void note_refused(const std::shared_ptr<WriterQueue>& queue, const std::shared_ptr<WriterQueue::Waiter>& waiter);
void forget_refused();
// Empty if there is none, or if it was too long ago for a busy handler.
Refused take_refused();

}  // namespace memlith::sqlite
