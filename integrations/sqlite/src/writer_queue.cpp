#include "writer_queue.hpp"

#include <algorithm>
#include <utility>

namespace memlith::sqlite {

using core::LockGuard;
using core::SteadyClock;

namespace {

// How often a waiting thread yields before it blocks, and how often a blocked one is passed over.
constexpr std::uint32_t kTurnsAwake = 60;
constexpr std::uint32_t kPassedMax = 8;
// A busy handler sleeps within this time after the refusal.
constexpr std::chrono::milliseconds kSoon{1};

Refused& refused() {
  thread_local Refused instance;
  return instance;
}

}  // namespace

void note_refused(const std::shared_ptr<WriterQueue>& queue, const std::shared_ptr<WriterQueue::Waiter>& waiter) {
  refused() = {queue, waiter, SteadyClock::now()};
}

void forget_refused() {
  if (refused().waiter != nullptr) refused() = {};
}

Refused take_refused() {
  if (refused().waiter == nullptr) return {};
  Refused taken = std::exchange(refused(), {});
  return SteadyClock::now() - taken.when <= kSoon ? std::move(taken) : Refused{};
}

bool WriterQueue::promise_is_over() const { return promised_ == nullptr || SteadyClock::now() >= promised_until_; }

void WriterQueue::end_promise() {
  if (promised_ != nullptr) promised_->promised_.store(false, std::memory_order_relaxed);
  promised_ = nullptr;
}

bool WriterQueue::promised_to_another(const Waiter& who) {
  if (promised_ == &who || promised_ == nullptr) return false;
  if (!promise_is_over()) return true;
  end_promise();
  return false;
}

void WriterQueue::take(Waiter& who) {
  end_promise();
  free_ = false;
  who.ticket_ = 0;
  who.slept_ = false;
}

// A connection that did not sleep since it was refused last had given up, and waits anew.
void WriterQueue::refuse(Waiter& who) {
  if (!std::exchange(who.slept_, false)) who.ticket_ = 0;
}

// The lock is free and not promised.
void WriterQueue::hand_over() {
  end_promise();
  if (waiting_.empty()) return;
  std::size_t chosen = 0;
  if (waiting_[0]->passed_ < kPassedMax) {
    const auto awake = std::find_if(waiting_.begin(), waiting_.end(), [](const Waiter* each) { return each->awake_; });
    if (awake != waiting_.end()) chosen = static_cast<std::size_t>(awake - waiting_.begin());
  }
  for (std::size_t i = 0; i < chosen; ++i) ++waiting_[i]->passed_;
  promised_ = waiting_[chosen];
  promised_until_ = SteadyClock::now() + promise_;
  promised_->promised_.store(true, std::memory_order_release);
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(chosen));
  if (!promised_->awake_) promised_->wake_.notify_one();
}

void WriterQueue::stand_in_line(Waiter& who) {
  if (std::find(waiting_.begin(), waiting_.end(), &who) != waiting_.end()) return;
  const auto place =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiter* each) { return each->ticket_ > who.ticket_; });
  waiting_.insert(place, &who);
}

void WriterQueue::wait(Waiter& who, std::chrono::microseconds time) {
  const Time end = SteadyClock::now() + time;
  {
    const LockGuard guard(mutex_);
    if (who.ticket_ == 0) {
      who.ticket_ = ++tickets_;
      who.passed_ = 0;
    }
    who.slept_ = true;
    who.awake_ = true;
    stand_in_line(who);
    if (free_ && promise_is_over()) hand_over();
  }
  for (std::uint32_t turn = 0; turn < kTurnsAwake; ++turn) {
    if (who.promised_.load(std::memory_order_acquire)) return;
    core::yield_thread();
  }
  const LockGuard guard(mutex_);
  block(who, end);
  std::erase(waiting_, &who);
}

void WriterQueue::block(Waiter& who, Time end) {
  const auto promised = [&who] { return who.promised_.load(std::memory_order_relaxed); };
  who.awake_ = false;
  while (!promised()) {
    const Time now = SteadyClock::now();
    if (now >= end) break;
    stand_in_line(who);  // if the lock was promised to it, and it did not notice in time
    // If the connection before this one does not come for the lock, its turn ends.
    const Time until = free_ && promised_ != nullptr ? std::min(end, promised_until_) : end;
    who.wake_.wait_for(mutex_, std::max(until - now, Time::duration(1)), promised);
    if (!promised() && free_ && promise_is_over()) hand_over();
  }
}

void WriterQueue::leave(Waiter& who) {
  const LockGuard guard(mutex_);
  std::erase(waiting_, &who);
  if (promised_ == &who && free_) hand_over();
}

}  // namespace memlith::sqlite
