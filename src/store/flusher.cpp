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
    target_ = std::max(target_, lsn);
    const bool too_much = bytes_between(std::min(files_.log->durable_lsn(), target_), target_) > window_.bytes;
    const bool queued = MEMLITH_MUTANT(asleep_asked_outside_lock) ? asked_early : queued_;
    if (!queued || (too_much && !now_)) {
      now_ = now_ || too_much;
      const std::chrono::milliseconds window(now_ ? 0 : window_.interval_ms);
      taken = background_.flushes.want(job_, SteadyClock::now() + window);
      queued_ = taken;
      wake = queued;
    }
    assert_state();
  }
  if (wake) wake_.notify_one();
  if (!taken) (void)files_.log->sync(lsn);  // no thread is to be had: sooner than it need be, and a failure poisons
}

bool Flusher::is_queued() const {
  const LockGuard lock(mutex_);
  return queued_;
}

void Flusher::set_window(FlushWindow window) {
  {
    const LockGuard lock(mutex_);
    window_ = window;
    if (!queued_) return;
    now_ = true;  // what waits under the old window waits no longer
    (void)background_.flushes.want(job_, SteadyClock::now());
  }
  wake_.notify_one();
}

bool Flusher::wanted() const { return stopping_ || target_ > files_.log->durable_lsn(); }

// The window of a commit begins when the job hears of it, with nothing else waiting; at the latest at its next look.
// A failed flush has poisoned the log, which tells everybody; there is nothing left to do then.
std::optional<Workers::Time> Flusher::flush() {
  UniqueLock lock(mutex_);
  while (!stopping_ && !files_.log->poisoned()) {
    now_ = false;
    const Lsn target = target_;
    lock.unlock();
    (void)files_.log->sync(target);
    lock.lock();
    assert_state();
    // Not done yet: nobody has to wake a thread for the next one, which takes longer than all the rest of an asynchronous persist.
    for (std::uint32_t look = 0; look < files_.options.flusher_looks && !wanted(); ++look) {
      if (background_.flushes.crowded()) break;
      wake_.wait_for(mutex_, kLookEvery, [this]() MEMLITH_REQUIRES(mutex_) { return wanted(); });
    }
    if (!wanted()) {
      queued_ = false;
      return std::nullopt;
    }
    if (window_.interval_ms > 0 && !now_) {
      return SteadyClock::now() + std::chrono::milliseconds(window_.interval_ms) - kLookEvery;
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

// Nothing is asked for that was not begun.
void Flusher::assert_state() const { MEMLITH_DCHECK(target_ <= files_.log->head()); }

}  // namespace memlith::core
