// Which connections of this process use a database, so that it can be put in order while none does. Part of the SQLite
// plugin.
//
// SQLite's locks tell whether a connection uses the database. When none has used it for a while, its file becomes an
// ordinary one; when the process ends without having closed it, it is closed if none uses it then.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/status.hpp"
#include "base/sync.hpp"

namespace memlith::sqlite {

// The database. One call at a time, and no connection uses the database meanwhile.
class Used {
 public:
  virtual ~Used() = default;
  // The database has been idle: the file becomes an ordinary one, and stays open.
  virtual core::Status make_ordinary() = 0;
  // True if make_ordinary() has anything to do.
  [[nodiscard]] virtual bool is_not_ordinary() const = 0;
  // The process ends: makes everything durable and closes the database. Where it fails, the database is as it was, or
  // it fails all calls from now on.
  virtual core::Status end() = 0;
};

// Threads: any.
class Usage {
 public:
  using Clock = core::SteadyClock;
  using Time = Clock::time_point;

  // `idle`: the time without a transaction after which make_ordinary() is called; 0: never.
  Usage(Used& used, std::chrono::milliseconds idle);
  Usage(const Usage&) = delete;
  Usage& operator=(const Usage&) = delete;

  // A connection begins to use the database, until leave(). `busy`, without a message, if it is closed.
  core::Status enter() MEMLITH_EXCLUDES(mutex_);
  void leave() MEMLITH_EXCLUDES(mutex_);

  // The thread of the tender calls this function, which makes the file ordinary when that is due. Returns the time of
  // the next call, unless wake() asks for an earlier one.
  std::optional<Time> tend() MEMLITH_EXCLUDES(mutex_);
  // make_ordinary() has something to do from now on.
  void note_not_ordinary() { wake(); }
  // The process ends: end() if no connection uses the database. Does not wait.
  void end_process() MEMLITH_EXCLUDES(mutex_);
  // The last connection is closed.
  void close() MEMLITH_EXCLUDES(mutex_);
  // Wakes the thread that calls tend().
  void set_waker(void (*waker)(void*), void* argument) {
    wake_argument_.store(argument, std::memory_order_relaxed);
    wake_.store(waker, std::memory_order_release);  // pairs with the load in wake()
  }
  // True if tend() should be called before the time that it named; once.
  bool wants_a_look() { return wants_a_look_.exchange(false, std::memory_order_acq_rel); }

 private:
  [[nodiscard]] bool in_forked_child() const;
  void wake() {
    wants_a_look_.store(true, std::memory_order_release);
    if (auto* const waker = wake_.load(std::memory_order_acquire); waker != nullptr) waker(wake_argument_.load());
  }

  Used& used_;
  const std::chrono::milliseconds idle_;
  const std::uint64_t process_mark_;
  std::atomic<void (*)(void*)> wake_{nullptr};
  std::atomic<void*> wake_argument_{nullptr};
  std::atomic<bool> wants_a_look_{false};

  core::Mutex mutex_;  // held during make_ordinary() and end(), so that no use of the database begins
  bool closed_ MEMLITH_GUARDED_BY(mutex_) = false;
  int users_ MEMLITH_GUARDED_BY(mutex_) = 0;
  std::uint64_t entries_ MEMLITH_GUARDED_BY(mutex_) = 0;       // how often it was entered
  std::uint64_t entries_seen_ MEMLITH_GUARDED_BY(mutex_) = 0;  // as of the last look of tend()
  Time idle_since_ MEMLITH_GUARDED_BY(mutex_);
};

}  // namespace memlith::sqlite
