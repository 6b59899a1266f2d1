#include <optional>
#include <thread>

#include "kv/kv.hpp"

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
}

Status Transaction::begin() {
  if (active_) {
    return fail(Errc::invalid, Detail::kv, "the transaction is active; commit or abort it before it begins anew");
  }
  ++generation_;
  known_map_ = 0;
  if (read_only_) view_ = kv_.pages_.take_snapshot();
  active_ = true;
  return kOk;
}

void Transaction::end() {
  active_ = false;
  if (read_only_) {
    kv_.pages_.drop_snapshot(view_);
  } else {
    kv_.locks_.leave(locks_);
  }
  locks_.clear();
  undo_.clear();
  savepoints_.clear();
  memory_.release();
}

void Transaction::abort() {
  if (active_) end();
}

Status Transaction::need_active() const {
  if (active_) return kOk;
  return quick_failure(Errc::invalid, Detail::kv, "the transaction has ended; begin another one, or begin it anew");
}

Status Transaction::conflict() {
  end();
  kv_.conflicts_.fetch_add(1, std::memory_order_relaxed);
  return quick_failure(Errc::conflict, Detail::kv,
                       "another transaction has locked what this one needs; this one was aborted: begin it again");
}

Status Transaction::check(PageNumber map, std::string_view key) {
  MEMLITH_TRY(need_active());
  if (key.empty() || key.size() > kKeyBytesMax) {
    return fail(Errc::invalid, Detail::argument, "a key has 1 to {} bytes; this one has {}", kKeyBytesMax, key.size());
  }
  if (map == known_map_) return kOk;
  if (map == kCatalogue) return fail(Errc::invalid, Detail::kv, "there is no map number {}", map);
  return TreeReader(kv_.pages_, map, view_).check_map();
}

