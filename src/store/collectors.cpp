#include "store/collectors.hpp"

#include <algorithm>

#include "store/refusal.hpp"
#include "store/store.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kAllowedAtOnce = 256 * kKiB;
constexpr std::chrono::milliseconds kHeldMax{100};  // from a look at held tickets to a closing
constexpr Lsn kNever{~std::uint64_t{0}};            // the log is never durable up to there
}  // namespace

// ---- a collector -----------------------------------------------------------------------------------------------

// ORDER hold-before-head: the durable ticket is held back before the head is read that the ticket is behind. A caller
// that finds out how far the log is durable, and then sees nothing held back here, found a place that is not behind
// that head. All of these loads and stores have one order. [mutant head_before_hold]
void Collector::hold_back() {
  const Log& log = all_.store_.log();
  const std::uint64_t newest = std::max(ticket_.load(std::memory_order_relaxed), all_.ticket_floor_.load());
  const std::uint64_t held = std::max(newest, log.head().value);
  held_at_.store(held, std::memory_order_seq_cst);
  set_ticket(std::max(held, log.head().value) + 1);
}

Lsn Collector::held_at() const {
  const std::uint64_t waiting = held_at_.load(std::memory_order_seq_cst);
  return Lsn{std::min(waiting, aside_at_.load(std::memory_order_seq_cst))};
}

Lsn Collector::durable_ticket() {
  const Lsn durable = all_.store_.log().durable_lsn();
  return durable_ticket(durable);
}

// ORDER aside-before-open: a look in between finds the tickets held back in both places, and never in none.
// [mutant tickets_between_places]
void Collector::set_tickets_aside() noexcept {
  MEMLITH_ASSERT(aside_at_.load() == kNone);
  aside_at_.store(held_at_.load());
  held_at_.store(kNone);
}

void Collector::tickets_in_log(Lsn end, bool more) noexcept {
  held_tickets_.add(Lsn{aside_at_.load()}, end);
  if (!more) aside_at_.store(kNone);
}

void Collector::note_first() {
  if (held_at_.load(std::memory_order_relaxed) == kNone) hold_back();
  waits_.store(true, std::memory_order_release);
  all_.waiting_.fetch_add(1, std::memory_order_release);
}

bool Collector::allow_more(std::uint64_t bytes) {
  MEMLITH_ASSERT(bytes > allowed_);
  const std::uint64_t limit = all_.store_.log_limit_bytes() / 2;
  const std::uint64_t more = std::max(bytes - allowed_, std::min(kAllowedAtOnce, limit / 16));
  const std::uint64_t others = all_.allowed_.fetch_add(more);
  if (others > 0 && others + more > limit) {
    all_.allowed_.fetch_sub(more);
    return false;
  }
  allowed_ += more;
  return true;
}

void Collector::drop_unused_allowance() {
  if (waits_.load(std::memory_order_relaxed)) return;
  MEMLITH_ASSERT(all_.allowed_.load() >= allowed_);
  all_.allowed_.fetch_sub(allowed_);
  allowed_ = 0;
}

// ---- which there are -------------------------------------------------------------------------------------------

void Collectors::add(Collector& collector) {
  const LockGuard ahead(ahead_mutex_);
  const LockGuard lock(mutex_);
  const LockGuard moved(moved_mutex_);
  MEMLITH_ASSERT(std::ranges::find(all_, &collector) == all_.end());
  aside_.reserve(all_.size() + 1);
  paused_.reserve(all_.size() + 1);
  pieces_.reserve(all_.size() + 1);
  if (log_ == nullptr) log_ = &store_.log();  // others read it meanwhile
  collector.set_ticket(log_->head().value);
  all_.push_back(&collector);
  count_.store(all_.size(), std::memory_order_release);
}

void Collectors::remove(Collector& collector, bool acknowledged) {
  const LockGuard ahead(ahead_mutex_);
  const LockGuard lock(mutex_);
  const LockGuard moved(moved_mutex_);
  const auto erased = std::erase(all_, &collector);
  MEMLITH_ASSERT(erased == 1);
  count_.store(all_.size(), std::memory_order_release);
  const bool was_aside = std::erase(aside_, &collector) > 0;
  const bool waited = collector.waits_.load(std::memory_order_relaxed);
  if (waited) waiting_.fetch_sub(1);
  MEMLITH_ASSERT(allowed_.load() >= collector.allowed_ + collector.allowed_aside_);
  allowed_.fetch_sub(collector.allowed_ + collector.allowed_aside_);
  held_tickets_.add(collector.held_tickets_);
  if (acknowledged && (was_aside || waited)) {
    lost_ = true;
    held_tickets_.add(collector.held_at(), kNever);
  }
  note_refused();
}

