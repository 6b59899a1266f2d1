// A transactional key-value store in a region. Floor: kv. include/memlith/kv.h states the contract of each call.
//
// A transaction collects its writes and takes locks (Locks). A commit applies the writes to the trees under the
// writer's lock: the order of these applications is the order of the commits. WeakCommits brings what they changed to
// the log. Transactions that only read see the pages as of their beginning (Pages).
#pragma once

#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kv/locks.hpp"
#include "kv/log_need.hpp"
#include "kv/maps.hpp"
#include "kv/tree.hpp"
#include "kv/weak_commits.hpp"
#include "kv/writer_pace.hpp"
#include "region/session.hpp"

namespace memlith::core::kv {

class Kv;
class KvPart;
class Cursor;

struct KvOptions {
  bool create = false;
  Window window;
  bool manual = false;       // without a thread: nothing but sync commits and persist() makes commits durable
  bool is_volatile = false;  // nothing is logged but the empty kv store of a new region
  bool exclusive = false;    // with `create`: refuse one that is there
};

enum class Durability : std::uint32_t { sync = 0, weak = 1 };

// Used by one thread at a time.
class Transaction {
 public:
  Transaction(Kv& kv, bool read_only) : kv_(kv), read_only_(read_only) {}
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  Status begin();
  // How long it waits for the end of another transaction, before that is a conflict. From now on.
  void set_wait(std::chrono::milliseconds wait_max) { locks_.wait_max = wait_max; }
  // Nothing if there is no such record. The bytes stay valid until the transaction ends.
  Result<std::optional<std::string_view>> get(MapNumber number, std::string_view key);
  Status put(MapNumber number, std::string_view key, std::string_view value);
  Result<bool> remove(MapNumber number, std::string_view key);
  // put(), or remove() without `value`, if the record's value is `expected`, or, without it, there is no record.
  Result<bool> put_if(MapNumber number, std::string_view key, std::optional<std::string_view> expected,
                      std::optional<std::string_view> value);
  // Removes the records with from <= key < to; without an end, from the first or to the last. `removed`: how many, also
  // if an error ended the call.
  Status remove_range(MapNumber number, std::optional<std::string_view> from, std::optional<std::string_view> to,
                      std::uint64_t& removed);
  // The records with from <= key < to, in order, until `visit` says false; without `to`, up to the last. The bytes are
  // valid until `visit` returns. The transaction only reads: a snapshot's leaves are gone through without a cursor.
  using Visit = std::function<bool(std::string_view key, std::string_view value)>;
  Status for_each(MapNumber number, std::string_view from, std::optional<std::string_view> to, const Visit& visit);
  // About how many records with from <= key < to there are, and how many bytes their keys and values have. Reads two
  // leaves; takes no lock, and does not see the transaction's own writes.
  struct RangeEstimate {
    std::uint64_t records = 0;
    std::uint64_t bytes = 0;
  };
  Status estimate(MapNumber number, std::optional<std::string_view> from, std::optional<std::string_view> to,
                  RangeEstimate& estimate);
  // `ticket`, which may be null, is set once the commit has taken effect (store/collectors.hpp). Returns the number of
  // the commit, or, without writes, of the newest one that it can have read, which `sync` waits for.
  Result<std::uint64_t> commit(Durability durability, Lsn* ticket);
  void abort();
  Result<std::uint64_t> savepoint();
  Status undo_to(std::uint64_t savepoint);

  [[nodiscard]] bool active() const { return active_; }
  [[nodiscard]] bool read_only() const { return read_only_; }
  Kv& kv() { return kv_; }

  // ---- as a part of a transaction of the store, which alone commits it then
  void set_part(KvPart* part) { part_ = part; }
  // Invalid if it is a part, and so cannot end by itself.
  [[nodiscard]] Status check_alone() const;