// Called with a lock in the map, so that no other transaction removes it from now on.
Status Transaction::confirm_map(PageNumber map) {
  if (map == known_map_) return kOk;
  MEMLITH_TRY(TreeReader(kv_.pages_, map, view_).check_map());
  known_map_ = map;
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

Result<std::optional<std::string_view>> Transaction::read_tree(PageNumber map, std::string_view key) {
  TreeReader reader(kv_.pages_, map, view_);
  for (;;) {
    char* target = nullptr;
    std::uint64_t capacity = 0;
    std::uint64_t bytes = 0;
    std::optional<OverflowReference> overflow;
    MEMLITH_TRY_ASSIGN(const bool found, reader.get(key, [&](const Cell& cell) {
      overflow.reset();
      bytes = cell.value.size();
      if (cell.overflow && bytes == sizeof(OverflowReference)) {
        overflow = load_as<OverflowReference>(reinterpret_cast<const std::byte*>(cell.value.data()));
        return;
      }
      if (bytes > capacity || target == nullptr) target = room(capacity = bytes);
      if (bytes > 0) std::memcpy(target, cell.value.data(), bytes);
    }));
    if (!found) return std::optional<std::string_view>();
    if (!overflow.has_value()) return std::optional(std::string_view(target, bytes));
    if (overflow->bytes > kValueBytesMax) return kv_.pages_.corrupt(map, "a value of it is too long");
    target = room(overflow->bytes);
    MEMLITH_TRY_ASSIGN(const bool whole, reader.read_overflow(*overflow, target));
    if (whole) return std::optional(std::string_view(target, overflow->bytes));
  }
}

Result<std::optional<std::string_view>> Transaction::get(PageNumber map, std::string_view key) {
  MEMLITH_TRY(check(map, key));
  if (read_only_) return read_tree(map, key);
  if (const auto own = locks_.writes.find({map, key}); own != locks_.writes.end()) {
    if (own->second.kind == Pending::Kind::put) return std::optional(own->second.value);
    if (own->second.kind == Pending::Kind::remove) return std::optional<std::string_view>();
  } else if (!locks_.reads.contains({map, key}) && !kv_.locks_.read(locks_, {map, keep(key)})) {
    return conflict();
  }
#ifdef MEMLITH_MUTANTS
  if (MEMLITH_MUTANT(kv_dirty_read)) {
    const Pending* const dirty = kv_.locks_.pending_of_others(locks_, {map, key});
    if (dirty != nullptr && dirty->kind == Pending::Kind::put) return std::optional(keep(dirty->value));
  }
#endif
  MEMLITH_TRY(confirm_map(map));
  return read_tree(map, key);
}

Status Transaction::for_each(PageNumber map, std::string_view from, std::optional<std::string_view> to,
                             const Visit& visit) {
  MEMLITH_ASSERT(read_only_);
  MEMLITH_TRY(check(map, "k"));
  TreeReader reader(kv_.pages_, map, view_);
  TreeReader::Leaf leaf;
  for (std::string bound(from);;) {
    const std::string_view first = bound;
    MEMLITH_TRY(reader.load_leaf(&first, leaf));
    const std::uint32_t count = header_of(leaf.bytes).count;
    for (std::uint32_t i = find_place(leaf.bytes, first).index; i < count; ++i) {
      const Cell cell = cell_of(leaf.bytes, i);
      if (to.has_value() && cell.key >= *to) return kOk;
      std::string_view value = cell.value;
      if (cell.overflow) {
        MEMLITH_TRY_ASSIGN(const auto whole, read_tree(map, cell.key));
        if (!whole.has_value()) return kv_.pages_.corrupt(leaf.page, "a record of it is not found");
        value = *whole;
      }
      if (!visit(cell.key, value)) return kOk;
    }
    if (!leaf.has_upper) return kOk;
    bound = leaf.upper;
  }
}

Status Transaction::write(PageNumber map, std::string_view key, const Pending& pending) {
  const auto own = locks_.writes.find({map, key});
  const bool had = own != locks_.writes.end();
  const RecordKey record{map, had ? own->first.key : keep(key)};
  if (!savepoints_.empty()) undo_.push_back({record, had ? own->second : Pending{}});
  if (had) {
    kv_.locks_.set(locks_, record, pending);
    return kOk;
  }
  if (!kv_.locks_.write(locks_, record, pending)) return conflict();
  return confirm_map(map);
}

Status Transaction::put(PageNumber map, std::string_view key, std::string_view value) {
  MEMLITH_TRY(check(map, key));
  if (read_only_) return fail(Errc::read_only, Detail::kv, "the transaction was begun read-only");
  if (value.size() > kValueBytesMax) {
    return fail(Errc::invalid, Detail::argument, "a value has up to {} bytes; this one has {}", kValueBytesMax,
                value.size());
  }
  return write(map, key, {Pending::Kind::put, keep(value)});
}

Result<bool> Transaction::remove(PageNumber map, std::string_view key) {
  if (read_only_ && active_) return fail(Errc::read_only, Detail::kv, "the transaction was begun read-only");
  MEMLITH_TRY_ASSIGN(const auto found, get(map, key));
  if (!found.has_value()) return false;
  MEMLITH_TRY(write(map, key, {Pending::Kind::remove, {}}));
  return true;
}

Result<std::uint64_t> Transaction::savepoint() {
  MEMLITH_TRY(need_active());
  savepoints_.push_back(undo_.size());
  return std::uint64_t{savepoints_.size()};
}

Status Transaction::undo_to(std::uint64_t savepoint) {
  MEMLITH_TRY(need_active());
  if (savepoint == 0 || savepoint > savepoints_.size()) {
    return fail(Errc::invalid, Detail::argument, "the transaction has {} savepoints, and no number {}",
                savepoints_.size(), savepoint);
  }
  const std::size_t length = savepoints_[savepoint - 1];
  while (undo_.size() > length) {
    kv_.locks_.set(locks_, undo_.back().record, undo_.back().before);
    undo_.pop_back();
  }
  savepoints_.resize(savepoint);
  return kOk;
}

Result<std::uint64_t> Transaction::commit(Durability durability, std::uint64_t* ticket, Ride* ride) {
  MEMLITH_TRY(need_active());
  // A weak commit takes less time than two looks at the clock are worth: it is counted only.
  std::optional<PersistTimer> timer;
  if (durability == Durability::sync) timer.emplace();
  bool writes = ride != nullptr;
  for (const auto& [record, pending] : locks_.writes) writes = writes || pending.kind != Pending::Kind::none;
  std::uint64_t number = 0;
  Kv::Left left;
  if (writes) {
    struct EndOnError {
      Transaction* transaction;
      ~EndOnError() {
        if (transaction != nullptr) transaction->end();
      }
    } failed{this};
    MEMLITH_TRY_ASSIGN(number, kv_.apply(locks_, ride, left));
    failed.transaction = nullptr;
  } else {
    number = kv_.newest();
  }
  end();
  if (ticket != nullptr) *ticket = number;
  if (kv_.read_only()) return number;
  if (durability == Durability::sync) {
    MEMLITH_TRY(kv_.gatherer_.make_durable(number));
    if (writes) timer->note_kv_commit(*kv_.pages_.region().store().stats());
  } else if (writes && !kv_.manual_) {
    kv_.gatherer_.left(left.waiting_bytes);
  }
  if (writes && durability == Durability::weak) {
    kv_.pages_.region().store().stats()->kv_weak_commits.fetch_add(1, std::memory_order_relaxed);
  }
  if (ride != nullptr && durability == Durability::weak && ride->companion->is_urgent(ride->mark)) {
    MEMLITH_TRY(kv_.gatherer_.hand_over(number, false).status());
  }
  // Without locks, so that the rest makes no conflicts.
  if (durability == Durability::weak && !kv_.manual_ && left.rest_until.has_value()) rest(*left.rest_until);
  return number;
}

}  // namespace memlith::core::kv
