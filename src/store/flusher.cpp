#include "store/flusher.hpp"

#include <algorithm>
#include <utility>

#include "base/no_throw.hpp"

namespace memlith::core {

namespace {
constexpr std::chrono::microseconds kLookEvery{100};
}  // namespace

Flusher::Flusher(StoreFiles& files, Background& background, Collectors* collectors)
    : files_(files), background_(background), collectors_(collectors) {
  window_bytes_.store(files_.options.flush_window.bytes, std::memory_order_relaxed);
}

void Flusher::raise_target(Lsn lsn) {
  std::uint64_t seen = target_.load(std::memory_order_relaxed);
  while (seen < lsn.value && !target_.compare_exchange_weak(seen, lsn.value)) {
  }
}

bool Flusher::is_too_much(Lsn lsn) const {
  return bytes_between(std::min(files_.log->durable_lsn(), lsn), lsn) > window_bytes_.load(std::memory_order_relaxed);
}

void Flusher::want(Lsn lsn) {
  if (files_.options.manual_flush || files_.log->durable_lsn() >= lsn) return;
  raise_target(lsn);
  // Most commits find the job at work, and take no lock.
  if (queued_.load() && !is_too_much(lsn)) return;
  bool taken = true;
  bool wake = false;
  {
    const LockGuard lock(mutex_);
    const bool too_much = is_too_much(lsn);
    const bool queued = queued_.load();
    if (!queued || (too_much && !now_)) {
      now_ = now_ || too_much;
      const std::chrono::milliseconds window(now_ ? 0 : interval_ms_);
      taken = background_.flushes.want(job_, SteadyClock::now() + window);
      queued_.store(taken);
      wake = queued;
    }
    assert_state();
  }
  if (wake) wake_.notify_one();
  // No thread can be started: flush now, sooner than necessary; a failure poisons.
  if (!taken) (void)files_.log->sync(lsn);
}

void Flusher::set_window(FlushWindow window) {
  {
    const LockGuard lock(mutex_);
    interval_ms_ = window.interval_ms;
    window_bytes_.store(window.bytes, std::memory_order_relaxed);
    if (!queued_.load()) return;
    now_ = true;  // commits that wait under the old window are flushed now
    (void)background_.flushes.want(job_, SteadyClock::now());
  }
  wake_.notify_one();
}

// ---- what waits for the log --------------------------------------------------------------------------------------

void Flusher::want_closing(Workers::Time due) {
  if (files_.options.manual_flush) return;
  bool taken = true;
  {
    const LockGuard lock(mutex_);
    if (due >= closing_due_) return;
    taken = background_.flushes.want(job_, due);
    if (taken) closing_due_ = due;
  }
  wake_.notify_one();
  if (taken) return;
  // No thread can be started: now, sooner than necessary.
  close_and_sync(true);
}

void Flusher::want_frame() {
  if (files_.options.manual_flush) return;
  {
    const LockGuard lock(mutex_);
    frame_wanted_ = true;
    (void)background_.flushes.want(job_, SteadyClock::now());  // without a thread the window does it
  }
  wake_.notify_one();
}

void Flusher::close_and_sync(bool due) {
  MEMLITH_ASSERT(collectors_ != nullptr);
  const KeptSentence why;
  const Status closed = no_throw([&]() -> Status {
    MEMLITH_TRY_ASSIGN(const Lsn end, collectors_->close(false));
    if (due || is_too_much(end)) raise_target(end);
    return kOk;
  });
  (void)files_.log->sync(Lsn{target_.load()});
  (void)no_throw([&]() -> Status {
    collectors_->after_background_closing(closed);
    return kOk;
  });
  if (closed.ok()) return;
  const LockGuard lock(mutex_);
  closing_due_ = std::min(closing_due_, SteadyClock::now() + kTryAgainAfter);
}

// ---- the job ---------------------------------------------------------------------------------------------------

bool Flusher::wanted() const {
  return stopping_ || frame_wanted_ || closing_due_ <= SteadyClock::now() ||
         Lsn{target_.load()} > files_.log->durable_lsn();
}

// The window of a commit begins when the job notices it and nothing else waits; at the latest at the job's next look. A
// failed flush has poisoned the log, which informs all callers; there is nothing left to do then.
std::optional<Workers::Time> Flusher::flush() {
  UniqueLock lock(mutex_);
  while (!stopping_ && !files_.log->poisoned()) {
    now_ = false;
    const bool due = closing_due_ <= SteadyClock::now();
    const bool closes = std::exchange(frame_wanted_, false) || due;
    if (due) closing_due_ = kNever;
    lock.unlock();
    closes ? close_and_sync(due) : (void)files_.log->sync(Lsn{target_.load()});
    lock.lock();
    assert_state();
    // Keep looking: the next asynchronous persist then need not wake a thread, which takes longer than all the rest of
    // the persist.
    for (std::uint32_t look = 0; look < files_.options.flusher_looks && !wanted(); ++look) {
      if (background_.flushes.crowded()) break;
      wake_.wait_for(mutex_, kLookEvery, [this]() MEMLITH_REQUIRES(mutex_) { return wanted(); });
    }
    if (!wanted()) {
      queued_.store(false);
      if (!wanted()) return next_closing();
      queued_.store(true);
    }
    if (interval_ms_ > 0 && !now_) {
      const auto window = SteadyClock::now() + std::chrono::milliseconds(interval_ms_) - kLookEvery;
      return std::min(window, closing_due_);
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
void Flusher::assert_state() const {
  const Lsn target{target_.load()};  // before the head, which only moves up
  MEMLITH_ASSERT(target <= files_.log->head());
}

}  // namespace memlith::core
