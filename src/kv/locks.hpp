// The locks of the transactions that write: records, and ranges with the gaps in them. Floor: kv.
//
// Strong strict two-phase locking without waiting: a transaction takes locks as it goes and keeps them until it ends; a
// lock that conflicts with another transaction's is refused. A lock is an entry in the lists of its transaction: the
// record is in `writes` (exclusive) or in `reads` (shared), or lies in one of `ranges` (shared, gaps included). So a
// transaction that leaves takes all its locks with it, and a key that is not there can be locked like one that is.
#pragma once

#include <compare>
#include <map>
#include <memory_resource>
#include <set>
#include <string_view>
#include <vector>

#include "base/mutant.hpp"
#include "base/sync.hpp"
#include "kv/page.hpp"

namespace memlith::core::kv {

struct RecordKey {
  PageNumber map = 0;
  std::string_view key;  // its bytes belong to the transaction
  friend auto operator<=>(const RecordKey&, const RecordKey&) = default;
};

// What a transaction wants to write. `none`: it was undone, and its lock stays.
struct Pending {
  enum class Kind : std::uint8_t { put, remove, none };
  Kind kind = Kind::none;
  std::string_view value;
};

// The keys from `low` to `high`, both included; without a bound, all.
struct KeyRange {
  PageNumber map = 0;
  bool has_low = false;
  bool has_high = false;
  std::string_view low;
  std::string_view high;
  [[nodiscard]] bool contains(const RecordKey& record) const {
    return record.map == map && (!has_low || low <= record.key) && (!has_high || record.key <= high);
  }
};

// The locks of one transaction. Others look at them under the mutex of Locks; only the transaction changes them, under
// the mutex, and may read them without.
struct LockSet {
  explicit LockSet(std::pmr::memory_resource* memory) : writes(memory), reads(memory), ranges(memory) {}
  std::pmr::map<RecordKey, Pending> writes;
  std::pmr::set<RecordKey> reads;
  std::pmr::vector<KeyRange> ranges;
  bool entered = false;  // others look at it; from its first lock on
  void clear() {
    writes.clear();
    reads.clear();
    // The vector gives its memory up, too: the transaction's next use takes it for something else.
    ranges = std::pmr::vector<KeyRange>(ranges.get_allocator());
  }
};

// Threads: any. False: another transaction has a lock that conflicts; nothing was locked.
class Locks {
 public:
  void leave(LockSet& own) {
    if (!own.entered) return;
    const LockGuard lock(mutex_);
    std::erase(active_, &own);
    own.entered = false;
  }
  // The bytes of the key belong to the transaction already.
  bool read(LockSet& own, const RecordKey& record) {
    const LockGuard lock(mutex_);
    for (const LockSet* other : active_) {
      if (other != &own && other->writes.contains(record)) return MEMLITH_MUTANT(kv_dirty_read);
    }
    enter(own);
    if (MEMLITH_MUTANT(kv_read_locks_released_early)) own.reads.clear();
    own.reads.insert(record);
    return true;
  }
  bool write(LockSet& own, const RecordKey& record, const Pending& pending) {
    const LockGuard lock(mutex_);
    for (const LockSet* other : active_) {
      if (other == &own) continue;
      if (other->writes.contains(record)) return false;
      if (other->reads.contains(record) && !MEMLITH_MUTANT(kv_lost_update)) return false;
      for (const KeyRange& range : other->ranges) {
        if (range.contains(record) && !MEMLITH_MUTANT(kv_gaps_not_locked)) return false;
      }
    }
    enter(own);
    own.writes.insert_or_assign(record, pending);
    return true;
  }
  // Makes range number `index` of the transaction reach that far.
  bool reach(LockSet& own, std::size_t index, const KeyRange& wanted) {
    const LockGuard lock(mutex_);
    for (const LockSet* other : active_) {
      if (other == &own) continue;
      const auto first = other->writes.lower_bound({wanted.map, wanted.has_low ? wanted.low : std::string_view()});
      if (first != other->writes.end() && wanted.contains(first->first)) return false;
    }
    enter(own);
    if (index == own.ranges.size()) {
      own.ranges.push_back(wanted);
    } else {
      own.ranges[index] = wanted;
    }
    return true;
  }
  // Changes a pending write; its lock is there already.
  void set(LockSet& own, const RecordKey& record, const Pending& pending) {
    const LockGuard lock(mutex_);
    own.writes.insert_or_assign(record, pending);
  }
  // Whether a transaction has locks in the map.
  bool in_use(PageNumber map) {
    const LockGuard lock(mutex_);
    const RecordKey first{map, {}};
    const auto of_map = [map](const auto& set, const auto& from) { return from != set.end() && from->map == map; };
    for (const LockSet* each : active_) {
      const auto write = each->writes.lower_bound(first);
      if (write != each->writes.end() && write->first.map == map) return true;
      if (of_map(each->reads, each->reads.lower_bound(first))) return true;
      for (const KeyRange& range : each->ranges) {
        if (range.map == map) return true;
      }
    }
    return false;
  }
#ifdef MEMLITH_MUTANTS
  // What another transaction has not committed, for the planted fault that reads it.
  const Pending* pending_of_others(const LockSet& own, const RecordKey& record) {
    const LockGuard lock(mutex_);
    for (const LockSet* other : active_) {
      const auto found = other->writes.find(record);
      if (other != &own && found != other->writes.end()) return &found->second;
    }
    return nullptr;
  }
#endif

 private:
  void enter(LockSet& own) MEMLITH_REQUIRES(mutex_) {
    if (own.entered) return;
    active_.push_back(&own);
    own.entered = true;
  }
  Mutex mutex_;
  std::vector<LockSet*> active_ MEMLITH_GUARDED_BY(mutex_);
};

}  // namespace memlith::core::kv
