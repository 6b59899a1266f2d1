#include "store/time_marker.hpp"

#include <utility>

#include "store/pace.hpp"

namespace memlith::core {

// Nothing was committed between two looks, and all of it is durable. Where much waits to go home, a checkpoint of the
// idle store follows, whose superblock vouches for the commits; a frame would end it.
bool TimeMarker::is_idle(Lsn head, Lsn seen) const {
  const Log& log = *files_.log;
  const std::uint64_t waits = bytes_between(log.tail().lsn, head);
  const bool goes_home = !files_.options.manual_checkpoint && waits >= IdleWatch::bytes_min(log.capacity_bytes());
  return head == seen && log.durable_lsn() >= head && waits > 0 && !goes_home;
}

bool TimeMarker::look(Workers::Time now, std::uint64_t (*clock)()) {
  const LockGuard lock(mutex_);
  Log& log = *files_.log;
  const Lsn head = log.head();
  const Lsn seen = std::exchange(seen_, head);
  if (stopped_ || log.poisoned() || head <= marked_) return false;
  if (pauses_ > 0 || (now - last_ < kEvery && !is_idle(head, seen))) return true;
  const KeptSentence why;  // of what the program does; a mark that cannot be put is no failure of its own
  // Marks are not packed: sealing a pack moves the head once more, and the log would never seem to be marked.
  auto writer = log.begin_at_once(sizeof(TimeRecord), kFrameKindTime, false);
  if (!writer.ok() || !writer->has_value()) return writer.ok();  // the log is full; later
  const TimeRecord record{clock()};  // the mark has its place: everything before it is in the log by now
  (*writer)->put(&record, sizeof record);
  const auto end = (*writer)->finish();
  if (!end.ok()) return false;
  MEMLITH_ASSERT(marked_ < *end);
  last_ = now;
  // Commits that came meanwhile lie in front of the mark or get the next one.
  marked_ = *end;
  flusher_.want(*end);
  return log.head() > marked_;
}

void TimeMarker::change_pauses(int by) {
  const LockGuard lock(mutex_);
  pauses_ += by;
  MEMLITH_ASSERT(pauses_ >= 0);
}

void TimeMarker::stop() {
  const LockGuard lock(mutex_);
  stopped_ = true;
}

}  // namespace memlith::core
