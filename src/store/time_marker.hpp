// Puts the time into the log, about once a second while there are commits, so that an archive can be restored to a
// time; and as soon as the log is idle, so that a frame vouches for the newest commits. Floor: store. docs/format.md,
// "time".
//
// Commits do nothing for it: the thread that publishes the counters looks at the log's head. A mark is a frame like
// others, and is flushed soon, so that the archive need not wait for the next commit. As every frame it says how far
// the log was durable: damage before that is told from a torn end (LogRecovery).
#pragma once

#include <chrono>
#include <cstdint>

#include "base/sync.hpp"
#include "base/workers.hpp"
#include "store/flusher.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

class TimeMarker {
 public:
  static constexpr std::chrono::milliseconds kEvery{1000};

  // `files` and `flusher` outlive it. What the log has at `now` is of earlier openings.
  TimeMarker(StoreFiles& files, Flusher& flusher, Workers::Time now)
      : files_(files), flusher_(flusher), last_(now), marked_(files.log->head()) {}

  // Puts a mark behind commits that have none, if the log is idle, or the last mark is old enough. `clock`: since 1970.
  // Returns whether there are commits that still wait for one.
  bool look(Workers::Time now, std::uint64_t (*clock)()) MEMLITH_EXCLUDES(mutex_);
  // From now on look() does nothing.
  void stop() MEMLITH_EXCLUDES(mutex_);

  // While one of these is there, look() puts no mark: the log grows by commits only.
  class Pause {
   public:
    explicit Pause(TimeMarker* marker) : marker_(marker) {
      if (marker_ != nullptr) marker_->change_pauses(1);
    }
    ~Pause() {
      if (marker_ != nullptr) marker_->change_pauses(-1);
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    TimeMarker* marker_;
  };

 private:
  void change_pauses(int by) MEMLITH_EXCLUDES(mutex_);
  [[nodiscard]] bool is_idle(Lsn head, Lsn seen) const;

  StoreFiles& files_;
  Flusher& flusher_;
  Mutex mutex_;
  bool stopped_ MEMLITH_GUARDED_BY(mutex_) = false;
  int pauses_ MEMLITH_GUARDED_BY(mutex_) = 0;
  Workers::Time last_ MEMLITH_GUARDED_BY(mutex_);
  Lsn seen_ MEMLITH_GUARDED_BY(mutex_);    // the log's head at the last look
  Lsn marked_ MEMLITH_GUARDED_BY(mutex_);  // the log has no commit behind it that has no mark
};

}  // namespace memlith::core