 private:
  friend class Cursor;
  friend class Kv;
  friend class KvPart;
  struct Undo {
    RecordKey record;
    Pending before;
  };
  // The root of the map, for a transaction that is active and a key that is possible.
  Result<PageNumber> check(MapNumber number, std::string_view key);
  Status need_active();
  // Unless it is yes, the transaction ends.
  Status took(Taken taken) { return taken == Taken::yes ? kOk : not_taken(taken); }
  Status not_taken(Taken taken);
  Status keep_locks();  // until it ends, or the commit is cancelled:
  void keep_locks_no_more();
  Status had_locks();  // up to here
  Status confirm_map(MapNumber number);
  Status write(MapNumber number, PageNumber map, std::string_view key, Pending pending);
  // The room that the transaction needs with this write.
  Status reckon(const RecordKey& record, const Pending* before, Pending& pending, LogNeed& then);
  Status look_for_places();
  Result<std::optional<std::string_view>> read_tree(PageNumber map, std::string_view key);
  Result<std::string_view> read_overflow(TreeReader& reader, PageNumber map, const Cell& cell, std::string& room);
  std::string_view keep(std::string_view bytes);
  char* room(std::uint64_t bytes);
  [[nodiscard]] bool writes() const;
  [[nodiscard]] const LockSet& locks() const { return locks_; }
  void end();

  Kv& kv_;
  const bool read_only_;
  KvPart* part_ = nullptr;
  bool active_ = false;
  Stamp view_ = kNewest;
  Snapshots::StampSlot snapshot_;
  // The map that was used last, whose root was looked at, maybe by an earlier use of this object.
  const MapEntry* known_ = nullptr;
  MapNumber known_map_ = 0;
  bool is_confirmed_ = false;     // it exists, and no other transaction can remove it before this one ends
  LogNeed need_;                  // of the writes
  bool looked_ = false;           // which of them are in place is known
  std::uint64_t generation_ = 0;  // counts beginnings; cursors of an earlier one are over
  alignas(16) std::byte first_room_[2048];
  std::pmr::monotonic_buffer_resource memory_{first_room_, sizeof first_room_};
  LockSet locks_{&memory_};
  std::vector<std::size_t> savepoints_;  // lengths of undo_
  std::vector<Undo> undo_;
};

// Stands on a record, or on none. Owned by its opener; its transaction lives longer.
class Cursor {
 public:
  Cursor(Transaction& transaction, MapNumber number);
  Status check();

  // False: there is none.
  Result<bool> first();
  Result<bool> last();
  Result<bool> next();
  Result<bool> prev();
  Result<bool> seek(std::string_view key);
  // From now on there are only the records with from <= key < to, without an end as far as the map goes; and no more is
  // locked than these, and `to` itself. The cursor stands on none.
  Status set_bounds(std::optional<std::string_view> from, std::optional<std::string_view> to);
  // The same for keys that begin so.
  Status set_prefix(std::string_view prefix);
  struct Record {
    std::string_view key;
    std::string_view value;
  };
  Result<std::optional<Record>> current();
  Result<std::optional<std::string_view>> current_key();  // without reading the value
  Result<bool> remove();
  // Like current(), but the bytes are valid until the cursor moves. The cursor stands on a record.
  Result<Record> peek();
  // The key of the record on which the cursor stands, valid until it moves.
  [[nodiscard]] std::string_view key() const { return key_; }

 private:
  // before: of the first record; behind: the last; at: key_, a record or the place of one that was removed.
  enum class Position : std::uint8_t { fresh, before, at, behind };
  // From where a step looks; without `bounded`, from the end of the map.
  struct Start {
    std::string key;
    bool bounded = false;
    bool inclusive = false;
  };
  Result<bool> move(bool forward, Start start);
  Status find_in_tree(bool forward, const Start& start);
  [[nodiscard]] std::uint32_t first_index(bool forward, const Start& start) const;
  // True if the locked range reaches the candidate; if not, it does afterwards.
  Result<bool> lock_to_candidate(bool forward, const Start& start);
  bool take_own_write(bool forward, const Start& start);
  Result<bool> go(bool forward, Start start);
  [[nodiscard]] bool usable(const Start& start, bool forward) const;
  [[nodiscard]] bool inside(std::string_view key) const { return key >= lower_ && (!has_upper_ || key < upper_); }
  [[nodiscard]] bool no_room() const { return has_upper_ && lower_ >= upper_; }
  Result<bool> none(Position position);
  Result<Record> read();
  Result<bool> on_a_record();

