#include "lease.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/process.hpp"

namespace memlith::sqlite {

using core::Detail;
using core::Errc;
using core::fail;
using core::kOk;
using core::LockGuard;
using core::Status;

namespace {

using std::chrono::milliseconds;

// How long a busy process keeps the lease while others wait: moving costs some milliseconds.
constexpr milliseconds kKept{40};
// How long new transactions wait for those that run to end, and how long they go on if that was too short.
constexpr milliseconds kYield{50};
// How often a waiting process looks whether it can have the lease, and the holder whether it can give it up.
constexpr std::chrono::microseconds kLookEvery{500};
// A process without waiting connections stays in line as long as a busy handler may pause.
constexpr milliseconds kStaysInLine{150};
// A busy handler sleeps within this time after the refusal.
constexpr milliseconds kSoon{1};

struct Refusal {
  std::shared_ptr<Lease> lease;
  Lease::Time when;
};
Refusal& refusal() {
  thread_local Refusal instance;
  return instance;
}

bool is_busy(Status status) { return status.category == Errc::busy; }

}  // namespace

void note_lease_refused(const std::shared_ptr<Lease>& lease) { refusal() = {lease, Lease::Clock::now()}; }

std::shared_ptr<Lease> take_lease_refused() {
  if (refusal().lease == nullptr) return nullptr;
  Refusal taken = std::exchange(refusal(), {});
  return Lease::Clock::now() - taken.when <= kSoon ? std::move(taken.lease) : nullptr;
}

Lease::Lease(Leased& leased, milliseconds idle) : leased_(leased), idle_(idle), process_mark_(core::process_mark()) {}

// A child has the memory as it was, and no thread that tends the lease; its parent may hold the mutex forever.
bool Lease::in_forked_child() const { return core::process_mark() != process_mark_; }

Status Lease::enter(milliseconds wait) {
  if (in_forked_child()) return kOk;  // reads what it inherited, and is refused where it writes
  const LockGuard guard(mutex_);
  // The usual case, without a look at the clock.
  if (state_ != State::here || yielding_) {
    Status why = kOk;
    if (!wait_for_turn(Clock::now() + wait, why)) return is_busy(why) ? leased_.tell_holder() : why;
  }
  ++users_;
  ++entries_;
  return kOk;
}

void Lease::leave() {
  if (in_forked_child()) return;
  bool wakes = false;
  {
    const LockGuard guard(mutex_);
    wakes = --users_ == 0 && yielding_;
  }
  if (wakes) wake();
}

void Lease::await(std::chrono::microseconds wait) {
  if (in_forked_child()) return;
  const LockGuard guard(mutex_);
  Status why = kOk;
  (void)wait_for_turn(Clock::now() + wait, why);
}

// Whether this process has the lease, and new transactions may begin.
bool Lease::wait_for_turn(Time until, Status& why) {
  ++waiting_;
  for (;;) {
    const Time now = Clock::now();
    if (state_ == State::here && yielding_ && now >= yields_until_) end_yield(now + kYield);
    if (state_ == State::here && !yielding_) break;
    why = Status{Errc::busy, Detail::lock, 0, 0};
    if (state_ == State::closed) break;
    if (state_ == State::away) {
      why = take(now);
      if (why.ok()) continue;
      if (!is_busy(why)) break;
    }
    if (now >= until) break;
    const Time next = state_ == State::away ? now + kLookEvery : until;
    const State was = state_;
    const Time end = std::min({next, until, yielding_ ? std::max(yields_until_, now + kLookEvery) : until});
    changed_.wait_for(mutex_, end - now, [this, was]() MEMLITH_REQUIRES(mutex_) {
      return state_ != was || (state_ == State::here && !yielding_);
    });
  }
  --waiting_;
  waited_until_ = Clock::now();
  const bool got = state_ == State::here && !yielding_;
  if (!got && state_ == State::away) wake();  // the watch leaves the line later
  return got;
}

Status Lease::take(Time now) {
  state_ = State::moving;
  mutex_.unlock();
  const Status status = leased_.take();
  mutex_.lock();
  state_ = status.ok() ? State::here : State::away;
  if (status.ok()) {
    taken_at_ = idle_since_ = now;
    yielding_ = false;
    wake();  // others may have come to the line meanwhile
  }
  changed_.notify_all();
  return status;
}

void Lease::give_up(bool for_good) {
  state_ = State::moving;
  mutex_.unlock();
  const Status status = leased_.give_up(for_good);
  mutex_.lock();
  state_ = status.ok() ? State::away : State::here;
  end_yield(Clock::now() + kYield);
}

void Lease::settle() {
  state_ = State::moving;
  mutex_.unlock();
  (void)leased_.settle();  // a failure poisons the database, whose next commit tells it
  mutex_.lock();
  state_ = State::here;
  changed_.notify_all();
}

void Lease::end_yield(Time again) {
  yielding_ = false;
  yields_again_ = again;
  changed_.notify_all();
}

std::optional<Lease::Time> Lease::tend() {
  const LockGuard guard(mutex_);
  const Time now = Clock::now();
  switch (state_) {
    case State::closed: return std::nullopt;
    case State::moving: return now + kLookEvery;
    case State::here: return tend_holder(now);
    case State::away: break;
  }
  // A connection that was refused the lock may not come again: other processes must not wait for it.
  if (waiting_ > 0 || now < waited_until_ + kStaysInLine) return now + kStaysInLine;
  leased_.stop_waiting();
  return std::nullopt;
}

std::optional<Lease::Time> Lease::tend_holder(Time now) {
  const bool idle = users_ == 0 && entries_ == std::exchange(entries_seen_, entries_);
  if (!idle) idle_since_ = now;
  if (!leased_.others_wait()) {
    if (yielding_) end_yield(now);
    const bool settles = idle_ > milliseconds(0) && leased_.is_unsettled();
    if (settles && idle && now - idle_since_ >= idle_) {
      settle();
    } else if (settles) {
      return now + std::max(idle_ / 2, milliseconds(1));
    }
    return now - taken_at_ < kKept ? std::optional(taken_at_ + kKept) : std::nullopt;
  }
  const bool long_enough = now - taken_at_ >= kKept;
  if (!yielding_ && long_enough && now >= yields_again_) {
    yielding_ = true;
    yields_until_ = now + kYield;
  }
  if (yielding_ && now >= yields_until_) end_yield(now + kYield);
  if (users_ == 0 && (yielding_ || idle) && now >= yields_again_) give_up(false);
  return Clock::now() + kLookEvery;
}

void Lease::end_process() {
  if (in_forked_child() || !mutex_.try_lock()) return;
  const LockGuard guard(mutex_, std::adopt_lock);
  if (state_ == State::here && users_ == 0) give_up(true);
}

bool Lease::close() {
  if (in_forked_child()) return true;
  const LockGuard guard(mutex_);
  changed_.wait(mutex_, [this]() MEMLITH_REQUIRES(mutex_) { return state_ != State::moving; });
  const bool here = state_ == State::here;
  state_ = State::closed;
  changed_.notify_all();
  return here;
}

}  // namespace memlith::sqlite
