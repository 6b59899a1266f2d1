// Flushes asynchronous commits, on a thread of the process. Floor: store.
//
// The idea of a window, with a prefix surviving a crash: AciKV (weak durability).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/sync.hpp"
#include "store/background.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// Threads: any; stop alone.
class Flusher {
 public:
  Flusher(StoreFiles& files, Background& background);

  // Has a background thread make everything up to `lsn` durable, within the window and in order.
  void want(Lsn lsn) MEMLITH_EXCLUDES(mutex_);
  void set_window(FlushWindow window) MEMLITH_EXCLUDES(mutex_);
  // When this returns, no thread flushes, and none will.
  void stop() MEMLITH_EXCLUDES(mutex_);

 private:
  // What several processes would share (docs/architecture.md).
  //
  // Commits read it without the mutex. A commit raises the target first and looks at `queued` then; the job clears
  // `queued` first and looks at the target once more.
  struct Shared {
    Atomic<std::uint64_t> target{0};             // to be made durable
    Atomic<bool> queued{false};                  // the job waits or runs
    std::atomic<std::uint64_t> window_bytes{0};  // of the window; independent of the other two
  };

  std::optional<Workers::Time> flush() MEMLITH_EXCLUDES(mutex_);
  [[nodiscard]] bool wanted() const MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] bool is_too_much(Lsn lsn) const;
  void raise_target(Lsn lsn);
  void assert_state() const;

  StoreFiles& files_;
  Background& background_;
  Mutex mutex_;
  ConditionVariable wake_;  // of the job, which looks for more to flush
  Shared shared_;
  std::uint64_t interval_ms_ MEMLITH_GUARDED_BY(mutex_) = files_.options.flush_window.interval_ms;
  bool now_ MEMLITH_GUARDED_BY(mutex_) = false;  // the window's bytes are used up, or it was changed
  bool stopping_ MEMLITH_GUARDED_BY(mutex_) = false;
  Workers::Job job_{[this] { return flush(); }};
};

}  // namespace memlith::core
