// The locks of the transactions that write: records, and ranges with the gaps in them. Floor: kv.
//
// Strong strict two-phase locking: a transaction takes locks as it goes and keeps them until it ends; a lock that
// conflicts with another transaction's is refused, at once or when the transaction has waited as long as it may. A
// record is locked by being in `writes` (exclusive) or in `reads` (shared) of a transaction, or by lying in one of its
// `ranges` (shared, gaps included) or of `removed` (exclusive). A key that is not there can be locked like one that is.
//
// Locked records are in a table, too, in stripes by their hashes. So transactions that lock records look at those with
// the same hash, under the mutex of a stripe, however many others there are. Ranges are in no table: the transactions
// that have any are in `ranged_`, and while that is not empty, each change of a lock holds `ranges_mutex_` as well.
// Under that mutex a range can be compared with all locks of all transactions.
//
// No transactions wait for each other in a circle: each waits for one other at a time, and the one that would close a
// circle is refused. A transaction that several others are in the way of looks for the next of them when the first has
// ended; a circle through that one is found then.
//
// With a timeout, a transaction that was not used for so long loses its locks to the first one that needs any of them.
// The next call of the loser is a conflict. No call returns what was read without a lock: after reading, each call
// looks whether the transaction still had its locks. A transaction that commits keeps its locks (keep()).
#pragma once

#include <array>
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

struct LockSet;
struct LockStripe;

// A locked record, as the table has it.
struct RecordLock {
  RecordKey record;
  std::uint64_t hash = 0;
  LockSet* owner = nullptr;
  bool exclusive = false;
  RecordLock* next = nullptr;      // with a hash that is like this one
  RecordLock* next_own = nullptr;  // of the owner, an older one
};

// The locks of one transaction. The transaction alone changes them, but for those that Locks says are its own, with
// what Locks says is held; it may read them without.
struct LockSet {
  explicit LockSet(std::pmr::memory_resource* from)
      : memory(from), writes(memory), reads(memory), ranges(memory), removed(memory) {}
  std::pmr::memory_resource* memory;
  std::pmr::map<RecordKey, Pending> writes;
  using Reads = std::pmr::map<RecordKey, LeafPlace>;  // the places as in Pending
  Reads reads;
  RangeSet ranges;
  RangeSet removed;  // the records of these go, but for those above them, before `writes`; all of them are in `ranges`
  std::chrono::milliseconds wait_max{0};                              // for the holder of a lock
  std::atomic<bool> lost{false};                                      // to others, because it was not used
  std::atomic<SteadyClock::duration> used{SteadyClock::duration{0}};  // when; 0: there was no timeout
  std::uint64_t commit_bytes = 0;  // of the memory that is counted for the transaction, what its commit will take
  void clear() {
    writes.clear();
    reads.clear();
    ranges.clear();
    removed.clear();
    kept = false;
    commit_bytes = 0;
    lost.store(false, std::memory_order_relaxed);
    used.store(SteadyClock::duration{0}, std::memory_order_relaxed);
  }

  // ---- of Locks
  RecordLock* newest = nullptr;  // of its locks in the table
  LockStripe* home = nullptr;    // where it took its first lock; null: it has none
  LockSet* before = nullptr;     // in the list of that stripe
  LockSet* behind = nullptr;
  bool ranged = false;
  const LockSet* waits_for = nullptr;  // whose end it waits for
  bool kept = false;                   // it commits, or ends
};

struct alignas(64) LockStripe {
  Mutex mutex;
  std::vector<RecordLock*> buckets = std::vector<RecordLock*>(64);  // a power of two
  std::size_t count = 0;                                            // of locks
  LockSet* first = nullptr;                                         // of those whose home it is
};

enum class Taken : std::uint8_t { yes, conflict, circle, lost };

