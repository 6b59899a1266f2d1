#include "kv/locks.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace memlith::core::kv {

namespace {

template <class Records>
bool any_in(const Records& records, const KeyRange& range) {
  const auto first = records.lower_bound(RecordKey{range.map, range.low});
  return first != records.end() && range.contains(first->first);
}

template <class Records>
bool any_of_map(const Records& records, PageNumber map) {
  const auto first = records.lower_bound(RecordKey{map, {}});
  return first != records.end() && first->first.map == map;
}

bool closes_circle(const LockSet& own, const LockSet* holder) {
  while (holder != nullptr && holder != &own) holder = holder->waits_for;
  return holder == &own;
}

}  // namespace

std::uint64_t Locks::hash_of(const RecordKey& record) {
  return (hash_of_key(record.key) >> 24) + record.map;  // the high bits are the mixed ones
}

// ---- the table -------------------------------------------------------------------------------------------------

// Whatever allocates: nothing is changed if that fails.
RecordLock* Locks::make_lock(LockSet& own, LockStripe& stripe, const RecordKey& record, std::uint64_t hash,
                             bool exclusive) {
  if (stripe.count >= stripe.buckets.size()) {
    std::vector<RecordLock*> before(2 * stripe.buckets.size());
    before.swap(stripe.buckets);
    for (RecordLock* each : before) {
      while (each != nullptr) {
        RecordLock*& bucket = bucket_of(stripe, each->hash);
        each = std::exchange(each->next, std::exchange(bucket, each));
      }
    }
  }
  void* const room = own.memory->allocate(sizeof(RecordLock), alignof(RecordLock));
  return new (room) RecordLock{record, hash, &own, exclusive};
}

void Locks::add_to_table(LockSet& own, LockStripe& stripe, RecordLock* lock) {
  lock->next = std::exchange(bucket_of(stripe, lock->hash), lock);
  lock->next_own = std::exchange(own.newest, lock);
  ++stripe.count;
  if (own.home == nullptr) enter(own, stripe);
}

void Locks::unlink(LockStripe& stripe, const RecordLock* lock) {
  RecordLock** at = &bucket_of(stripe, lock->hash);
  while (*at != lock) at = &(*at)->next;
  *at = lock->next;
  --stripe.count;
}

void Locks::enter(LockSet& own, LockStripe& stripe) {
  own.home = &stripe;
  own.before = nullptr;
  own.behind = std::exchange(stripe.first, &own);
  if (own.behind != nullptr) own.behind->before = &own;
}

// From the list of its stripe.
void Locks::drop(LockSet& own) {
  if (own.behind != nullptr) own.behind->before = own.before;
  (own.before != nullptr ? own.before->behind : own.home->first) = own.behind;
}

// ---- the end of a transaction ----------------------------------------------------------------------------------

Locks::HoldAll::HoldAll(Locks& locks) {
  for (std::size_t i = 0; i < kStripes; ++i) stripes[i] = KeptLock(locks.stripes_[i].mutex);
  ranges = KeptLock(locks.ranges_mutex_);
}

// Others compare ranges with its locks until it is dropped from the list of its home, where its oldest lock is.
void Locks::leave(LockSet& own) {
  if (own.home == nullptr) return;
  if (keep(own)) {
    if (own.ranged) {
      const HoldAll all(*this);
      take_out(own);
    } else {
      for (RecordLock* lock = own.newest; lock != nullptr;) {
        Hold hold{&stripe_of(lock->hash)};
        take_hold(hold);
        RecordLock* const next = lock->next_own;
        unlink(*hold.stripe, lock);
        if (next == nullptr) drop(own);
        lock = next;
      }
    }
    if (waiting_.load(std::memory_order_relaxed) > 0) {
      const LockGuard lock(mutex_);
      wake_waiters_of(own);
    }
  }
  own.newest = nullptr;
  own.home = nullptr;
  own.ranged = false;
}

