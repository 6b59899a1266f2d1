#include "kv/gatherer.hpp"

#include <utility>

#include "base/no_throw.hpp"
#include "kv/writer_pace.hpp"

namespace memlith::core::kv {

namespace {
constexpr std::uint64_t kFrameBytes = 256 * kKiB;  // from here on a batch goes to the log
constexpr std::chrono::milliseconds kTryAgainAfter{100};
}  // namespace

void Gatherer::start(Window window, bool manual) {
  {
    const LockGuard lock(hand_mutex_);
    const LockGuard other(queue_mutex_);
    handed_.commit = durable_ = pages_.header().commits;
  }
  manual_ = manual;
  set_window(window);
  if (!manual) thread_ = Thread([this] { run(); });
}

Status Gatherer::stop(bool persist) {
  {
    const LockGuard lock(wake_mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  const Status done = persist ? no_throw([this] { return make_durable(newest()); }) : kOk;
  stop_telling();
  call_done();
  return done;
}

std::uint64_t Gatherer::newest() {
  const LockGuard lock(pages_.writer());
  return pages_.header().commits;
}

// ---- to the log ------------------------------------------------------------------------------------------------

Result<Lsn> Gatherer::hand_over(std::uint64_t commit, bool will_sync) {
  const LockGuard lock(hand_mutex_);
  if (handed_.commit >= commit && carried_.empty()) return handed_.lsn;
  std::uint64_t taken = 0;
  {
    const LockGuard writer(pages_.writer());
    taken = pages_.header().commits;
    if (Batch& batch = pages_.batch(); !batch.empty()) {
      pages_.note_header();
      if (carried_.empty()) {
        std::swap(carried_, batch);
      } else {
        carried_.append(batch);
        batch.clear();
      }
      note_waiting(0);
    }
  }
  hand_soon_.store(false, std::memory_order_relaxed);
  if (!carried_.empty()) {
    MEMLITH_TRY_ASSIGN(handed_.lsn, pages_.region().commit_bytes(carried_.extents(), carried_.sources(), will_sync));
    logged_bytes_.fetch_add(carried_.bytes(), std::memory_order_relaxed);
    unsynced_bytes_.fetch_add(carried_.bytes(), std::memory_order_relaxed);
    carried_.tell_companions(handed_.lsn);
    carried_.clear();
  }
  handed_.commit = taken;
  const LockGuard queue(queue_mutex_);
  queue_.push_back(handed_);
  return handed_.lsn;
}

Status Gatherer::make_durable(std::uint64_t commit) {
  MEMLITH_TRY_ASSIGN(const Lsn lsn, hand_over(commit, true));
  if (const Status synced = pages_.region().store().sync(lsn); !synced.ok()) {
    tell();
    return synced;
  }
  unsynced_bytes_.store(0, std::memory_order_relaxed);
  note_durable();
  return kOk;
}

void Gatherer::note_durable() {
  const Lsn lsn = pages_.region().store().log().durable_lsn();
  bool more = false;
  {
    const LockGuard lock(queue_mutex_);
    while (!queue_.empty() && queue_.front().lsn <= lsn) {
      more = more || queue_.front().commit > durable_;
      durable_ = std::max(durable_, queue_.front().commit);
      queue_.pop_front();
    }
    if (!waiting_.empty() && waiting_.begin()->first <= durable_) {
      can_tell_ = true;
      tell_.notify_all();
    }
  }
  if (more) event_.raise();
}

std::uint64_t Gatherer::durable() {
  note_durable();
  const LockGuard lock(queue_mutex_);
  return durable_;
}

// ---- the window ------------------------------------------------------------------------------------------------

void Gatherer::left(std::uint64_t bytes) {
  const bool first = !pending_.load(std::memory_order_relaxed) && !pending_.exchange(true);
  const bool large = bytes >= kFrameBytes && !hand_soon_.load(std::memory_order_relaxed) && !hand_soon_.exchange(true);
  if (!first && !large) return;
  const LockGuard lock(wake_mutex_);
  if (first) since_ = SteadyClock::now();
  wake_.notify_all();
}

Status Gatherer::keep_up() {
  if (waiting_bytes_.load(std::memory_order_relaxed) < kWaitingBytesMax) return kOk;
  return hand_over(~std::uint64_t{0}, false).status();
}

void Gatherer::set_window(Window window) {
  const LockGuard lock(wake_mutex_);
  window_ = window;
  nudged_ = true;
  wake_.notify_all();
}

// True if the window has passed, false if only a frame has to be made. The thread has nothing else to do.
bool Gatherer::wait_for_work() {
  for (;;) {
    const auto waked = [this]() MEMLITH_REQUIRES(wake_mutex_) {
      return stopping_ || nudged_ || hand_soon_.load(std::memory_order_relaxed);
    };
    if (!pending_.load()) {
      wake_.wait(wake_mutex_, [this, &waked]() MEMLITH_REQUIRES(wake_mutex_) { return waked() || pending_.load(); });
    }
    if (stopping_) return false;
    if (std::exchange(nudged_, false)) return false;
    if (unsynced_bytes_.load(std::memory_order_relaxed) >= window_.bytes) return true;
    if (hand_soon_.load(std::memory_order_relaxed)) return false;
    const auto due = since_ + std::chrono::milliseconds(window_.interval_ms);
    const auto now = SteadyClock::now();
    if (now >= due) return true;
    (void)wake_.wait_for(wake_mutex_, due - now, waked);
  }
}

void Gatherer::run() {
  for (;;) {
    bool due = false;
    {
      const LockGuard lock(wake_mutex_);
      due = wait_for_work();
      if (stopping_) return;
      // A commit from here on waits for the next window.
      if (due) pending_.store(false);
    }
    const Status done = no_throw([this, due]() -> Status {
      if (due) return make_durable(newest());
      if (hand_soon_.load(std::memory_order_relaxed)) return hand_over(~std::uint64_t{0}, false).status();
      return kOk;
    });
    (void)no_throw([this] {
      pages_.grow_ahead();
      return kOk;
    });
    if (!done.ok()) {
      hand_soon_.store(false, std::memory_order_relaxed);
      unsynced_bytes_.store(0, std::memory_order_relaxed);
      event_.raise();
      const LockGuard lock(wake_mutex_);
      const bool poisoned = pages_.region().store().log().poisoned();
      pending_.store(!poisoned);
      since_ = SteadyClock::now() + kTryAgainAfter;
    }
    tell();
  }
}

// ---- those who want to know ------------------------------------------------------------------------------------

void Gatherer::when_durable(std::uint64_t commit, Done done) {
  const LockGuard lock(queue_mutex_);
  if (!manual_ && !telling_.joinable()) telling_ = Thread([this] { run_telling(); });
  waiting_.emplace(commit, std::move(done));
  can_tell_ = true;
  tell_.notify_all();
}

void Gatherer::run_telling() {
  for (;;) {
    {
      const LockGuard lock(queue_mutex_);
      tell_.wait(queue_mutex_, [this]() MEMLITH_REQUIRES(queue_mutex_) { return can_tell_ || telling_stops_; });
      if (telling_stops_) return;
      can_tell_ = false;
    }
    call_done();
  }
}

// What became durable, or will not, is told.
void Gatherer::tell() {
  note_durable();
  const LockGuard lock(queue_mutex_);
  can_tell_ = true;
  tell_.notify_all();
}

void Gatherer::stop_telling() {
  Thread telling;
  {
    const LockGuard lock(queue_mutex_);
    telling_stops_ = true;
    tell_.notify_all();
    std::swap(telling, telling_);
  }
  if (telling.joinable()) telling.join();
}

void Gatherer::call_done() {
  note_durable();
  const Status failure = pages_.region().store().failure();
  for (;;) {
    Done done;
    std::uint64_t commit = 0;
    Status status = kOk;
    {
      const LockGuard lock(queue_mutex_);
      if (waiting_.empty()) return;
      const auto first = waiting_.begin();
      commit = first->first;
      if (commit > durable_) {
        if (failure.ok()) return;
        status = failure;
      }
      done = std::move(first->second);
      waiting_.erase(first);
    }
    done(commit, status);
  }
}

}  // namespace memlith::core::kv
