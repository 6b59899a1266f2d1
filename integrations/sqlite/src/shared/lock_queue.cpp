#include "lock_queue.hpp"

#include <algorithm>
#include <chrono>

namespace memlith::sqlite::shared {

namespace {

constexpr std::uint32_t kPassedMax = 8;
// Slot::waiting
constexpr std::uint32_t kSleeps = 1;
constexpr std::uint32_t kComes = 2;
// Slot::wake
constexpr std::uint32_t kCalled = 1;
constexpr std::uint32_t kRoused = 2;
// How long the lock is only for one connection: one that is awake comes within microseconds, one that has to be woken
// within this time unless its process does not run.
constexpr std::uint64_t kPromiseNs = 5'000'000;
// A line that is held for a checkpoint is held for some flushes, and not for longer than this after a kill.
constexpr std::uint64_t kHoldNsMax = 50'000'000;
constexpr std::uint64_t kPinnedNs = 100'000'000;
// How often the first in the queue looks whether the lock is free, and the others whether they are first.
constexpr std::uint64_t kFirstLooksNs = 500'000;
constexpr std::uint64_t kOthersLookNs = 20'000'000;

// A promise: until when, in microseconds, and the slot.
std::uint64_t promise_word(std::uint32_t slot, std::uint64_t until_ns) { return until_ns / 1000 << 8 | (slot + 1); }
std::uint32_t slot_of(std::uint64_t promise) { return static_cast<std::uint32_t>(promise & 0xff) - 1; }
// A time that is further away than any promise is of another clock, or damaged.
bool is_over(std::uint64_t promise, std::uint64_t now) {
  const std::uint64_t until = (promise >> 8) * 1000;
  return until <= now || until > now + 2 * kHoldNsMax || slot_of(promise) >= kSlots;
}

}  // namespace

void LockQueue::promise(std::uint32_t slot) {
  control_.promise.store(promise_word(slot, now_ns() + kPromiseNs), std::memory_order_release);
}

bool LockQueue::is_promised_to(std::uint32_t slot) const {
  const std::uint64_t promise = control_.promise.load(std::memory_order_acquire);
  return promise != 0 && slot_of(promise) == slot && !is_over(promise, now_ns());
}

bool LockQueue::is_promised_to_another(const Waiter& waiter) const {
  const std::uint64_t promise = control_.promise.load(std::memory_order_acquire);
  return promise != 0 && slot_of(promise) != waiter.slot && !is_over(promise, now_ns());
}

bool LockQueue::may_ask(const Waiter& waiter) {
  std::uint64_t promise = control_.promise.load(std::memory_order_acquire);
  if (promise == 0 || slot_of(promise) == waiter.slot) return true;
  if (!is_over(promise, now_ns())) return false;
  // It did not come. If its process was killed, it is not waited for again.
  const std::uint32_t slot = slot_of(promise);
  if (slot < kSlots && !sidecar_.is_alive(slot)) control_.slots[slot].waiting.store(0, std::memory_order_relaxed);
  // Or it has given up: its busy handler did not ask again.
  std::uint32_t comes = kComes;
  if (slot < kSlots) (void)control_.slots[slot].waiting.compare_exchange_strong(comes, 0);
  (void)control_.promise.compare_exchange_strong(promise, 0);
  return true;
}

void LockQueue::call_promised() {
  const std::uint64_t promise = control_.promise.load(std::memory_order_acquire);
  if (promise != 0) call(slot_of(promise));
}

void LockQueue::took(Waiter& waiter) {
  std::uint64_t promise = control_.promise.load(std::memory_order_relaxed);
  if (promise != 0 && (slot_of(promise) == waiter.slot || is_over(promise, now_ns()))) {
    (void)control_.promise.compare_exchange_strong(promise, 0);
  }
  const std::uint32_t used = std::min(control_.slots_used.load(std::memory_order_relaxed), kSlots);
  for (std::uint32_t i = 0; i < used; ++i) {
    Slot& slot = control_.slots[i];
    if (i == waiter.slot || slot.waiting.load(std::memory_order_acquire) == 0) continue;
    if (waiter.ticket == 0 || slot.ticket.load(std::memory_order_relaxed) < waiter.ticket) slot.passed.fetch_add(1);
  }
  if (waiter.slot < kSlots) {
    control_.slots[waiter.slot].waiting.store(0, std::memory_order_relaxed);
    control_.slots[waiter.slot].passed.store(0, std::memory_order_relaxed);
  }
  waiter.ticket = 0;
  waiter.slept = false;
  waiter.credit_ns = 0;
}

// A connection that did not sleep since it was refused last had given up, and waits anew.
void LockQueue::refused(Waiter& waiter) {
  if (!waiter.slept) {
    if (waiter.slot < kSlots) control_.slots[waiter.slot].waiting.store(0, std::memory_order_relaxed);
    waiter.ticket = 0;
    waiter.credit_ns = 0;
  }
  waiter.slept = false;
}

bool LockQueue::is_before(std::uint32_t one, std::uint32_t other, bool here_first) const {
  if (other == kSlots) return true;
  const Slot& first = control_.slots[one];
  const Slot& second = control_.slots[other];
  const auto is_here = [this](const Slot& slot) {
    return slot.process.load(std::memory_order_relaxed) == sidecar_.process();
  };
  if (here_first && is_here(first) != is_here(second)) return is_here(first);
  return first.ticket.load(std::memory_order_relaxed) < second.ticket.load(std::memory_order_relaxed);
}

// The threads of a process pass the lock among themselves, which costs less than a switch to another process, until
// the oldest that waits is due.
LockQueue::Next LockQueue::look() const {
  Next next;
  const std::uint32_t used = std::min(control_.slots_used.load(std::memory_order_relaxed), kSlots);
  for (std::uint32_t i = 0; i < used; ++i) {
    Slot& slot = control_.slots[i];
    const std::uint32_t waiting = slot.waiting.load(std::memory_order_acquire);
    if (waiting == 0) continue;
    // One that was killed must not be promised the lock in the place of one that lives.
    if (slot.passed.load(std::memory_order_relaxed) >= kPassedMax && !sidecar_.is_alive(i)) {
      slot.waiting.store(0, std::memory_order_relaxed);
      continue;
    }
    if (is_before(i, next.oldest, false)) next.oldest = i;
    if (waiting != kSleeps) continue;
    std::uint32_t& alike = slot.awake.load(std::memory_order_relaxed) != 0 ? next.awake : next.asleep;
    if (is_before(i, alike, true)) alike = i;
  }
  next.is_due =
      next.oldest != kSlots && control_.slots[next.oldest].passed.load(std::memory_order_relaxed) >= kPassedMax;
  return next;
}

std::uint32_t LockQueue::choose() {
  const Next next = look();
  // Waking a thread takes longer than a small transaction, so one that is awake is preferred, and others may come for
  // the lock until one that sleeps is there. It is promised to the oldest when that one was passed over too often.
  const std::uint32_t promised = next.is_due ? next.oldest : next.awake;
  if (promised == kSlots) return next.asleep;
  promise(promised);
  return promised;
}

void LockQueue::rouse_next() {
  const Next next = look();
  // One that is awake comes by itself, unless the oldest is due.
  const std::uint32_t chosen = next.is_due ? next.oldest : next.awake == kSlots ? next.asleep : kSlots;
  if (chosen == kSlots) return;
  Slot& slot = control_.slots[chosen];
  std::uint32_t asleep = 0;
  const bool sleeps = slot.waiting.load(std::memory_order_acquire) == kSleeps;
  if (sleeps && slot.wake.compare_exchange_strong(asleep, kRoused)) core::shm::wake_one(slot.wake);
}

void LockQueue::call(std::uint32_t next) {
  if (next >= kSlots) return;
  Slot& slot = control_.slots[next];
  slot.wake.store(kCalled, std::memory_order_seq_cst);
  if (slot.awake.load(std::memory_order_seq_cst) == 0) core::shm::wake_one(slot.wake);
}

void LockQueue::stand(Waiter& waiter) {
  Slot& slot = control_.slots[waiter.slot];
  if (waiter.ticket == 0) {
    waiter.ticket = control_.tickets.fetch_add(1) + 1;
    slot.passed.store(0, std::memory_order_relaxed);
  }
  slot.ticket.store(waiter.ticket, std::memory_order_relaxed);
  slot.wake.store(0, std::memory_order_relaxed);
  slot.awake.store(1, std::memory_order_relaxed);
  slot.waiting.store(kSleeps, std::memory_order_release);
}

// The thread comes at once when it is called; from the end on it has to be woken.
void LockQueue::stay_awake(Slot& slot, std::uint64_t until) {
  while (slot.wake.load(std::memory_order_acquire) != kCalled && now_ns() < until) core::yield_thread();
  slot.awake.store(0, std::memory_order_seq_cst);
}

bool LockQueue::is_first(const Waiter& waiter) const {
  const std::uint32_t used = std::min(control_.slots_used.load(std::memory_order_relaxed), kSlots);
  for (std::uint32_t i = 0; i < used; ++i) {
    const Slot& slot = control_.slots[i];
    if (slot.waiting.load(std::memory_order_acquire) != kSleeps || i == waiter.slot) continue;
    if (slot.ticket.load(std::memory_order_relaxed) < waiter.ticket && sidecar_.is_alive(i)) return false;
  }
  return true;
}

void LockQueue::wait(Waiter& waiter, std::chrono::microseconds time, const std::function<bool()>& is_free) {
  if (waiter.slot == kSlots) waiter.slot = sidecar_.take_slot();
  const std::uint64_t begun = now_ns();
  const std::uint64_t nominal = static_cast<std::uint64_t>(time.count()) * 1000;
  const std::uint64_t end = begun + nominal + waiter.credit_ns;
  waiter.slept = true;
  if (waiter.slot == kSlots) {  // more connections wait than there are slots
    core::shm::sleep(std::chrono::nanoseconds(nominal));
  } else {
    stand(waiter);
    Slot& slot = control_.slots[waiter.slot];
    stay_awake(slot, std::min(end, begun + kAwakeNs));
    for (std::uint64_t now = now_ns(); now < end; now = now_ns()) {
      std::uint32_t word = slot.wake.exchange(0, std::memory_order_acq_rel);
      if (word == kRoused) {
        slot.awake.store(1, std::memory_order_seq_cst);
        stay_awake(slot, std::min(end, now + kAwakeNs));
        word = slot.wake.exchange(0, std::memory_order_acq_rel);
      }
      const bool called = word == kCalled;
      if (is_promised_to(waiter.slot)) break;
      const bool first = is_first(waiter);
      // Also where no call came: the holder may be plain SQLite, or may have been killed.
      if ((called || first) && may_ask(waiter) && is_free()) break;
      const std::uint64_t at_most = std::min(end - now, first ? kFirstLooksNs : kOthersLookNs);
      core::shm::wait_for_change(slot.wake, 0, std::chrono::nanoseconds(at_most));
    }
    // It counts as waiting until it has asked: it is passed over between two sleeps as well.
    slot.waiting.store(kComes, std::memory_order_relaxed);
  }
  const std::uint64_t took = now_ns() - begun;
  waiter.credit_ns += nominal;
  waiter.credit_ns -= std::min(waiter.credit_ns, took);
}

bool LockQueue::hold(Waiter& waiter) {
  if (waiter.slot == kSlots) waiter.slot = sidecar_.take_slot();
  std::uint64_t promise = control_.promise.load(std::memory_order_acquire);
  if (waiter.slot == kSlots || is_promised_to_another(waiter)) return false;
  return control_.promise.compare_exchange_strong(promise, promise_word(waiter.slot, now_ns() + hold_ns()));
}

// Another one may have been promised the lock since the time was over.
void LockQueue::let_go(const Waiter& waiter) {
  std::uint64_t promise = control_.promise.load(std::memory_order_acquire);
  if (slot_of(promise) != waiter.slot) return;
  const std::uint32_t next = choose();
  (void)control_.promise.compare_exchange_strong(promise, 0);
  call(next);
}

std::uint64_t LockQueue::hold_ns() const {
  return std::clamp(control_.flush_ns.load(std::memory_order_relaxed) * 4, kPromiseNs, kHoldNsMax);
}

void LockQueue::note_pinned() {
  control_.pinned.fetch_add(1, std::memory_order_relaxed);
  control_.pinned_until.store(now_ns() + kPinnedNs, std::memory_order_relaxed);
}

bool LockQueue::is_pinned() const {
  const std::uint64_t now = now_ns();
  const std::uint64_t until = control_.pinned_until.load(std::memory_order_relaxed);
  return until > now && until <= now + kPinnedNs;
}

void LockQueue::leave(Waiter& waiter) {
  if (waiter.slot < kSlots) sidecar_.give_slot(waiter.slot);
  waiter = {};
}

}  // namespace memlith::sqlite::shared
