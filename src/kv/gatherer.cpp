#include "kv/gatherer.hpp"

#include <utility>

#include "base/mutant.hpp"
#include "base/no_throw.hpp"
#include "kv/writer_pace.hpp"
#include "region/refusal.hpp"

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
  const KeptSentence sentence;
  call_done(done);
  return done;
}

std::uint64_t Gatherer::newest() {
  const LockGuard lock(pages_.writer());
  return pages_.header().commits;
}

// ---- to the log ------------------------------------------------------------------------------------------------

Result<Lsn> Gatherer::hand_over(std::uint64_t commit, bool will_sync) {
  const LockGuard lock(hand_mutex_);
  if (handed_.commit >= commit) return handed_.lsn;
  // Whatever ends this call, also a lack of memory: what is left was refused.
  struct CountRefused {
    Gatherer& owner;
    ~CountRefused() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
      if (MEMLITH_MUTANT(kv_refusal_not_counted)) return;
      owner.refused_bytes_.store(owner.carried_.bytes(), std::memory_order_relaxed);
    }
  } const count{*this};
  // What the log refused lies before what commits have left since.
  Status sent = send_carried(will_sync);
  if (sent.ok()) {
    take_batch();
    sent = send_carried(will_sync);
  }
  if (sent.ok() || handed_.commit >= commit) return handed_.lsn;
  return refused(sent);
}

// With carried_ empty: between two commits, what they left.
void Gatherer::take_batch() {
  {
    const LockGuard writer(pages_.writer());
    pages_.cut_batch();
    if (Batch& batch = pages_.batch(); !batch.empty()) {
      std::swap(carried_, batch);
      note_waiting(0);
    } else {
      handed_.commit = pages_.header().commits;
      const LockGuard queue(queue_mutex_);
      queue_.push_back(handed_);
    }
  }
  hand_soon_.store(false, std::memory_order_relaxed);
}

// As one frame if the log takes it. A log that cannot grow, because the disk is full, may have room for smaller ones.
Status Gatherer::send_carried(bool will_sync) {
  std::uint64_t frame_bytes_max = ~std::uint64_t{0};
  while (!carried_.empty()) {
    const Batch::Piece piece = carried_.front(frame_bytes_max);
    const auto end = pages_.region().commit_bytes(piece.extents, piece.sources, will_sync);
    if (end.ok()) {
      note_sent(piece, *end);
    } else if (is_refusal(end.error()) && piece.cuts > 1) {
      frame_bytes_max = piece.bytes / 2;
    } else {
      if (MEMLITH_MUTANT(kv_refused_batch_dropped)) carried_.clear();
      return end.error();
    }
  }
  return kOk;
}

void Gatherer::note_sent(const Batch::Piece& piece, Lsn end) {
  logged_bytes_.fetch_add(piece.bytes, std::memory_order_relaxed);
  unsynced_bytes_.fetch_add(piece.bytes, std::memory_order_relaxed);
  handed_ = {piece.commit, end};
  carried_.drop_front(piece);
  const LockGuard queue(queue_mutex_);
  const Status noted = no_throw([this]() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
    queue_.push_back(handed_);
    return kOk;
  });
  // Without memory the commits before it are found to be durable with these.
  if (!noted.ok() && !queue_.empty()) queue_.back() = handed_;
}

// ---- a commit together with other structures ------------------------------------------------------------------

// The writer's lock is held when this succeeds, which the analysis cannot follow: it is the lock of another object.
Status Gatherer::hold() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  hand_mutex_.lock();
  pages_.writer().lock();
  const Status sent = no_throw([this]() MEMLITH_NO_THREAD_SAFETY_ANALYSIS -> Status {
    MEMLITH_TRY(send_carried(false));
    pages_.cut_batch();
    if (pages_.batch().empty()) return kOk;
    std::swap(carried_, pages_.batch());
    note_waiting(0);
    return send_carried(false);
  });
  refused_bytes_.store(carried_.bytes(), std::memory_order_relaxed);
  if (sent.ok()) return kOk;
  const Status told = refused(sent);
  pages_.writer().unlock();
  hand_mutex_.unlock();
  return told;
}

void Gatherer::let_go() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  pages_.writer().unlock();
  hand_mutex_.unlock();
}

Batch::Piece Gatherer::take_held() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  pages_.cut_batch();
  std::swap(carried_, pages_.batch());
  pages_.writer().unlock();
  return carried_.front(~std::uint64_t{0});
}

void Gatherer::held_in_log(const Batch::Piece& piece, Lsn end) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  note_sent(piece, end);
  hand_mutex_.unlock();
}

// The store is poisoned: nothing of this goes to the log any more.
void Gatherer::lose_held() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  carried_.clear();
  hand_mutex_.unlock();
}

Status Gatherer::refused(Status cause) {
  if (!is_refusal(cause)) return cause;
  KeptFailure why;
  why.keep(cause);
  (void)fail(cause.category, cause.detail,
             "{}. Of the kv store \"{}\", the commits behind number {} are in memory only. They become durable when "
             "there is room, and until then no further commit is taken; if the process ends before, they are lost",
             why.text(), pages_.region().shown_name(), handed_.commit);
  return cause;
}

Status Gatherer::make_durable(std::uint64_t commit) {
  const auto handed = hand_over(commit, true);
  if (!handed.ok()) {
    // Those of the commits that the log took before it refused the rest.
    const KeptSentence sentence;
    if (const Lsn end = newest_in_log(); pages_.region().store().sync(end).ok()) note_durable();
    return handed.error();
  }
  if (const Status synced = pages_.region().store().sync(*handed); !synced.ok()) {
    tell();
    return synced;
  }
  unsynced_bytes_.store(0, std::memory_order_relaxed);
  note_durable();
  return kOk;
}

Lsn Gatherer::newest_in_log() {
  const LockGuard lock(queue_mutex_);
  return queue_.empty() ? Lsn{0} : queue_.back().lsn;
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
  const bool refused = refused_bytes_.load(std::memory_order_relaxed) > 0;
  if (!refused && waiting_bytes_.load(std::memory_order_relaxed) < kWaitingBytesMax) return kOk;
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
    call_done(kOk);
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

void Gatherer::call_done(Status unless_durable) {
  note_durable();
  const Status poisoned = pages_.region().store().failure();
  const Status failure = poisoned.ok() ? unless_durable : poisoned;
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