// ---- tickets ---------------------------------------------------------------------------------------------------

Lsn Collectors::durable_ticket() {
  const Lsn durable = store_.log().durable_lsn();  // before what is held back
  Lsn ticket = durable;
  bool waits = false;
  {
    const LockGuard moved(moved_mutex_);
    for (Collector* const each : all_) {
      ticket = std::min(ticket, each->durable_ticket(durable));
      waits = waits || (!each->by_hand_ && each->held_at() < durable);
    }
    ticket = held_tickets_.durable(durable, ticket);
  }
  if (waits) store_.want_closing(SteadyClock::now() + kHeldMax);
  return ticket;
}

Lsn Collectors::newest_ticket() {
  Lsn newest = store_.log().head();
  const LockGuard moved(moved_mutex_);
  for (const Collector* const each : all_) newest = std::max(newest, each->newest_ticket());
  return newest;
}

Result<Lsn> Collectors::bring_to_log(Lsn ticket) {
  const auto any_waits = [&] {
    const LockGuard moved(moved_mutex_);
    return std::ranges::any_of(all_, [ticket](const Collector* each) { return each->held_at() < ticket; });
  };
  if (any_waits()) {
    const auto closed = close(true);
    if (!closed.ok() && any_waits()) return closed.error();
  }
  Lsn end = std::min(ticket, store_.log().head());
  const LockGuard moved(moved_mutex_);
  for (Collector* const each : all_) end = std::max(end, each->held_tickets_.end_for(ticket));
  end = std::max(end, held_tickets_.end_for(ticket));
  if (end == kNever) return commits_are_lost();
  return end;
}

void Collectors::durable_moved() {
  if (count_.load(std::memory_order_acquire) == 0) return;
  const LockGuard moved(moved_mutex_);
  for (Collector* const each : all_) each->durable_moved();
}

std::uint64_t Collectors::oldest_waiting_ns() {
  std::uint64_t oldest = 0;
  const LockGuard moved(moved_mutex_);
  for (Collector* const each : all_) {
    const std::uint64_t since = each->oldest_waiting_ns();
    if (since != 0 && (oldest == 0 || since < oldest)) oldest = since;
  }
  return oldest;
}

void Collectors::after_background_closing(Status closed) {
  const LockGuard ahead(ahead_mutex_);
  for (Collector* const each : all_) each->after_background_closing(closed);
}

// ---- closing ---------------------------------------------------------------------------------------------------

// ORDER one-moment: all collectors in which something waits are held at the same time. Otherwise a commit could be set
// aside, and one of another collector that it had followed could not. One that was idle is looked at again once others
// are held: whatever their commits had followed shows by then. [mutant collectors_closed_apart]
Result<Closing> Collectors::pause_all() {
  Closing closing(paused_);
  for (bool more = true; more;) {
    more = false;
    for (Collector* const each : all_) {
      if (!each->waits_.load(std::memory_order_acquire) || closing.holds(*each)) continue;
      MEMLITH_TRY_ASSIGN(KeptLock commits, each->pause());
      closing.add(*each, std::move(commits));
      more = true;
    }
  }
  return closing;
}

void Collectors::set_aside(const Closing& closing) {
  const std::span<const Closing::Paused> paused(*closing.paused_);
  // Before waiting_ is less: any_waits() is true throughout. [mutant set_aside_not_waiting]
  if (!paused.empty()) aside_waits_.store(true);
  MEMLITH_ASSERT(waiting_.load() >= paused.size());
  for (const Closing::Paused& each : paused) {
    ticket_floor_.store(std::max(ticket_floor_.load(), each.collector->newest_ticket().value));
  }
  for (const Closing::Paused& held : paused) {
    Collector* const each = held.collector;
    MEMLITH_ASSERT(each->waits_.load(std::memory_order_relaxed));
    MEMLITH_ASSERT(std::ranges::find(aside_, each) == aside_.end());
    each->set_aside(closing);
    each->set_tickets_aside();
    each->waits_.store(false, std::memory_order_relaxed);
    waiting_.fetch_sub(1);
    each->allowed_aside_ += std::exchange(each->allowed_, 0);
    aside_.push_back(each);
  }
}

