// A kv store as a program has it open, its transactions and cursors. Floor: kv.
//
// A transaction collects its writes. Where one process has the kv store (kv/kv.hpp), it takes locks (Locks) and reads
// the newest state. As a client of the keeper of several processes (processes/client.hpp), it takes none and sees the
// state of its beginning, and its commit finds whether what it read is as it was. Transactions that only read see the
// pages as of their beginning in both cases (Pages).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/memory_budget.hpp"
#include "kv/locks.hpp"
#include "kv/log_need.hpp"
#include "kv/maps.hpp"
#include "kv/pages.hpp"
#include "kv/transaction_memory.hpp"
#include "kv/tree.hpp"
#include "kv/weak_commits.hpp"

namespace memlith::core::kv {

class Kv;
class OpenKv;
class KvPart;
class Cursor;

enum class Durability : std::uint32_t { sync = 0, weak = 1 };

// Used by one thread at a time.
class Transaction {
 public:
  Transaction(OpenKv& kv, bool read_only) : kv_(kv), read_only_(read_only) {}
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
  // With `skip`, what cannot be read is passed over.
  using Visit = std::function<bool(std::string_view key, std::string_view value)>;
  Status for_each(MapNumber number, std::string_view from, std::optional<std::string_view> to, const Visit& visit,
                  const Skip& skip = {});
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
  OpenKv& kv() { return kv_; }

  // ---- as a part of a transaction of the store, which alone commits it then
  void set_part(KvPart* part) { part_ = part; }
  // Invalid if it is a part, and so cannot end by itself.
  [[nodiscard]] Status check_alone() const;

 private:
  friend class Cursor;
  friend class OpenKv;
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
  // Before it takes so much more. Errors: full - the memory that it takes, up to the end of its commit, is not there.
  Status take_memory(std::uint64_t more);
  // The room that the transaction needs with this write.
  Status reckon(const RecordKey& record, const Pending* before, Pending& pending, LogNeed& then);
  Status look_for_places();
  Result<std::optional<std::string_view>> read_tree(PageNumber map, std::string_view key, LeafPlace* place = nullptr);
  Result<std::string_view> long_value(TreeReader& reader, PageNumber map, const Cell& cell, std::string& room);
  std::string_view keep(std::string_view bytes);
  char* room(std::uint64_t bytes);
  [[nodiscard]] bool writes() const;
  Result<std::uint64_t> count_in(const KeyRange& range);
  void forget_writes_in(const KeyRange& range);
  void drop_removals(std::size_t kept);
  // The record, but for what was written since, goes with a range.
  [[nodiscard]] bool is_in_removed(const RecordKey& record) const;
  [[nodiscard]] const LockSet& locks() const { return locks_; }
  // It sees the state of its beginning.
  [[nodiscard]] bool has_snapshot() const;
  void end();

  OpenKv& kv_;
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
  TransactionMemory memory_;
  std::uint64_t memory_told_ = 0;  // so much of it is in OpenKv::memory_bytes_
  LockSet locks_{&memory_};
  struct Savepoint {
    std::size_t undo = 0;  // lengths
    std::size_t removals = 0;
  };
  std::vector<Savepoint> savepoints_;
  std::vector<Undo> undo_;
  std::vector<KeyRange> removals_;  // the ranges whose records go, in the order of the calls
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
    bool value_stays = false;  // valid until the transaction ends
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
  bool pass_removed(bool forward, Start& start) const;
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
  std::string value_;   // a long one, of peek(), without a snapshot
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

struct KvInfo {
  std::uint64_t maps = 0;
  std::uint64_t records = 0;
  std::uint64_t region_bytes = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t pages = 0;
  std::uint64_t free_pages = 0;
  std::uint64_t commits = 0;
  std::uint64_t durable = 0;
  std::uint64_t logged_bytes = 0;
  std::uint64_t conflicts = 0;
  std::uint64_t snapshot_bytes = 0;
  std::uint64_t transactions = 0;
};

// A kv store as a program has it open: in this process alone (Kv), or as a client of the keeper that several processes
// share (processes/client.hpp). Threads: any.
class OpenKv {
 public:
  virtual ~OpenKv() = default;
  OpenKv(const OpenKv&) = delete;
  OpenKv& operator=(const OpenKv&) = delete;

  // Null: it is a client's.
  [[nodiscard]] virtual Kv* alone() { return nullptr; }
  [[nodiscard]] virtual Status check_process() const = 0;
  [[nodiscard]] virtual bool read_only() const = 0;

