#include "store/flusher.hpp"

#include <algorithm>

#include "base/mutant.hpp"

namespace memlith::core {

namespace {
constexpr std::chrono::microseconds kLookEvery{100};
}

void Flusher::want(Lsn lsn) {
  if (files_.options.manual_flush || files_.log->durable_lsn() >= lsn) return;
  bool taken = true;
  bool wake = false;
  const bool asked_early = MEMLITH_MUTANT(asleep_asked_outside_lock) && is_queued();
  {
    const LockGuard lock(mutex_);
    shared_.target = std::max(shared_.target, lsn);
    const bool too_much =
        bytes_between(std::min(files_.log->durable_lsn(), shared_.target), shared_.target) > shared_.window.bytes;
    const bool queued = MEMLITH_MUTANT(asleep_asked_outside_lock) ? asked_early : shared_.queued;
    if (!queued || (too_much && !shared_.now)) {
      shared_.now = shared_.now || too_much;
      const std::chrono::milliseconds window(shared_.now ? 0 : shared_.window.interval_ms);
      taken = background_.flushes.want(job_, SteadyClock::now() + window);
      shared_.queued = taken;
      wake = queued;
    }
    assert_state();
  }
  if (wake) wake_.notify_one();
  // No thread can be started: flush now, sooner than necessary; a failure poisons.
  if (!taken) (void)files_.log->sync(lsn);
}

bool Flusher::is_queued() const {
  const LockGuard lock(mutex_);
  return shared_.queued;
}

void Flusher::set_window(FlushWindow window) {
  {
    const LockGuard lock(mutex_);
    shared_.window = window;
    if (!shared_.queued) return;
    shared_.now = true;  // commits that wait under the old window are flushed now
    (void)background_.flushes.want(job_, SteadyClock::now());
  }
  wake_.notify_one();
}

bool Flusher::wanted() const { return stopping_ || shared_.target > files_.log->durable_lsn(); }

// The window of a commit begins when the job notices it and nothing else waits; at the latest at the job's next look. A
// failed flush has poisoned the log, which informs all callers; there is nothing left to do then.
std::optional<Workers::Time> Flusher::flush() {
  UniqueLock lock(mutex_);
  while (!stopping_ && !files_.log->poisoned()) {
    shared_.now = false;
    const Lsn target = shared_.target;
    lock.unlock();
    (void)files_.log->sync(target);
    lock.lock();
    assert_state();
    // Keep looking: the next asynchronous persist then need not wake a thread, which takes longer than all the rest of
    // the persist.
    for (std::uint32_t look = 0; look < files_.options.flusher_looks && !wanted(); ++look) {
      if (background_.flushes.crowded()) break;
      wake_.wait_for(mutex_, kLookEvery, [this]() MEMLITH_REQUIRES(mutex_) { return wanted(); });
    }
    if (!wanted()) {
      shared_.queued = false;
      return std::nullopt;
    }
    if (shared_.window.interval_ms > 0 && !shared_.now) {
      return SteadyClock::now() + std::chrono::milliseconds(shared_.window.interval_ms) - kLookEvery;
    }
    if (background_.flushes.crowded()) return SteadyClock::now();
  }
  return std::nullopt;
}

void Flusher::stop() {
  {
    const LockGuard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  background_.flushes.withdraw(job_);
}

// Only commits that were begun are requested.
void Flusher::assert_state() const { MEMLITH_DCHECK(shared_.target <= files_.log->head()); }

}  // namespace memlith::core
