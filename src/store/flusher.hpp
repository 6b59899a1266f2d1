// Flushes asynchronous commits, on a thread of the process. Floor: store.
//
// The idea of a window, with a prefix surviving a crash: AciKV (weak durability).
#pragma once

#include <cstdint>
#include <optional>

#include "base/sync.hpp"
#include "store/background.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// Threads: any; stop alone.
class Flusher {
 public:
  Flusher(StoreFiles& files, Background& background) : files_(files), background_(background) {}

  // Has a background thread make everything up to `lsn` durable, within the window and in order.
  void want(Lsn lsn) MEMLITH_EXCLUDES(mutex_);
  void set_window(FlushWindow window) MEMLITH_EXCLUDES(mutex_);
  // When this returns, no thread flushes, and none will.
  void stop() MEMLITH_EXCLUDES(mutex_);

 private:
  // What several processes would share (docs/architecture.md).
  struct Shared {
    FlushWindow window;
    Lsn target;           // to be made durable
    bool queued = false;  // the job waits or runs, and looks at the target before it is done
    bool now = false;     // the window's bytes are used up, or it was changed
  };

  std::optional<Workers::Time> flush() MEMLITH_EXCLUDES(mutex_);
  [[nodiscard]] bool wanted() const MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] bool is_queued() const MEMLITH_EXCLUDES(mutex_);
  void assert_state() const MEMLITH_REQUIRES(mutex_);

  StoreFiles& files_;
  Background& background_;
  mutable Mutex mutex_;
  ConditionVariable wake_;  // of the job, which looks for more to flush
  Shared shared_ MEMLITH_GUARDED_BY(mutex_){.window = files_.options.flush_window, .target = {}};
  bool stopping_ MEMLITH_GUARDED_BY(mutex_) = false;
  Workers::Job job_{[this] { return flush(); }};
};

}  // namespace memlith::core
