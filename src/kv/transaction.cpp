#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "kv/kv.hpp"
#include "kv/part.hpp"

namespace memlith::core::kv {

namespace {
Status quick_failure(Errc category, Detail detail, std::string_view text) {
  set_error_text(text);
  return Status{category, detail, 0, 0};
}

void rest(WriterPace::Time until) {
  if (until - WriterPace::Time::clock::now() >= WriterPace::kRestMin) std::this_thread::sleep_until(until);
}
}  // namespace

Transaction::~Transaction() {
  if (active_) end();
  if (part_ != nullptr) part_->lose_transaction();
}

Status Transaction::check_alone() const {
  if (part_ == nullptr) return kOk;
  return quick_failure(Errc::invalid, Detail::kv,
                       "the transaction is a part of a transaction of the store; commit or abort that one");
}

Status Transaction::begin() {
  if (active_) {
    return fail(Errc::invalid, Detail::kv, "the transaction is active; commit or abort it before it begins anew");
  }
  MEMLITH_ASSERT(locks_.writes.empty() && locks_.reads.empty() && locks_.ranges.size() == 0 && undo_.empty());
  ++generation_;
  is_confirmed_ = false;
  if (has_snapshot()) {
    MEMLITH_TRY_ASSIGN(snapshot_, kv_.pages_.take_snapshot());
    view_ = snapshot_.stamp;
  }
  active_ = true;
  return kOk;
}

void Transaction::end() {
  MEMLITH_ASSERT(active_);
  active_ = false;
  if (has_snapshot()) {
    kv_.pages_.kept.drop(snapshot_);
  } else {
    kv_.locks_.leave(locks_);
  }
  locks_.clear();
  undo_.clear();
  removals_.clear();
  savepoints_.clear();
  need_ = {};
  looked_ = false;
  memory_.release();
  kv_.memory_bytes_.fetch_sub(std::exchange(memory_told_, 0), std::memory_order_relaxed);
}

void Transaction::abort() {
  if (active_) end();
}

Status Transaction::need_active() {
  if (active_) return read_only_ ? kOk : had_locks();
  return quick_failure(Errc::invalid, Detail::kv, "the transaction has ended; begin another one, or begin it anew");
}

Status Transaction::not_taken(Taken taken) {
  MEMLITH_ASSERT(taken != Taken::yes && !read_only_);
  end();
  kv_.conflicts_.fetch_add(1, std::memory_order_relaxed);
  const std::string_view why = taken == Taken::circle ? "this transaction and another wait for each other"
                               : taken == Taken::lost ? "this transaction was not used for as long as the timeout, and "
                                                        "another one needed what it had locked"
                                                      : "another transaction has locked what this one needs";
  return quick_failure(Errc::conflict, Detail::kv, std::string(why) + "; this one was aborted: begin it again");
}

Status Transaction::keep_locks() { return took(kv_.locks_.keep(locks_) ? Taken::yes : Taken::lost); }

void Transaction::keep_locks_no_more() { kv_.locks_.keep_no_more(locks_); }

// Acquire: the thread that took the locks stores to them behind this.
Status Transaction::had_locks() { return took(locks_.lost.load(std::memory_order_acquire) ? Taken::lost : Taken::yes); }

Result<PageNumber> Transaction::check(MapNumber number, std::string_view key) {
  MEMLITH_TRY(need_active());
  MEMLITH_TRY(kv_.check_reads());
  MEMLITH_TRY(OpenKv::check_key(key));
  if (!read_only_) kv_.locks_.note_use(locks_);
  const bool is_known = known_ != nullptr && number == known_map_;
  if (is_known && is_confirmed_) return known_->root;
  const MapEntry* const entry = is_known ? known_ : kv_.numbers_.find(number);
  if (entry == nullptr || entry->created > view_) return kv_.no_map(number);
  const Stamp removed = entry->removed.load();
  if (removed != kNewest && removed <= view_) return kv_.no_map(number);
  if (is_known) return entry->root;
  const Status there = TreeReader(kv_.pages_, entry->root, view_).check_map();
  if (there.category == Errc::invalid) return kv_.no_map(number);
  MEMLITH_TRY(there);
  return entry->root;
}

// Called with a lock in the map, so that no other transaction removes it from now on.
Status Transaction::confirm_map(MapNumber number) {
  const bool is_known = known_ != nullptr && number == known_map_;
  if (is_known && is_confirmed_) return kOk;
  const MapEntry* const entry = is_known ? known_ : kv_.numbers_.find(number);
  MEMLITH_ASSERT(entry != nullptr);                                      // check() has found it
  if (!read_only_ && entry->going.load()) return took(Taken::conflict);  // pairs with remove_map()
  MEMLITH_TRY(check(number, "k").status());
  known_ = entry;
  known_map_ = number;
  is_confirmed_ = true;
  return kOk;
}

char* Transaction::room(std::uint64_t bytes) {
  return static_cast<char*>(memory_.allocate(std::max<std::uint64_t>(bytes, 1), 1));
}

std::string_view Transaction::keep(std::string_view bytes) {
  char* const target = room(bytes.size());
  if (!bytes.empty()) std::memcpy(target, bytes.data(), bytes.size());
  return {target, bytes.size()};
}

Result<std::optional<std::string_view>> Transaction::read_tree(PageNumber map, std::string_view key, LeafPlace* place) {
  TreeReader reader(kv_.pages_, map, view_);
  for (;;) {
    char* target = nullptr;
    std::uint64_t capacity = 0;
    std::uint64_t bytes = 0;
    std::optional<std::string_view> lying;
    std::optional<OverflowReference> overflow;
    const auto take = [&](const Cell& cell, bool stays) {
      overflow = reference_in(cell);
      if (stays) lying = cell.value;
      if (overflow.has_value() || stays) return;
      bytes = cell.value.size();
      if (bytes > capacity || target == nullptr) target = room(capacity = bytes);
      if (bytes > 0) std::memcpy(target, cell.value.data(), bytes);
    };
    MEMLITH_TRY_ASSIGN(const bool found, reader.get(key, take, place));
    if (!found) return std::optional<std::string_view>();
    if (!overflow.has_value()) return lying.has_value() ? lying : std::string_view(target, bytes);
    if (has_snapshot()) {
      MEMLITH_TRY_ASSIGN(const std::string_view value, reader.view_of(*overflow));
      return std::optional(value);
    }
    if (overflow->bytes > kValueBytesMax) return kv_.pages_.words.corrupt(map, "a value of it is too long");
    target = room(overflow->bytes);
    MEMLITH_TRY_ASSIGN(const bool whole, reader.copy_of(*overflow, target));
    if (whole) return std::optional(std::string_view(target, overflow->bytes));
  }
}

Result<std::optional<std::string_view>> Transaction::get(MapNumber number, std::string_view key) {
  MEMLITH_TRY_ASSIGN(const PageNumber map, check(number, key));
  if (read_only_) return read_tree(map, key);
  const auto own = locks_.writes.find({map, key});
  const bool has_lock = own != locks_.writes.end();
  if (has_lock && own->second.kind == Pending::Kind::put) return std::optional(own->second.value);
  if (has_lock && own->second.kind == Pending::Kind::remove) return std::optional<std::string_view>();
  if (is_in_removed({map, key})) return std::optional<std::string_view>();
  LeafPlace* place = has_lock ? &own->second.place : nullptr;
  if (!has_lock || kv_.validates_) {
    auto read = locks_.reads.find({map, key});
    if (read == locks_.reads.end()) {
      MEMLITH_TRY(took(kv_.locks_.read(locks_, {map, keep(key)}, read)));
    }
    place = &read->second;
  }
  MEMLITH_TRY(confirm_map(number));
  MEMLITH_TRY(take_memory(0));
  auto found = read_tree(map, key, has_snapshot() ? nullptr : place);
  MEMLITH_TRY(had_locks());
  return found;
}

// `cell` is one of a leaf's copy, which may have changed since, unless there is a snapshot. Without one the value is
// copied to `room`.
Result<std::string_view> Transaction::long_value(TreeReader& reader, PageNumber map, const Cell& cell,
                                                 std::string& room) {
  const OverflowReference reference = reference_of(cell);
  if (has_snapshot()) return reader.view_of(reference);
  if (reference.bytes <= kValueBytesMax) {
    room.resize(reference.bytes);
    const auto whole = reader.copy_of(reference, room.data());
    if (whole.ok() && *whole) return std::string_view(room);
  }
  MEMLITH_TRY_ASSIGN(const auto found, read_tree(map, cell.key));
  if (!found.has_value()) return kv_.pages_.words.corrupt(map, "a record of it is not found");
  return *found;
}

Status Transaction::for_each(MapNumber number, std::string_view from, std::optional<std::string_view> to,
                             const Visit& visit, const Skip& skip) {
  MEMLITH_ASSERT(read_only_);
  MEMLITH_TRY_ASSIGN(const PageNumber map, check(number, "k"));
  TreeReader reader(kv_.pages_, map, view_);
  std::string_view begin = from;  // of the first leaf; the others begin behind it
  const auto visit_leaf = [&](const std::byte* leaf) -> Result<bool> {
    const std::uint32_t count = header_of(leaf).count;
    const std::uint32_t first = begin.empty() ? 0 : find_cell(leaf, std::exchange(begin, {})).index;
    for (std::uint32_t i = first; i < count; ++i) {
      const Cell cell = cell_of(leaf, i);
      if (to.has_value() && cell.key >= *to) return false;
      std::string_view value = cell.value;
      if (cell.overflow) {
        const auto whole = reader.view_of(reference_of(cell));
        if (!whole.ok()) {
          MEMLITH_TRY(skip_or_fail(skip, whole.status(), cell.key, std::string(cell.key) + '\0'));
          continue;
        }
        value = *whole;
      }
      if (!visit(cell.key, value)) return false;
    }
    return true;
  };
  return reader.for_each_leaf(from, visit_leaf, skip);
}

// ---- writes ----------------------------------------------------------------------------------------------------

namespace {
// True if the write will change nothing but the bytes of a value. The record is locked, or will be before the write.
Result<bool> is_in_place(Pages& pages, const RecordKey& record, const Pending& pending) {
  if (pending.kind != Pending::Kind::put) return false;
  const Write write{record.key, pending.value, false};
  if (TreeWriter::overflow_pages_of(write) > 0) return false;
  bool same = false;
  MEMLITH_TRY_ASSIGN(const bool found,
                     TreeReader(pages, record.map, kNewest).get(record.key, [&](const Cell& cell, bool /*stays*/) {
                       same = !cell.overflow && cell.value.size() == pending.value.size();
                     }));
  return found && same;
}
}  // namespace

// A transaction that becomes too large learns it here and not after all its work, at the commit. As long as it is small
// in any case, nothing is looked up.
Status Transaction::reckon(const RecordKey& record, const Pending* before, Pending& pending, LogNeed& then) {
  const auto log_bytes = [&] {
    then = need_;
    if (before != nullptr) then -= LogNeed::of(record.key, *before);
    then += LogNeed::of(record.key, pending);
    return then.log_bytes(kv_.pages_.words.count());
  };
  if (!looked_) {
    if (log_bytes() <= kv_.log_bytes_max()) return kOk;
    MEMLITH_TRY(look_for_places());  // from now on at every write
  }
  pending.in_place = false;
  if (!is_in_removed(record)) {
    MEMLITH_TRY_ASSIGN(pending.in_place, is_in_place(kv_.pages_, record, pending));
  }
  const std::uint64_t needed = log_bytes();
  return needed <= kv_.log_bytes_max() ? kOk : kv_.too_large(needed);
}

Status Transaction::look_for_places() {
  for (auto& [record, pending] : locks_.writes) {
    MEMLITH_TRY_ASSIGN(const bool in_place, is_in_place(kv_.pages_, record, pending));
    need_ -= LogNeed::of(record.key, pending);
    pending.in_place = in_place;  // no other thread looks at it
    need_ += LogNeed::of(record.key, pending);
  }
  looked_ = true;
  return kOk;
}

Status Transaction::write(MapNumber number, PageNumber map, std::string_view key, Pending pending) {
  MEMLITH_ASSERT(active_ && !read_only_ && !key.empty());
  MEMLITH_TRY(take_memory(key.size() + pending.value.size()));
  if (pending.kind == Pending::Kind::put) pending.value = keep(pending.value);
  const auto own = locks_.writes.find({map, key});
  const bool had = own != locks_.writes.end();
  const RecordKey record{map, had ? own->first.key : keep(key)};
  LogNeed then;
  MEMLITH_TRY(reckon(record, had ? &own->second : nullptr, pending, then));
  if (had) {
    pending.place = own->second.place;
  } else if (const auto read = locks_.reads.find(record); read != locks_.reads.end()) {
    pending.place = read->second;
  }
  if (!savepoints_.empty()) undo_.push_back({record, had ? own->second : Pending{}});
  if (had) {
    own->second = pending;  // its lock is there, and others look at the key alone
    need_ = then;
    return kOk;
  }
  MEMLITH_TRY(took(kv_.locks_.write(locks_, record, pending)));
  need_ = then;
  return confirm_map(number);
}

Status Transaction::put(MapNumber number, std::string_view key, std::string_view value) {
  MEMLITH_TRY_ASSIGN(const PageNumber map, check(number, key));
  if (read_only_) return fail(Errc::read_only, Detail::kv, "the transaction was begun read-only");
  MEMLITH_TRY(OpenKv::check_value(value));
  return write(number, map, key, {Pending::Kind::put, false, value});
}

Result<bool> Transaction::remove(MapNumber number, std::string_view key) {
  if (read_only_ && active_) return fail(Errc::read_only, Detail::kv, "the transaction was begun read-only");
  MEMLITH_TRY_ASSIGN(const auto found, get(number, key));
  if (!found.has_value()) return false;
  MEMLITH_TRY_ASSIGN(const PageNumber map, check(number, key));
  MEMLITH_TRY(write(number, map, key, {Pending::Kind::remove, false, {}}));
  return true;
}

Result<bool> Transaction::put_if(MapNumber number, std::string_view key, std::optional<std::string_view> expected,
                                 std::optional<std::string_view> value) {
  if (read_only_ && active_) return fail(Errc::read_only, Detail::kv, "the transaction was begun read-only");
  MEMLITH_TRY_ASSIGN(const auto found, get(number, key));
  if (found != expected) return false;
  if (value.has_value()) {
    MEMLITH_TRY(put(number, key, *value));
  } else if (found.has_value()) {
    MEMLITH_TRY(remove(number, key).status());
  }
  return true;
}

Status Transaction::remove_range(MapNumber number, std::optional<std::string_view> from,
                                 std::optional<std::string_view> to, std::uint64_t& removed) {
  if (read_only_ && active_) return fail(Errc::read_only, Detail::kv, "the transaction was begun read-only");
  MEMLITH_TRY_ASSIGN(const PageNumber map, check(number, "k"));
  if (to.has_value() && from.value_or("") >= *to) return kOk;
  const KeyRange range{map, to.has_value(), keep(from.value_or("")), keep(to.value_or(""))};
  need_ += LogNeed::of_ranges(1);
  const std::uint64_t needed = need_.log_bytes(kv_.pages_.words.count());
  Status possible = needed <= kv_.log_bytes_max() ? kOk : kv_.too_large(needed);
  if (possible.ok()) possible = took(kv_.locks_.remove(locks_, range));
  if (possible.ok()) possible = confirm_map(number);
  if (!possible.ok()) {
    if (active_) drop_removals(removals_.size());
    return possible;
  }
  const auto counted = count_in(range);
  const auto had = counted.ok() ? had_locks() : counted.error();
  if (had.ok() && *counted > 0) {
    removals_.push_back(range);
    forget_writes_in(range);
    removed += *counted;
  } else if (active_) {
    drop_removals(removals_.size());
  }
  return had;
}

// Those behind the first `kept`.
void Transaction::drop_removals(std::size_t kept) {
  MEMLITH_ASSERT(kept <= removals_.size());
  removals_.resize(kept);
  need_ -= LogNeed::of_ranges(need_.ranges - kept);
  kv_.locks_.set_removed(locks_, removals_);
}

bool Transaction::is_in_removed(const RecordKey& record) const {
  return !removals_.empty() && locks_.removed.below_bound(record).has_value();
}

// The records that the transaction sees in a range of a tree in which no other transaction changes any.
Result<std::uint64_t> Transaction::count_in(const KeyRange& range) {
  TreeReader reader(kv_.pages_, range.map, view_);
  MEMLITH_TRY_ASSIGN(std::uint64_t found, reader.count(range));
  RangeSet before(&memory_);
  for (const KeyRange& each : removals_) before.add(each);
  for (const KeyRange each : before.all()) {
    KeyRange both{range.map, range.has_high || each.has_high, std::max(range.low, each.low), {}};
    both.high = !range.has_high ? each.high : !each.has_high ? range.high : std::min(range.high, each.high);
    if (each.map != range.map || (both.has_high && both.low >= both.high)) continue;
    MEMLITH_TRY_ASSIGN(const std::uint64_t gone, reader.count(both));
    found -= gone;
  }
  for (auto own = locks_.writes.lower_bound({range.map, range.low}); own != locks_.writes.end(); ++own) {
    const auto& [record, pending] = *own;
    if (record.map != range.map || (range.has_high && record.key >= range.high)) break;
    if (pending.kind == Pending::Kind::none) continue;
    bool in_tree = false;
    if (!before.below_bound(record).has_value()) {
      MEMLITH_TRY_ASSIGN(in_tree, reader.get(record.key, [](const Cell&, bool) {}));
    }
    found += pending.kind == Pending::Kind::put ? 1 : 0;
    found -= in_tree ? 1 : 0;
  }
  return found;
}

// The commit removes the range, and puts what was written then.
void Transaction::forget_writes_in(const KeyRange& range) {
  for (auto own = locks_.writes.lower_bound({range.map, range.low}); own != locks_.writes.end(); ++own) {
    const auto& [record, pending] = *own;
    if (record.map != range.map || (range.has_high && record.key >= range.high)) return;
    if (pending.kind == Pending::Kind::none) continue;
    if (!savepoints_.empty()) undo_.push_back({record, pending});
    need_ -= LogNeed::of(record.key, pending);
    own->second = {};
  }
}

Result<std::uint64_t> Transaction::savepoint() {
  MEMLITH_TRY(need_active());
  savepoints_.push_back({undo_.size(), removals_.size()});
  return std::uint64_t{savepoints_.size()};
}

Status Transaction::undo_to(std::uint64_t savepoint) {
  MEMLITH_TRY(need_active());
  if (savepoint == 0 || savepoint > savepoints_.size()) {
    return fail(Errc::invalid, Detail::argument, "the transaction has {} savepoints, and no number {}",
                savepoints_.size(), savepoint);
  }
  const auto [length, removals] = savepoints_[savepoint - 1];
  MEMLITH_ASSERT(length <= undo_.size());
  if (removals < removals_.size()) drop_removals(removals);
  while (undo_.size() > length) {
    const Undo& last = undo_.back();
    const auto own = locks_.writes.find(last.record);
    MEMLITH_ASSERT(own != locks_.writes.end());  // its lock stays, whatever is undone
    need_ -= LogNeed::of(last.record.key, own->second);
    need_ += LogNeed::of(last.record.key, last.before);
    own->second = last.before;
    undo_.pop_back();
  }
  savepoints_.resize(savepoint);
  return kOk;
}

bool Transaction::writes() const {
  return !removals_.empty() || std::any_of(locks_.writes.begin(), locks_.writes.end(),
                                           [](const auto& each) { return each.second.kind != Pending::Kind::none; });
}

Result<std::uint64_t> Transaction::commit(Durability durability, Lsn* ticket) {
  MEMLITH_TRY(need_active());
  return kv_.commit(*this, durability, ticket);
}

Result<std::uint64_t> Kv::commit(Transaction& transaction, Durability durability, Lsn* ticket) {
  const bool changes = transaction.writes();
  // A weak commit, or one that only reads, takes less time than two looks at the clock are worth.
  std::optional<PersistTimer> timer;
  if (changes && durability == Durability::sync) timer.emplace();
  const bool removes = !transaction.removals_.empty();
  std::uint64_t number = 0;
  Left left;
  if (!transaction.read_only_) MEMLITH_TRY(transaction.keep_locks());
  if (changes) {
    struct EndOnError {
      Transaction* transaction;
      ~EndOnError() {
        if (transaction != nullptr) transaction->end();
      }
    } failed{&transaction};
    MEMLITH_TRY_ASSIGN(number, apply(transaction.locks_, durability, left));
    failed.transaction = nullptr;
  } else {
    // The newest commit that it can have read: as long as it has locks, none has changed what it read.
    left.ticket = newest_ticket();
    number = transaction.read_only_ ? commit_of(transaction.view_) : newest();
  }
  transaction.end();
  if (ticket != nullptr) *ticket = left.ticket;
  if (read_only()) return number;
  if (durability == Durability::sync) {
    // ORDER durable-before-answer: locks go before the flush, so what a transaction read may be in memory only.
    // [test KvReaders.ADurableReadIsThereAfterEveryCut]
    MEMLITH_TRY(weak_commits_.make_durable(number));
    if (changes) timer->note_kv_commit(*region().store().stats());
  } else if (changes) {
    weak_commits_.ask_for(left.wish);
  }
  if (changes && durability == Durability::weak) {
    region().store().stats()->kv_weak_commits.fetch_add(1, std::memory_order_relaxed);
  }
  // Without locks, so that the rest makes no conflicts.
  if (durability == Durability::weak && !manual_ && left.rest_until.has_value()) rest(*left.rest_until);
  if (removes) free_removed_later();
  return number;
}

}  // namespace memlith::core::kv