  Transaction& transaction_;
  MapNumber number_;
  PageNumber map_;  // its root
  std::uint64_t generation_;
  TreeReader reader_;
  TreeReader::Leaf leaf_;
  bool loaded_ = false;
  Position position_ = Position::fresh;
  std::string key_;     // where the cursor stands
  std::string value_;   // a long one, of peek()
  bool found_ = false;  // in the tree, by the step under way
  std::string candidate_;
  std::uint32_t index_ = 0;  // of the candidate in leaf_
  std::string lower_;        // the bounds
  std::string upper_;
  bool has_upper_ = false;
  KeyRange range_;  // what it has locked since it was put somewhere
  bool has_range_ = false;
};

struct KvReport {
  std::uint64_t maps = 0;
  std::uint64_t records = 0;
  std::uint64_t leaf_pages = 0;
  std::uint64_t inner_pages = 0;
  std::uint64_t overflow_pages = 0;
  std::uint64_t free_pages = 0;
  std::uint64_t used_bytes = 0;
  std::uint32_t depth_max = 0;
};

// The check of memlith_verify for a region.
bool holds_kv(const Region& region);

class Kv final : public RegionUser {
 public:
  // The region is open; it is new, or holds a kv store.
  static Result<std::unique_ptr<Kv>> open(Region& region, const KvOptions& options);
  ~Kv() override;

  Result<MapNumber> open_map(std::string_view name, bool create, bool exclusive);
  Status remove_map(std::string_view name);
  // Puts records, in the order of their keys, behind all that the map has, in commits of some 100 KiB; durable on
  // return. `next` says false when there are no more; its bytes are read before it is called again. `appended`: how
  // many are there, also after an error.
  using NextRecord = std::function<bool(std::string_view& key, std::string_view& value)>;
  Status append(MapNumber number, const NextRecord& next, std::uint64_t& appended);
  std::optional<std::string> map_at(std::uint64_t index, Status& status);
  // For tests: of how many pages a step of a removal is, and what is called after each, without locks.
  void watch_removals(std::uint64_t step, std::function<void()> after_step) {
    removal_step_ = step;
    after_removal_step_ = std::move(after_step);
  }

  Result<Transaction*> begin(bool read_only);
  // Ends it, if need be, and frees it.
  void free(Transaction* transaction);

  Status persist() { return read_only() ? kOk : weak_commits_.make_durable(newest()); }
  // Tickets of the store. What durable_ticket() tells is about this kv store's commits.
  Status wait(Lsn ticket) { return region().store().wait(ticket); }
  Lsn durable_ticket();
  // That of the newest commit that is seen.
  Lsn newest_ticket();
  // The number of the newest durable commit, and of the newest.
  std::uint64_t durable() { return read_only() || is_volatile() ? newest() : weak_commits_.durable(); }
  std::uint64_t newest() { return commit_of(pages_.kept.newest()); }
  [[nodiscard]] std::uint64_t commit_of(Stamp stamp) const { return stamp - kCheckedStamp + base_commit_; }
  WeakCommits& weak_commits() { return weak_commits_; }
  // Makes everything durable; nothing else is done with the store then but to destroy it. When the log has no room for
  // commits that wait, nothing has ended: the store goes on, and can be stopped later. Destroying it loses them.
  Status stop() override;
  Status release_for_limit(Region& region) override;
  [[nodiscard]] bool stopped() const { return stopped_; }