// The pieces of one collector are what it has; those of several are put together.
Result<Lsn> Collectors::commit(std::span<const Collector::CommitBatch> pieces, bool will_sync) {
  frame_.clear();
  MEMLITH_ASSERT(!pieces.empty());
  for (const Collector::CommitBatch& each : pieces) {
    MEMLITH_ASSERT(each.extents.size() == each.sources.size() && each.steps > 0);
    if (each.size.has_value()) frame_.sizes.push_back(*each.size);
    if (pieces.size() == 1) continue;
    frame_.extents.insert(frame_.extents.end(), each.extents.begin(), each.extents.end());
    frame_.sources.insert(frame_.sources.end(), each.sources.begin(), each.sources.end());
  }
  if (pieces.size() == 1) return store_.commit_weak({pieces[0].extents, pieces[0].sources, frame_.sizes}, will_sync);
  return store_.commit_weak({frame_.extents, frame_.sources, frame_.sizes}, will_sync);
}

// As one frame if the log takes it. A log that cannot grow, because the disk is full, may have room for smaller ones.
Status Collectors::send(bool will_sync) {
  std::uint64_t frame_bytes_max = ~std::uint64_t{0};
  while (!aside_.empty()) {
    if (lost_) return commits_are_lost();
    pieces_.clear();
    std::uint64_t bytes = 0;
    std::size_t steps = 0;
    for (Collector* const each : aside_) {
      pieces_.push_back(each->first(frame_bytes_max));
      bytes += pieces_.back().bytes;
      steps += pieces_.back().steps;
    }
    const auto end = commit(pieces_, will_sync);
    if (end.ok()) {
      MEMLITH_ASSERT(*end > newest_ && pieces_.size() == aside_.size());
      newest_ = *end;
      std::size_t left = pieces_.size();
      std::erase_if(aside_, [&](Collector* each) {
        if (left == 0) return false;
        --left;
        const bool more = each->in_log(*end);
        each->tickets_in_log(*end, more);
        if (!more) allowed_.fetch_sub(std::exchange(each->allowed_aside_, 0));
        each->durable_moved();  // it may be durable by now, and no thread looks again
        return !more;
      });
    } else if (is_refusal(end.error()) && aside_.size() == 1 && steps > 1) {
      frame_bytes_max = bytes / 2;
    } else {
      return end.error();
    }
  }
  return kOk;
}

void Collectors::note_refused() {
  const bool any = !aside_.empty();
  refused_.store(any);
  aside_waits_.store(any);
}

Result<Lsn> Collectors::close_held(bool will_sync) {
  // Whatever ends this call, also a lack of memory: what is set aside still was refused.
  struct NoteRefused {
    Collectors& owner;
    ~NoteRefused() {
      owner.mutex_.assert_held();
      owner.note_refused();
    }
  } const note{*this};
  // Commits that the log refused lie before those that came later.
  Status sent = send(will_sync);
  if (sent.ok()) {
    auto closing = pause_all();
    if (closing.ok()) set_aside(*closing);
    sent = closing.status();
  }
  if (sent.ok()) sent = send(will_sync);
  store_.publish_stats();
  if (sent.ok()) return newest_;
  return is_refusal(sent) ? refused_because(sent) : sent;
}

Status Collectors::commits_are_lost() const {
  return fail(Errc::no_space, Detail::object,
              "{}: commits of a structure that was closed without them are lost, and nothing may follow them; reopen "
              "the store",
              store_.path());
}

Status Collectors::refused_because(Status cause) {
  KeptFailure why;
  why.keep(cause);
  std::string waiting;
  for (const Collector* const each : aside_) waiting += (waiting.empty() ? "" : ", and ") + each->what_waits();
  if (waiting.empty()) return cause;
  (void)fail(cause.category, cause.detail,
             "{}. Only in memory are {}. They become durable when there is room, and until then the store takes no "
             "further commit; if the process ends before, they are lost",
             why.text(), waiting);
  return cause;
}

}  // namespace memlith::core