// Threads: any. Unless the answer is yes, nothing was locked.
class Locks {
 public:
  // `validates`: no transaction is in the way of another, and the lists are what a commit is validated by.
  explicit Locks(bool validates = false) : validates_(validates) {}
  void leave(LockSet& own);
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
  Taken read(LockSet& own, const RecordKey& record, LockSet::Reads::iterator& read);
  Taken write(LockSet& own, const RecordKey& record, const Pending& pending);
  Taken reach(LockSet& own, const KeyRange& wanted);
  // The records of the range will go.
  Taken remove(LockSet& own, const KeyRange& range);
  // The ranges whose records will go are these from now on; the others are locked as what was read.
  void set_removed(LockSet& own, const std::vector<KeyRange>& left);
  // True if a transaction has locks in the map.
  bool in_use(PageNumber map);
  // Transactions that wait for another's end.
  std::size_t waiting() {
    const LockGuard lock(mutex_);
    return waiters_.size();
  }

 private:
  static constexpr std::size_t kStripes = 8;
  // In the frame of the thread that waits.
  struct Waiter {
    LockSet* own = nullptr;
    ConditionVariable ended;
  };
  // Held by a change of locks: of a record its stripe, and if there are ranges, `ranges_mutex_`; of a range that.
  struct Hold {
    LockStripe* stripe = nullptr;
    KeptLock of_stripe = {};
    KeptLock of_ranges = {};
  };
  struct HoldAll {
    explicit HoldAll(Locks& locks);
    std::array<KeptLock, kStripes> stripes;
    KeptLock ranges;
  };
  LockStripe& stripe_of(std::uint64_t hash) { return stripes_[hash % kStripes]; }
  static std::uint64_t hash_of(const RecordKey& record);
  static RecordLock*& bucket_of(LockStripe& stripe, std::uint64_t hash) {
    return stripe.buckets[hash / kStripes & (stripe.buckets.size() - 1)];
  }
  void take_hold(Hold& hold) {
    if (hold.stripe != nullptr) hold.of_stripe = KeptLock(hold.stripe->mutex);
    if (hold.stripe == nullptr || !ranged_.empty()) hold.of_ranges = KeptLock(ranges_mutex_);
  }
  static void let_go(Hold& hold) {
    hold.of_ranges.release();
    hold.of_stripe.release();
  }
  template <class Holder>
  Taken wait_until_free(LockSet& own, Hold& hold, const Holder& holder);
  enum class Next : std::uint8_t { look_again, take_from_idle, conflict, circle };
  Next wait_for(LockSet& own, Hold& hold, LockSet& holder, SteadyClock::time_point& until);
  template <class Holder>
  void take_from_idle(const Holder& holder);
  template <class InTheWay>
  LockSet* any_with(const LockSet* own, const InTheWay& in_the_way);
  template <class InTheWay>
  LockSet* ranged_with(const LockSet& own, const InTheWay& in_the_way) const;
  static RecordLock* make_lock(LockSet& own, LockStripe& stripe, const RecordKey& record, std::uint64_t hash,
                               bool exclusive);
  static void add_to_table(LockSet& own, LockStripe& stripe, RecordLock* lock);
  static void unlink(LockStripe& stripe, const RecordLock* lock);
  static void enter(LockSet& own, LockStripe& stripe);
  static void drop(LockSet& own);
  Taken enter_ranged(LockSet& own);
  void take_out(LockSet& own);
  void wake_waiters_of(const LockSet& own) MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] SteadyClock::time_point may_keep_until(const LockSet& holder) const MEMLITH_REQUIRES(mutex_);

  const bool validates_;
  std::atomic<SteadyClock::duration> timeout_{SteadyClock::duration{0}};
  // Locked in this order: stripes by their numbers, `ranges_mutex_`, `mutex_`.
  std::array<LockStripe, kStripes> stripes_;
  Mutex ranges_mutex_;
  // Those with ranges. Changes with all stripes and `ranges_mutex_` held, and so is read with any of them held.
  std::vector<LockSet*> ranged_;
  Mutex mutex_;  // of what follows, and of `waits_for`, `kept` and `lost` of all transactions
  std::vector<Waiter*> waiters_ MEMLITH_GUARDED_BY(mutex_);
  std::atomic<std::size_t> waiting_{0};  // how many; changes with what they wait for held
};

}  // namespace memlith::core::kv