  Result<KvReport> verify();
  StoreHeader header();
  Result<std::uint64_t> map_count();
  [[nodiscard]] bool read_only() const { return region().store().read_only(); }
  [[nodiscard]] bool is_volatile() const { return !pages_.writer.logs(); }
  [[nodiscard]] Pages& pages() { return pages_; }
  [[nodiscard]] Region& region() const { return pages_.words.region(); }
  [[nodiscard]] Locks& locks() { return locks_; }
  // 0: none (Locks).
  void set_txn_timeout(std::chrono::milliseconds timeout) { locks_.set_timeout(timeout); }
  [[nodiscard]] std::uint64_t conflicts() const { return conflicts_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t transactions();  // active ones
  [[nodiscard]] std::size_t handles();       // not freed yet
  void set_open_region(OpenRegion* region) { open_region_ = region; }
  [[nodiscard]] OpenRegion* open_region() const { return open_region_; }

  // Every page has to be looked at anew.
  void view_moved() override;
  Status check_idle() override;

 private:
  friend class Transaction;
  friend class KvPart;
  friend class Cursor;
  explicit Kv(Region& region) : weak_commits_(pages_, region.store().collectors()) {}
  // Where each of a few writes belongs, found before the writer's lock was taken.
  struct Leaves {
    static constexpr std::uint32_t kMax = 8;
    LeafPlace all[kMax];
    std::uint32_t count = 0;
  };
  struct Estimate {
    std::uint64_t pages = 0;
    std::uint64_t log_bytes = 0;
    bool sure = false;  // log_bytes is enough in every case, and at most Leaves::kMax pages change
  };
  [[nodiscard]] std::uint64_t log_bytes_max() const { return region().store().log_limit_bytes() / 2; }
  static constexpr std::uint64_t kRemovalStep = 256;  // pages
  Status too_large(std::uint64_t log_bytes) const;
  // 0: the number was never given.
  [[nodiscard]] PageNumber root_of(MapNumber number) const {
    const MapEntry* const entry = numbers_.find(number);
    return entry != nullptr ? entry->root : 0;
  }
  Status no_map(MapNumber number) const;
  static Status check_key(std::string_view key);
  static Status check_value(std::string_view value);
  Status append_step(MapNumber number, const MapEntry& map, std::span<const Write> writes);
  MapNumber number_of(PageNumber root) MEMLITH_REQUIRES(maps_mutex_);
  // The pieces that a commit left for the log.
  struct Left {
    Lsn ticket;
    WeakCommits::Wish wish;
    std::optional<WriterPace::Time> rest_until;
  };
  void end_transactions();
  // Between the commits of a long call. Without locks.
  void keep_to_memory();
  // Applies a transaction's writes. Returns the number of the commit.
  Result<std::uint64_t> apply(const LockSet& locks, Durability durability, Left& left);
  // The same as a part of a frame, in steps (KvPart). The locks are held from prepare_joint() on, which returns the
  // bytes for the frame at most, until end_joint(), cancel_joint() or give_up_joint(). apply_joint() reserves room in
  // the frame, and has changed nothing if it fails.
  Result<std::uint64_t> prepare_joint(const LockSet& locks);
  Result<Batch::Front> apply_joint(const LockSet& locks, JointFrame& frame);
  void end_joint(const Batch::Front& front, Lsn end);
  void cancel_joint() { weak_commits_.let_part_go(); }
  void give_up_joint();
  Status check_all(const LockSet& locks, Estimate& estimate) MEMLITH_REQUIRES(writing);
  Status make_ready(const Estimate& estimate) MEMLITH_REQUIRES(writing);
  bool find_leaves(const LockSet& locks, Leaves& leaves);
  bool leaves_take(const LockSet& locks, const Leaves& leaves) MEMLITH_REQUIRES(writing);
  Status write_all(const LockSet& locks, const Leaves* leaves) MEMLITH_REQUIRES(writing);
  Result<std::uint64_t> create_map(std::string_view name, PageNumber& map);
  // The entry that a removal of a map takes out of the catalogue.
  struct Removal {
    MapEntry* map = nullptr;
    Write write;
  };
  Status free_some_of(PageNumber root, const Removal* removal);
  // Frees what removed maps have left, in steps.
  Status free_removed() MEMLITH_REQUIRES(removal_mutex_);
  // One commit: `change`, which returns a Status, changes pages, for which there is room. Errors: no_memory, and those
  // of `change` - nothing has changed, but a number of a commit was used up.
  template <class Change>
  Result<std::uint64_t> change_pages(bool sure, Change&& change) MEMLITH_REQUIRES(writing);
  // The same for a commit that a thread waits for.
  template <class Change>
  Result<std::uint64_t> change_map(Change&& change) MEMLITH_REQUIRES(writing);

  Pages pages_;
  Locks locks_;
  WeakCommits weak_commits_;
  OpenRegion* open_region_ = nullptr;
  bool manual_ = false;
  Mutex stop_mutex_;            // not while memory is released
  bool stopped_ = true;         // also before it runs: then there is nothing to make durable
  bool joint_applied_ = false;  // between prepare_joint() and the end of that commit
  std::uint64_t base_commit_ = 0;
  WriterPace pace_ MEMLITH_GUARDED_BY(writing);
  Mutex removal_mutex_;  // held while a map is removed and its pages are freed
  std::uint64_t removal_step_ = kRemovalStep;
  std::function<void()> after_removal_step_;
  Mutex maps_mutex_;  // held while the catalogue changes
  MapNumbers numbers_;
  std::unordered_map<PageNumber, MapNumber> number_of_root_ MEMLITH_GUARDED_BY(maps_mutex_);  // of maps that are there
  Mutex transactions_mutex_;
  std::unordered_set<Transaction*> transactions_ MEMLITH_GUARDED_BY(transactions_mutex_);
  std::atomic<std::uint64_t> conflicts_{0};
};

}  // namespace memlith::core::kv
