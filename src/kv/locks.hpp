// The locks of the transactions that write: records, and ranges with the gaps in them. Floor: kv.
//
// Strong strict two-phase locking: a transaction takes locks as it goes and keeps them until it ends; a lock that
// conflicts with another transaction's is refused, at once or when the transaction has waited as long as it may. A lock
// is an entry in the lists of its transaction: the record is in `writes` (exclusive) or in `reads` (shared), or lies in
// one of `ranges` (shared, gaps included) or of `removed` (exclusive). So a transaction that leaves takes all its locks
// with it, and a key that is not there can be locked like one that is.
//
// No transactions wait for each other in a circle: each waits for one other at a time, and the one that would close a
// circle is refused. A transaction that several others are in the way of looks for the next of them when the first has
// ended; a circle through that one is found then.
//
// With a timeout, a transaction that was not used for so long loses its locks to the first one that needs any of them.
// The next call of the loser is a conflict. No call returns what was read without a lock: after reading, each call
// looks whether the transaction still had its locks. A transaction that commits keeps its locks (keep()).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "base/sync.hpp"
#include "kv/page_state.hpp"
#include "kv/ranges.hpp"

namespace memlith::core::kv {

// The write that a transaction intends. `none`: it was undone, and its lock stays.
struct Pending {
  enum class Kind : std::uint8_t { put, remove, none };
  Kind kind = Kind::none;
  bool in_place = false;  // a value of this length is there: only its bytes will change, as far as was looked
  std::string_view value;
  mutable LeafPlace place = {};  // found while the record was locked; of the thread that reads and commits
};

// The locks of one transaction. Others look at them under the mutex of Locks; only the transaction changes them, under
// the mutex, and may read them without.
struct LockSet {
  explicit LockSet(std::pmr::memory_resource* memory)
      : writes(memory), reads(memory), ranges(memory), removed(memory) {}
  std::pmr::map<RecordKey, Pending> writes;
  using Reads = std::pmr::map<RecordKey, LeafPlace>;  // the places as in Pending
  Reads reads;
  RangeSet ranges;
  RangeSet removed;  // the records of these go, but for those above them, before `writes`; all of them are in `ranges`
  bool entered = false;                                               // others look at it; from its first lock on
  std::chrono::milliseconds wait_max{0};                              // for the holder of a lock
  const LockSet* waits_for = nullptr;                                 // of Locks: whose end it waits for
  bool kept = false;                                                  // of Locks: it commits
  std::atomic<bool> lost{false};                                      // to others, because it was not used
  std::atomic<SteadyClock::duration> used{SteadyClock::duration{0}};  // when; 0: there was no timeout
  void clear() {
    writes.clear();
    reads.clear();
    ranges.clear();
    removed.clear();
    kept = false;
    lost.store(false, std::memory_order_relaxed);
    used.store(SteadyClock::duration{0}, std::memory_order_relaxed);
  }
};

enum class Taken : std::uint8_t { yes, conflict, circle, lost };

// Threads: any. Unless the answer is yes, nothing was locked.
class Locks {
 public:
  // `validates`: no transaction is in the way of another, and the lists are what a commit is validated by.
  explicit Locks(bool validates = false) : validates_(validates) {}
  void leave(LockSet& own) {
    if (!own.entered) return;
    const LockGuard lock(mutex_);
    MEMLITH_ASSERT(own.waits_for == nullptr);
    if (!own.lost.load(std::memory_order_relaxed)) take_out(own);
    own.entered = false;
  }
  // 0: there is none.
  void set_timeout(SteadyClock::duration timeout) { timeout_.store(timeout, std::memory_order_relaxed); }
  // The transaction is used.
  void note_use(LockSet& own) {
    if (timeout_.load(std::memory_order_relaxed).count() == 0) return;
    own.used.store(SteadyClock::now().time_since_epoch(), std::memory_order_relaxed);
  }
  // From now on it loses no locks. False: it has lost them.
  bool keep(LockSet& own) {
    if (own.used.load(std::memory_order_relaxed).count() == 0) return true;
    const LockGuard lock(mutex_);
    MEMLITH_ASSERT(!own.kept);
    own.kept = true;
    return !own.lost.load(std::memory_order_relaxed);
  }
  // Its commit was cancelled: as before keep(), and used now.
  void keep_no_more(LockSet& own) {
    note_use(own);
    const LockGuard lock(mutex_);
    own.kept = false;
  }
  // The bytes of the key belong to the transaction already. `read`: the entry.
  Taken read(LockSet& own, const RecordKey& record, LockSet::Reads::iterator& read) {
    const LockGuard lock(mutex_);
    const Taken free = free_of(own, [&](const LockSet& other) {
      return other.writes.contains(record) || other.removed.contains(record);
    });
    if (free != Taken::yes) return free;
    enter(own);
    read = own.reads.emplace(record, LeafPlace{}).first;
    return Taken::yes;
  }
  Taken write(LockSet& own, const RecordKey& record, const Pending& pending) {
    const LockGuard lock(mutex_);
    const Taken free = free_of(own, [&](const LockSet& other) {
      return other.writes.contains(record) || other.reads.contains(record) || other.ranges.contains(record);
    });
    if (free != Taken::yes) return free;
    enter(own);
    own.writes.insert_or_assign(record, pending);
    return Taken::yes;
  }
  Taken reach(LockSet& own, const KeyRange& wanted) {
    const LockGuard lock(mutex_);
    const Taken free =
        free_of(own, [&](const LockSet& other) { return any_in(other.writes, wanted) || other.removed.meets(wanted); });
    if (free != Taken::yes) return free;
    enter(own);
    own.ranges.add(wanted);
    return Taken::yes;
  }
  // The records of the range will go.
  Taken remove(LockSet& own, const KeyRange& range) {
    const LockGuard lock(mutex_);
    const Taken free = free_of(own, [&](const LockSet& other) {
      return any_in(other.writes, range) || any_in(other.reads, range) || other.ranges.meets(range);
    });
    if (free != Taken::yes) return free;
    enter(own);
    own.ranges.add(range);
    own.removed.add(range);
    return Taken::yes;
  }
  // The ranges whose records will go are these from now on; the others are locked as what was read.
  void set_removed(LockSet& own, const std::vector<KeyRange>& left) {
    const LockGuard lock(mutex_);
    own.removed.clear();
    for (const KeyRange& each : left) own.removed.add(each);
  }
  // Changes a pending write; its lock is there already.
  void set(LockSet& own, const RecordKey& record, const Pending& pending) {
    const LockGuard lock(mutex_);
    const bool is_new = own.writes.insert_or_assign(record, pending).second;
    MEMLITH_ASSERT(!is_new);
  }
  // True if a transaction has locks in the map.
  bool in_use(PageNumber map) {
    const LockGuard lock(mutex_);
    const RecordKey first{map, {}};
    const auto any_of_map = [&](const auto& records) {
      const auto from = records.lower_bound(first);
      return from != records.end() && from->first.map == map;
    };
    return std::any_of(active_.begin(), active_.end(), [&](const LockSet* each) {
      return any_of_map(each->writes) || any_of_map(each->reads) || each->ranges.any_in(map);
    });
  }
  // Transactions that wait for another's end.
  std::size_t waiting() {
    const LockGuard lock(mutex_);
    return waiters_.size();
  }