// With all held.
void Locks::take_out(LockSet& own) {
  for (const RecordLock* lock = own.newest; lock != nullptr; lock = lock->next_own) unlink(stripe_of(lock->hash), lock);
  drop(own);
  if (own.ranged) std::erase(ranged_, &own);
}

void Locks::wake_waiters_of(const LockSet& own) {
  for (Waiter* const each : waiters_) {
    if (each->own->waits_for != &own) continue;
    each->own->waits_for = nullptr;
    each->ended.notify_one();
  }
}

// ---- locks of others -------------------------------------------------------------------------------------------

template <class InTheWay>
LockSet* Locks::any_with(const LockSet* own, const InTheWay& in_the_way) {
  for (const LockStripe& stripe : stripes_) {
    for (LockSet* each = stripe.first; each != nullptr; each = each->behind) {
      if (each != own && in_the_way(*each)) return each;
    }
  }
  return nullptr;
}

template <class InTheWay>
LockSet* Locks::ranged_with(const LockSet& own, const InTheWay& in_the_way) const {
  const auto found = std::find_if(ranged_.begin(), ranged_.end(),
                                  [&](const LockSet* each) { return each != &own && in_the_way(*each); });
  return found == ranged_.end() ? nullptr : *found;
}

// Returns yes when no other transaction is in the way: holder() finds one that is, with `hold` taken.
template <class Holder>
Taken Locks::wait_until_free(LockSet& own, Hold& hold, const Holder& holder) {
  SteadyClock::time_point until{};
  for (take_hold(hold);; take_hold(hold)) {
    if (own.lost.load(std::memory_order_relaxed)) return Taken::lost;
    LockSet* const found = holder();
    if (found == nullptr) return Taken::yes;
    switch (wait_for(own, hold, *found, until)) {
      case Next::look_again: break;
      case Next::take_from_idle: take_from_idle(holder); break;
      case Next::conflict: return Taken::conflict;
      case Next::circle: return Taken::circle;
    }
  }
}

// Nothing is held any more if it goes on. `until`: the end of the wait, once it has begun.
Locks::Next Locks::wait_for(LockSet& own, Hold& hold, LockSet& holder, SteadyClock::time_point& until) {
  const LockGuard lock(mutex_);
  const SteadyClock::time_point idle_until = may_keep_until(holder);
  const bool waits = own.wait_max.count() > 0;
  const auto now =
      waits || idle_until != SteadyClock::time_point::max() ? SteadyClock::now() : SteadyClock::time_point{};
  if (now >= idle_until) {
    let_go(hold);
    return Next::take_from_idle;
  }
  if (!waits) return Next::conflict;
  if (until == SteadyClock::time_point{}) until = now + own.wait_max;
  if (now >= until) return Next::conflict;
  if (closes_circle(own, &holder)) return Next::circle;
  MEMLITH_ASSERT(own.waits_for == nullptr && &holder != &own);
  Waiter waiter{&own, {}};
  waiters_.push_back(&waiter);
  own.waits_for = &holder;
  waiting_.fetch_add(1, std::memory_order_relaxed);
  let_go(hold);  // the holder cannot leave before, and sees that this one waits
  waiter.ended.wait_for(mutex_, std::min(until, idle_until) - now, [&own] { return own.waits_for == nullptr; });
  own.waits_for = nullptr;
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  std::erase(waiters_, &waiter);
  return Next::look_again;
}

template <class Holder>
void Locks::take_from_idle(const Holder& holder) {
  const HoldAll all(*this);
  LockSet* const found = holder();
  if (found == nullptr) return;
  const LockGuard lock(mutex_);
  if (SteadyClock::now() < may_keep_until(*found)) return;
  found->lost.store(true, std::memory_order_release);
  take_out(*found);
  wake_waiters_of(*found);
}

// For ever, if there is no timeout, and while it waits itself, commits or ends.
SteadyClock::time_point Locks::may_keep_until(const LockSet& holder) const {
  const auto timeout = timeout_.load(std::memory_order_relaxed);
  const auto used = holder.used.load(std::memory_order_relaxed);
  if (timeout.count() == 0 || used.count() == 0 || holder.kept || holder.waits_for != nullptr) {
    return SteadyClock::time_point::max();
  }
  return SteadyClock::time_point(used) + timeout;
}

