#include "kv/weak_commits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/no_throw.hpp"
#include "store/refusal.hpp"

namespace memlith::core::kv {

namespace {
constexpr std::uint64_t kFrameBytes = 256 * kKiB;  // from here on a batch goes to the log

std::uint64_t steady_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now()
                                                                                             .time_since_epoch())
                                        .count());
}
}  // namespace

void WeakCommits::start(Window window, bool manual) {
  {
    const std::uint64_t commits = newest();
    const LockGuard lock(queue_mutex_);
    durable_ = commits;
    known_durable_.store(commits, std::memory_order_release);
    numbers_.begin(commits);
  }
  manual_ = manual;
  if (manual) close_by_hand();
  interval_ms_ = window.interval_ms;
  window_bytes_ = window.bytes;
  store().collectors().add(*this);
}

Status WeakCommits::stop(bool persist) {
  const Status done = persist ? no_throw([this] { return make_durable(newest()); }) : kOk;
  const KeptSentence sentence;
  store().collectors().remove(*this, persist);
  stop_telling();
  call_done(done);
  return done;
}

std::uint64_t WeakCommits::newest() {
  const LockGuard lock(pages_.writer.mutex());
  return pages_.writer.header().commits;
}

// ---- commits ---------------------------------------------------------------------------------------------------

WeakCommits::Wish WeakCommits::committed(bool weak) {
  if (!pages_.writer.logs()) return {};
  note_waiting_commit();
  const std::uint64_t bytes = pages_.writer.batch().bytes();
  waiting_bytes_.store(bytes, std::memory_order_relaxed);
  Wish wish;
  if (!weak || manual_) return wish;
  // The clock is read once a frame.
  if (waits_since_ns_.load(std::memory_order_relaxed) == 0) waits_since_ns_.store(steady_ns());
  wish.window = !std::exchange(window_begun_, true);
  if (bytes >= std::min(kFrameBytes, window_bytes_.load(std::memory_order_relaxed))) {
    wish.frame = !std::exchange(frame_wanted_, true);
  }
  return wish;
}

void WeakCommits::ask_for(const Wish& wish) {
  if (wish.window) {
    store().want_closing(SteadyClock::now() + std::chrono::milliseconds(interval_ms_.load(std::memory_order_relaxed)));
    store().publish_stats();
  }
  if (wish.frame) store().want_frame();
}

void WeakCommits::set_window(Window window) {
  interval_ms_ = window.interval_ms;
  window_bytes_ = window.bytes;
  // Commits that wait under the old window are brought to the disk now.
  if (!manual_) store().want_closing(SteadyClock::now());
}

// ---- to the log ------------------------------------------------------------------------------------------------

Result<Lsn> WeakCommits::hand_over(std::uint64_t commit, bool will_sync) {
  const auto known = [&]() -> std::optional<Lsn> {
    const LockGuard lock(queue_mutex_);
    return numbers_.logged() >= commit ? std::optional(numbers_.end_of(commit)) : std::nullopt;
  };
  Collectors& collectors = store().collectors();
  const LockGuard lock(collectors.mutex());
  if (const auto end = known(); end.has_value()) return *end;
  const auto closed = collectors.close_held(will_sync);
  if (closed.ok()) return *closed;
  if (const auto end = known(); end.has_value()) return *end;
  return closed.error();
}

Result<KeptLock> WeakCommits::pause() {
  KeptLock writer = part_hold_.holds() ? KeptLock() : KeptLock(pages_.writer.mutex());
  pages_.writer.mutex().assert_held();
  MEMLITH_TRY(no_throw([this]() MEMLITH_REQUIRES(writing) -> Status {
    pages_.writer.cut_batch();
    return kOk;
  }));
  return writer;
}

void WeakCommits::set_aside(const Closing& /*closing*/) noexcept {
  pages_.writer.mutex().assert_held();
  MEMLITH_ASSERT(carried_.empty());
  MEMLITH_ASSERT(pages_.writer.batch().ends_in_cut());  // pause() cut it
  std::swap(carried_, pages_.writer.batch());
  note_aside();
  waiting_bytes_.store(0, std::memory_order_relaxed);
  window_begun_ = frame_wanted_ = false;
}

Collector::CommitBatch WeakCommits::first(std::uint64_t bytes_max) {
  front_ = carried_.front(bytes_max);
  size_ = pages_.words.region().size_to_commit();
  return {front_.extents, front_.sources, size_, front_.bytes, front_.cuts};
}

bool WeakCommits::in_log(Lsn end) noexcept {
  pages_.words.region().note_commit(end);
  if (size_.has_value()) pages_.words.region().note_size_committed(*size_);
  note_sent(front_, end);
  return !carried_.empty();
}

void WeakCommits::note_sent(const Batch::Front& front, Lsn end) {
  logged_bytes_.fetch_add(front.bytes, std::memory_order_relaxed);
  unflushed_bytes_ += front.bytes;
  if (!manual_ && unflushed_bytes_ >= window_bytes_.load(std::memory_order_relaxed)) {
    unflushed_bytes_ = 0;
    store().flush_soon(end);
  }
  {
    const LockGuard queue(queue_mutex_);
    MEMLITH_ASSERT(front.commit >= numbers_.logged());
    numbers_.add(front.commit, end);
    note_in_frame(end);
  }
  carried_.drop_front(front);
  if (carried_.empty()) aside_since_ns_.store(0);
}