 private:
  // In the frame of the thread that waits.
  struct Waiter {
    LockSet* own = nullptr;
    ConditionVariable ended;
  };
  template <class Records>
  static bool any_in(const Records& records, const KeyRange& range) {
    const auto first = records.lower_bound(RecordKey{range.map, range.low});
    return first != records.end() && range.contains(first->first);
  }
  void enter(LockSet& own) MEMLITH_REQUIRES(mutex_) {
    if (own.entered || validates_) return;
    MEMLITH_ASSERT(!own.lost.load(std::memory_order_relaxed));
    active_.push_back(&own);
    own.entered = true;
  }
  // Returns yes when no other transaction is in the way, which `in_the_way` tells of each.
  template <class InTheWay>
  Taken free_of(LockSet& own, const InTheWay& in_the_way) MEMLITH_REQUIRES(mutex_) {
    SteadyClock::time_point until{};
    for (bool waited = false;;) {
      if (own.lost.load(std::memory_order_relaxed)) return Taken::lost;
      const auto holder = std::find_if(active_.begin(), active_.end(),
                                       [&](const LockSet* other) { return other != &own && in_the_way(*other); });
      if (holder == active_.end()) return Taken::yes;
      const SteadyClock::time_point idle_until = may_keep_until(**holder);
      if (idle_until != SteadyClock::time_point::max() && SteadyClock::now() >= idle_until) {
        (*holder)->lost.store(true, std::memory_order_release);
        take_out(**holder);
        continue;
      }
      if (own.wait_max.count() == 0) return Taken::conflict;
      if (!std::exchange(waited, true)) until = SteadyClock::now() + own.wait_max;
      if (closes_circle(own, *holder)) return Taken::circle;
      if (wait_for_end(own, *holder, std::min(until, idle_until))) continue;
      if (SteadyClock::now() >= until) return Taken::conflict;
    }
  }
  // For ever, if there is no timeout, and while it waits itself or commits.
  [[nodiscard]] SteadyClock::time_point may_keep_until(const LockSet& holder) const MEMLITH_REQUIRES(mutex_) {
    const auto timeout = timeout_.load(std::memory_order_relaxed);
    const auto used = holder.used.load(std::memory_order_relaxed);
    if (timeout.count() == 0 || used.count() == 0 || holder.kept || holder.waits_for != nullptr) {
      return SteadyClock::time_point::max();
    }
    return SteadyClock::time_point(used) + timeout;
  }
  void take_out(LockSet& own) MEMLITH_REQUIRES(mutex_) {
    const std::size_t taken_out = std::erase(active_, &own);
    MEMLITH_ASSERT(taken_out == 1);
    for (Waiter* const each : waiters_) {
      if (each->own->waits_for != &own) continue;
      each->own->waits_for = nullptr;
      each->ended.notify_one();
    }
  }
  static bool closes_circle(const LockSet& own, const LockSet* holder) {
    while (holder != nullptr && holder != &own) holder = holder->waits_for;
    return holder == &own;
  }
  bool wait_for_end(LockSet& own, const LockSet* holder, SteadyClock::time_point until) MEMLITH_REQUIRES(mutex_) {
    const auto now = SteadyClock::now();
    if (now >= until) return false;
    MEMLITH_ASSERT(own.waits_for == nullptr && holder != &own);
    Waiter waiter{&own, {}};
    own.waits_for = holder;
    waiters_.push_back(&waiter);
    const bool ended = waiter.ended.wait_for(mutex_, until - now, [&own] { return own.waits_for == nullptr; });
    own.waits_for = nullptr;
    std::erase(waiters_, &waiter);
    return ended;
  }
  const bool validates_;
  std::atomic<SteadyClock::duration> timeout_{SteadyClock::duration{0}};
  Mutex mutex_;
  std::vector<LockSet*> active_ MEMLITH_GUARDED_BY(mutex_);
  std::vector<Waiter*> waiters_ MEMLITH_GUARDED_BY(mutex_);
};

}  // namespace memlith::core::kv
