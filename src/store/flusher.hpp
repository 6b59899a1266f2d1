// The window of a store: makes asynchronous commits durable, on a thread of the process. Floor: store.
//
// Commits that are in the log are flushed. Those that wait in memory (Collectors) are put into the log first, all of
// them together, when the first of them is due; a flush that comes earlier takes along what is in the log by then.
//
// The idea of a window, with a prefix surviving a crash: AciKV (weak durability).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/sync.hpp"
#include "store/background.hpp"
#include "store/collectors.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// Threads: any; stop alone.
class Flusher {
 public:
  // `collectors`: null if there are none.
  Flusher(StoreFiles& files, Background& background, Collectors* collectors = nullptr);

  // Has a background thread make everything up to `lsn` durable, within the window and in order.
  void want(Lsn lsn) MEMLITH_EXCLUDES(mutex_);
  void set_window(FlushWindow window) MEMLITH_EXCLUDES(mutex_);
  // Waiting commits shall be durable soon after `due`; or be in the log soon, because they are many.
  void want_closing(Workers::Time due) MEMLITH_EXCLUDES(mutex_);
  static constexpr std::chrono::milliseconds kTryAgainAfter{100};  // a closing that the log refused
  void want_frame() MEMLITH_EXCLUDES(mutex_);
  // When this returns, no thread flushes, and none will.
  void stop() MEMLITH_EXCLUDES(mutex_);

 private:
  static constexpr Workers::Time kNever = Workers::Time::max();
  std::optional<Workers::Time> flush() MEMLITH_EXCLUDES(mutex_);
  // Puts what waits into the log; if it is due, as much of the log as was asked for becomes durable, then.
  void close_and_sync(bool due) MEMLITH_EXCLUDES(mutex_);
  // When the job has to run although nothing else wants it.
  [[nodiscard]] std::optional<Workers::Time> next_closing() const MEMLITH_REQUIRES(mutex_) {
    return closing_due_ == kNever ? std::nullopt : std::optional(closing_due_);
  }
  [[nodiscard]] bool wanted() const MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] bool is_too_much(Lsn lsn) const;
  void raise_target(Lsn lsn);
  void assert_state() const;

  StoreFiles& files_;
  Background& background_;
  Collectors* const collectors_;
  Mutex mutex_;
  ConditionVariable wake_;  // of the job, which looks for more to flush
  // Commits read these without the mutex. A commit raises the target first and looks at queued_ then; the job clears
  // queued_ first and looks at the target once more.
  Atomic<std::uint64_t> target_{0};             // to be made durable
  Atomic<bool> queued_{false};                  // the job waits or runs
  std::atomic<std::uint64_t> window_bytes_{0};  // of the window; independent of the other two
  std::uint64_t interval_ms_ MEMLITH_GUARDED_BY(mutex_) = files_.options.flush_window.interval_ms;
  bool now_ MEMLITH_GUARDED_BY(mutex_) = false;  // the window's bytes are used up, or it was changed
  bool stopping_ MEMLITH_GUARDED_BY(mutex_) = false;
  Workers::Time closing_due_ MEMLITH_GUARDED_BY(mutex_) = kNever;
  bool frame_wanted_ MEMLITH_GUARDED_BY(mutex_) = false;
  Workers::Job job_{[this] { return flush(); }};
};

}  // namespace memlith::core