// ---- locks -----------------------------------------------------------------------------------------------------

Taken Locks::read(LockSet& own, const RecordKey& record, LockSet::Reads::iterator& read) {
  Hold hold;
  RecordLock* lock = nullptr;
  if (!validates_) {
    const std::uint64_t hash = hash_of(record);
    hold.stripe = &stripe_of(hash);
    const Taken free = wait_until_free(own, hold, [&]() -> LockSet* {
      for (const RecordLock* each = bucket_of(*hold.stripe, hash); each != nullptr; each = each->next) {
        if (each->hash == hash && each->exclusive && each->owner != &own && each->record == record) return each->owner;
      }
      return ranged_with(own, [&](const LockSet& other) { return other.removed.contains(record); });
    });
    if (free != Taken::yes) return free;
    lock = make_lock(own, *hold.stripe, record, hash, false);
  }
  read = own.reads.emplace(record, LeafPlace{}).first;
  if (lock != nullptr) add_to_table(own, *hold.stripe, lock);
  return Taken::yes;
}

Taken Locks::write(LockSet& own, const RecordKey& record, const Pending& pending) {
  Hold hold;
  RecordLock* lock = nullptr;
  if (!validates_) {
    const std::uint64_t hash = hash_of(record);
    hold.stripe = &stripe_of(hash);
    const Taken free = wait_until_free(own, hold, [&]() -> LockSet* {
      for (const RecordLock* each = bucket_of(*hold.stripe, hash); each != nullptr; each = each->next) {
        if (each->hash == hash && each->owner != &own && each->record == record) return each->owner;
      }
      return ranged_with(own, [&](const LockSet& other) { return other.ranges.contains(record); });
    });
    if (free != Taken::yes) return free;
    lock = make_lock(own, *hold.stripe, record, hash, true);
  }
  own.writes.insert_or_assign(record, pending);
  if (lock != nullptr) add_to_table(own, *hold.stripe, lock);
  return Taken::yes;
}

Taken Locks::enter_ranged(LockSet& own) {
  if (own.ranged || validates_) return Taken::yes;
  const HoldAll all(*this);
  if (own.lost.load(std::memory_order_relaxed)) return Taken::lost;
  ranged_.push_back(&own);
  own.ranged = true;
  if (own.home == nullptr) enter(own, stripes_[0]);
  return Taken::yes;
}

Taken Locks::reach(LockSet& own, const KeyRange& wanted) {
  Taken taken = enter_ranged(own);
  Hold hold;
  if (taken == Taken::yes && !validates_) {
    taken = wait_until_free(own, hold, [&] {
      return any_with(&own, [&](const LockSet& other) {
        return any_in(other.writes, wanted) || other.removed.meets(wanted);
      });
    });
  }
  if (taken == Taken::yes) own.ranges.add(wanted);
  return taken;
}

Taken Locks::remove(LockSet& own, const KeyRange& range) {
  Taken taken = enter_ranged(own);
  Hold hold;
  if (taken == Taken::yes && !validates_) {
    taken = wait_until_free(own, hold, [&] {
      return any_with(&own, [&](const LockSet& other) {
        return any_in(other.writes, range) || any_in(other.reads, range) || other.ranges.meets(range);
      });
    });
  }
  if (taken != Taken::yes) return taken;
  own.ranges.add(range);
  own.removed.add(range);
  return Taken::yes;
}

void Locks::set_removed(LockSet& own, const std::vector<KeyRange>& left) {
  const LockGuard lock(ranges_mutex_);
  own.removed.clear();
  for (const KeyRange& each : left) own.removed.add(each);
}

bool Locks::in_use(PageNumber map) {
  const HoldAll all(*this);
  return any_with(nullptr, [map](const LockSet& each) {
           return any_of_map(each.writes, map) || any_of_map(each.reads, map) || each.ranges.any_in(map);
         }) != nullptr;
}

}  // namespace memlith::core::kv
