// Which process has a database open: the right moves between the processes that use it. Part of the SQLite plugin.
//
// One process at a time has the engine and the memory of a database (or any number of processes that only read). It
// has the lease. The connections of the other processes stay open, with nothing behind them. If one of them begins a
// transaction, its process stands in line for the lease. The holder gives the lease up between transactions: at once if
// it is idle, otherwise when it has had it for a while, and then its own new transactions wait. What it leaves on the
// disk is complete, so the next process opens the database as after a clean end; if the holder is killed, the system
// releases its locks, and the next process recovers the database.
//
// SQLite's locks within a process tell whether a connection uses the database. A lease that a connection uses does not
// move.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.hpp"
#include "base/sync.hpp"

namespace memlith::sqlite {

// What the lease is about. One call at a time, and no connection uses the database meanwhile.
class Leased {
 public:
  virtual ~Leased() = default;
  // Opens the database if no other process has it; does not wait. `busy`: another process has it, or is next in line.
  virtual core::Status take() = 0;
  // Makes everything durable and closes it for the next process. Where it fails, the database is as it was, or it fails
  // all calls from now on. `for_good`: the process ends.
  virtual core::Status give_up(bool for_good) = 0;
  // The database has been idle: the file becomes an ordinary one, and stays open.
  virtual core::Status settle() = 0;
  // Whether settle() has anything to do.
  [[nodiscard]] virtual bool is_unsettled() const = 0;
  [[nodiscard]] virtual bool others_wait() const = 0;
  virtual void stop_waiting() = 0;
  // `busy`, with a message that names the holder where it is known.
  virtual core::Status tell_holder() = 0;
};

// Threads: any.
class Lease {
 public:
  using Time = core::SteadyClock::time_point;
  using Clock = core::SteadyClock;

  // `idle`: the time without a transaction after which settle() is called; 0: never.
  Lease(Leased& leased, std::chrono::milliseconds idle);
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // A connection begins to use the database, until leave(). Waits at most so long; `busy` then.
  core::Status enter(std::chrono::milliseconds wait) MEMLITH_EXCLUDES(mutex_);
  void leave() MEMLITH_EXCLUDES(mutex_);
  // Waits until this process has the lease, at most so long, or the lease cannot be had.
  void await(std::chrono::microseconds wait) MEMLITH_EXCLUDES(mutex_);

  // The thread of the watch calls this function, which gives the lease up, settles the file and leaves the line, each
  // when it is due. Returns the time of the next call, unless wake() asks for an earlier one.
  std::optional<Time> tend() MEMLITH_EXCLUDES(mutex_);
  // settle() has something to do from now on.
  void note_unsettled() { wake(); }
  // The process ends: gives the lease up if no connection uses it. Does not wait.
  void end_process() MEMLITH_EXCLUDES(mutex_);
  // The last connection is closed. The lease stays where it is, and does not move any more. Returns whether this
  // process has it.
  bool close() MEMLITH_EXCLUDES(mutex_);
  // Wakes the thread that calls tend().
  void set_waker(void (*waker)(void*), void* argument) {
    wake_argument_.store(argument, std::memory_order_relaxed);
    wake_.store(waker, std::memory_order_release);
  }
  // Whether tend() should be called before the time that it named; once.
  bool wants_a_look() { return wants_a_look_.exchange(false, std::memory_order_acq_rel); }

 private:
  enum class State : std::uint8_t { away, moving, here, closed };

  [[nodiscard]] bool in_forked_child() const;
  core::Status take(Time now) MEMLITH_REQUIRES(mutex_);
  void give_up(bool for_good) MEMLITH_REQUIRES(mutex_);
  void settle() MEMLITH_REQUIRES(mutex_);
  bool wait_for_turn(Time until, core::Status& why) MEMLITH_REQUIRES(mutex_);
  void end_yield(Time again) MEMLITH_REQUIRES(mutex_);
  std::optional<Time> tend_holder(Time now) MEMLITH_REQUIRES(mutex_);
  void wake() {
    wants_a_look_.store(true, std::memory_order_release);
    if (auto* const waker = wake_.load(std::memory_order_acquire); waker != nullptr) waker(wake_argument_.load());
  }

  Leased& leased_;
  const std::chrono::milliseconds idle_;
  const std::uint64_t process_mark_;
  std::atomic<void (*)(void*)> wake_{nullptr};
  std::atomic<void*> wake_argument_{nullptr};
  std::atomic<bool> wants_a_look_{false};

  core::Mutex mutex_;
  core::ConditionVariable changed_;
  State state_ MEMLITH_GUARDED_BY(mutex_) = State::away;
  int users_ MEMLITH_GUARDED_BY(mutex_) = 0;
  int waiting_ MEMLITH_GUARDED_BY(mutex_) = 0;
  std::uint64_t entries_ MEMLITH_GUARDED_BY(mutex_) = 0;       // how often it was entered
  std::uint64_t entries_seen_ MEMLITH_GUARDED_BY(mutex_) = 0;  // as of the last look of tend()
  bool yielding_ MEMLITH_GUARDED_BY(mutex_) = false;           // new transactions wait for others to get it
  Time yields_until_ MEMLITH_GUARDED_BY(mutex_);
  Time yields_again_ MEMLITH_GUARDED_BY(mutex_);  // not before
  Time taken_at_ MEMLITH_GUARDED_BY(mutex_);
  Time idle_since_ MEMLITH_GUARDED_BY(mutex_);
  Time waited_until_ MEMLITH_GUARDED_BY(mutex_);  // the last time that a connection waited
};

// The lease for which this thread was refused a lock a moment ago: SQLite's busy handler, if there is one, sleeps next.
void note_lease_refused(const std::shared_ptr<Lease>& lease);
// Null if there is none, or if it was too long ago for a busy handler.
std::shared_ptr<Lease> take_lease_refused();

}  // namespace memlith::sqlite