  virtual Result<MapNumber> open_map(std::string_view name, bool create, bool exclusive) = 0;
  virtual Status remove_map(std::string_view name) = 0;
  std::optional<std::string> map_at(std::uint64_t index, Status& status);
  Result<std::uint64_t> map_count();
  // Puts records, in the order of their keys, behind all that the map has, in commits of some 100 KiB; durable on
  // return. `next` says false when there are no more; its bytes are read before it is called again. `appended`: how
  // many are there, also after an error.
  using NextRecord = std::function<bool(std::string_view& key, std::string_view& value)>;
  virtual Status append(MapNumber number, const NextRecord& next, std::uint64_t& appended) = 0;

  Result<Transaction*> begin(bool read_only);
  // Ends it, if need be, and frees it.
  void free(Transaction* transaction);

  virtual Status persist() = 0;
  // Until everything up to the ticket is durable.
  virtual Status wait(Lsn ticket) = 0;
  // The newest ticket up to which this kv store's commits are durable.
  virtual Lsn durable_ticket() = 0;
  virtual Status set_window(Window window) = 0;
  virtual Result<KvInfo> info() = 0;
  virtual Result<KvReport> verify() = 0;

  [[nodiscard]] std::uint64_t newest() const { return commit_of(pages_.kept.newest()); }
  [[nodiscard]] std::uint64_t commit_of(Stamp stamp) const { return stamp - kCheckedStamp + base_commit_; }
  [[nodiscard]] Pages& pages() { return pages_; }
  [[nodiscard]] Locks& locks() { return locks_; }
  // 0: none (Locks).
  void set_txn_timeout(std::chrono::milliseconds timeout) { locks_.set_timeout(timeout); }
  [[nodiscard]] std::uint64_t conflicts() const { return conflicts_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t transactions();  // active ones
  [[nodiscard]] std::size_t handles();       // not freed yet

 protected:
  friend class Transaction;
  friend class Cursor;
  // `validates`: transactions that write take no locks. They see a snapshot, and commit() finds whether what they read
  // is as it was.
  explicit OpenKv(bool validates) : validates_(validates), locks_(validates) {}

  // A transaction begins. Errors: those that it would find at its commit.
  [[nodiscard]] virtual Status check_begin(bool only_reads) = 0;
  // `poisoned`: pages may be older than what was committed.
  [[nodiscard]] virtual Status check_reads() const { return kOk; }
  // As Transaction::commit(), of an active transaction, which has ended then.
  virtual Result<std::uint64_t> commit(Transaction& transaction, Durability durability, Lsn* ticket) = 0;
  // The most that a commit may need of the log.
  [[nodiscard]] virtual std::uint64_t log_bytes_max() const = 0;

  static void end(Transaction& transaction) { transaction.end(); }
  static const LockSet& locks_of(const Transaction& transaction) { return transaction.locks_; }
  static bool writes(const Transaction& transaction) { return transaction.writes(); }
  static Snapshots::StampSlot snapshot_of(const Transaction& transaction) { return transaction.snapshot_; }
  void end_transactions();
  Status too_large(std::uint64_t log_bytes) const;
  Status too_much_memory(std::uint64_t bytes) const;
  // 0: the number was never given.
  [[nodiscard]] PageNumber root_of(MapNumber number) const {
    const MapEntry* const entry = numbers_.find(number);
    return entry != nullptr ? entry->root : 0;
  }
  Status no_map(MapNumber number) const;
  static Status check_key(std::string_view key);
  static Status check_value(std::string_view value);
  static Status check_name(std::string_view name);

  const bool validates_;
  std::shared_ptr<Board> board_;  // of a keeper, and of its clients
  Pages pages_;
  Locks locks_;
  std::uint64_t base_commit_ = 0;
  Mutex maps_mutex_;  // held while the catalogue changes
  MapNumbers numbers_;
  Mutex transactions_mutex_;
  std::unordered_set<Transaction*> transactions_ MEMLITH_GUARDED_BY(transactions_mutex_);
  std::atomic<std::uint64_t> conflicts_{0};
  // The rest is for the checkpoint of such a commit.
  const std::uint64_t memory_bytes_max_ = memory_for_stores() / 4 * 3;
  std::atomic<std::uint64_t> memory_bytes_{0};  // of the transactions that are large
};

inline bool Transaction::has_snapshot() const { return read_only_ || kv_.validates_; }

}  // namespace memlith::core::kv