void WeakCommits::note_aside() noexcept {
  aside_since_ns_.store(waits_since_ns_.load());
  waits_since_ns_.store(0);
}

void WeakCommits::note_in_frame(Lsn end) noexcept {
  const std::uint64_t since = aside_since_ns_.load(std::memory_order_relaxed);
  if (since == 0) return;
  try {
    in_frames_.push_back({end, since});
  } catch (const std::exception&) {
    // No memory: statistics lack one frame.
  }
}

void WeakCommits::part_in_log(const Batch::Front& front, Lsn end) {
  note_sent(front, end);
  tickets_in_log(end, false);
  note_durable();  // it may be durable by now, and no thread looks again
}

std::string WeakCommits::what_waits() const {
  const LockGuard queue(queue_mutex_);
  return fmt::format("the commits behind number {} of the kv store \"{}\"", numbers_.logged(),
                     pages_.words.region().shown_name());
}

Batch::Front WeakCommits::take_part() {
  MEMLITH_ASSERT(part_hold_.holds() && carried_.empty());
  pages_.writer.mutex().assert_held();
  pages_.writer.cut_batch();
  std::swap(carried_, pages_.writer.batch());
  note_aside();
  set_tickets_aside();
  let_part_go();
  return carried_.front(~std::uint64_t{0});
}

// ---- to the disk -----------------------------------------------------------------------------------------------

Status WeakCommits::wait_durable(std::uint64_t commit) {
  if (!pages_.writer.logs()) return kOk;
  const auto handed = hand_over(commit, true);
  if (!handed.ok()) {
    // Those of the commits that the log took before it refused the rest. The others are tried again.
    const KeptSentence sentence;
    Lsn newest;
    {
      const LockGuard lock(queue_mutex_);
      newest = numbers_.newest_end();
    }
    if (store().sync(newest).ok()) note_durable();
    if (is_refusal(handed.error())) ask_for({!manual_, false});
    return handed.error();
  }
  MEMLITH_TRY(store().sync(*handed));
  note_durable();
  return kOk;
}

void WeakCommits::note_durable() {
  const Lsn lsn = store().log().durable_lsn();
  const Lsn ticket = durable_ticket();
  bool more = false;
  {
    const LockGuard lock(queue_mutex_);
    count_waits(lsn);
    const std::uint64_t before = std::exchange(durable_, numbers_.durable(lsn));
    MEMLITH_ASSERT(durable_ >= before);  // no commit is taken back
    known_durable_.store(durable_, std::memory_order_release);
    more = durable_ > before;
    if (!waiting_.empty() && waiting_.begin()->first <= ticket) {
      can_tell_ = true;
      tell_.notify_all();
    }
  }
  if (more) event_.raise();
}

void WeakCommits::count_waits(Lsn durable) {
  if (in_frames_.empty() || in_frames_.front().end > durable) return;
  StatsPage* const page = store().stats();
  const std::uint64_t now = steady_ns();
  for (; !in_frames_.empty() && in_frames_.front().end <= durable; in_frames_.pop_front()) {
    if (page != nullptr) page->kv_weak_waits.add(now - in_frames_.front().since_ns);
  }
}

std::uint64_t WeakCommits::oldest_waiting_ns() {
  const std::uint64_t waits = waits_since_ns_.load();
  const std::uint64_t aside = aside_since_ns_.load();
  const LockGuard lock(queue_mutex_);
  if (!in_frames_.empty()) return in_frames_.front().since_ns;
  return aside != 0 ? aside : waits;
}

void WeakCommits::durable_moved() {
  note_durable();
  if (!store().log().poisoned()) return;
  {
    const LockGuard lock(queue_mutex_);
    can_tell_ = true;
    tell_.notify_all();
  }
  event_.raise();
}

void WeakCommits::after_background_closing(Status closed) {
  if (manual_) return;
  if (!closed.ok()) event_.raise();
  pages_.writer.grow_ahead();
}

std::uint64_t WeakCommits::durable() {
  note_durable();
  const LockGuard lock(queue_mutex_);
  return durable_;
}

// ---- those who want to know ------------------------------------------------------------------------------------

void WeakCommits::when_durable(Lsn ticket, Done done) {
  MEMLITH_ASSERT(done != nullptr);
  const LockGuard lock(queue_mutex_);
  if (!manual_ && !telling_.joinable()) telling_ = Thread([this] { run_telling(); });
  waiting_.emplace(ticket, std::move(done));
  can_tell_ = true;
  tell_.notify_all();
}

void WeakCommits::run_telling() {
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

void WeakCommits::stop_telling() {
  Thread telling;
  {
    const LockGuard lock(queue_mutex_);
    telling_stops_ = true;
    tell_.notify_all();
    std::swap(telling, telling_);
  }
  if (telling.joinable()) telling.join();
}

void WeakCommits::call_done(Status unless_durable) {
  note_durable();
  const Status poisoned = store().failure();
  const Status failure = poisoned.ok() ? unless_durable : poisoned;
  for (;;) {
    Done done;
    Lsn ticket;
    Status status = kOk;
    const Lsn durable = durable_ticket();
    {
      const LockGuard lock(queue_mutex_);
      if (waiting_.empty()) return;
      const auto first = waiting_.begin();
      ticket = first->first;
      if (ticket > durable && pages_.writer.logs()) {
        if (failure.ok()) return;
        status = failure;
      }
      done = std::move(first->second);
      waiting_.erase(first);
    }
    done(ticket, status);
  }
}

}  // namespace memlith::core::kv
