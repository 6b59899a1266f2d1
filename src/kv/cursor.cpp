// Cursors: steps through a leaf, or a copy of one, merged with what the transaction has written. Floor: kv.
#include <algorithm>

#include "kv/kv.hpp"

namespace memlith::core::kv {

Cursor::Cursor(Transaction& transaction, MapNumber number)
    : transaction_(transaction),
      number_(number),
      map_(transaction.kv_.root_of(number)),
      generation_(transaction.generation_),
      reader_(transaction.kv_.pages_, map_, transaction.view_) {}

Status Cursor::check() {
  if (!transaction_.active() || generation_ != transaction_.generation_) {
    return fail(Errc::invalid, Detail::kv, "the cursor's transaction has ended; open a cursor in another one");
  }
  return transaction_.check(number_, "k").status();
}

// ---- the tree --------------------------------------------------------------------------------------------------

// True if the copy of a leaf holds the place where the step begins.
bool Cursor::usable(const Start& start, bool forward) const {
  if (!loaded_ || (transaction_.view_ == kNewest && !reader_.unchanged(leaf_))) return false;
  if (!start.bounded) return forward ? !leaf_.has_lower : !leaf_.has_upper;
  if (leaf_.has_lower && (start.key < leaf_.lower || (!forward && start.key == leaf_.lower))) return false;
  return !leaf_.has_upper || start.key < leaf_.upper;
}

// The cell at which a step forward begins; a step backward begins before it.
std::uint32_t Cursor::first_index(bool forward, const Start& start) const {
  const std::uint32_t count = header_of(leaf_.bytes).count;
  if (!start.bounded) return forward ? 0 : count;
  const auto stands_at = [&](std::uint32_t index) {
    return index < count && cell_of(leaf_.bytes, index).key == start.key;
  };
  CellSearch search{index_, true, false};  // mostly it is where the last step ended
  if (!stands_at(index_)) search = find_cell(leaf_.bytes, start.key);
  return search.index + (forward && search.found && !start.inclusive ? 1 : 0);
}

Status Cursor::find_in_tree(bool forward, const Start& start) {
  found_ = false;
  std::uint32_t index = 0;
  if (!usable(start, forward)) {
    loaded_ = false;
    const std::string_view key = start.key;
    const bool last = !start.bounded && !forward;
    MEMLITH_TRY(reader_.load_leaf(last ? nullptr : &key, leaf_));
    loaded_ = true;
  }
  index = first_index(forward, start);
  for (;;) {
    const std::uint32_t count = header_of(leaf_.bytes).count;
    if (forward ? index < count : index > 0) {
      index_ = forward ? index : index - 1;
      candidate_.assign(cell_of(leaf_.bytes, index_).key);
      // A cursor that does not get on would never end.
      const int order = start.bounded ? candidate_.compare(start.key) : forward ? 1 : -1;
      if (forward ? order < 0 || (order == 0 && !start.inclusive) : order >= 0) {
        return transaction_.kv_.pages_.words.corrupt(leaf_.page, "its keys are not in order");
      }
      found_ = true;
      return kOk;
    }
    if (forward ? !leaf_.has_upper : !leaf_.has_lower) return kOk;
    // All later records lie beyond the bounds.
    if (forward ? has_upper_ && leaf_.upper >= upper_ : leaf_.lower <= lower_) return kOk;
    const std::string bound = forward ? leaf_.upper : leaf_.lower;
    const std::string_view key = bound;
    loaded_ = false;
    MEMLITH_TRY(reader_.load_leaf(&key, leaf_, !forward));
    loaded_ = true;
    const CellSearch search = find_cell(leaf_.bytes, bound);
    index = search.index;
  }
}

// ---- locks and own writes --------------------------------------------------------------------------------------

Result<bool> Cursor::lock_to_candidate(bool forward, const Start& start) {
  MEMLITH_ASSERT(!transaction_.read_only_);  // whose view needs no locks
  LockSet& locks = transaction_.locks_;
  KeyRange wanted = range_;
  const bool has_end = found_ || (forward ? has_upper_ : !lower_.empty());
  const std::string& last = found_ ? candidate_ : forward ? upper_ : lower_;
  if (has_range_) {
    const bool reaches = forward ? !wanted.has_high || (has_end && last <= wanted.high)
                                 : wanted.low.empty() || (has_end && wanted.low <= last);
    if (reaches) return true;
  } else {
    wanted = {map_, false, {}, {}};
    if (start.bounded) {
      wanted.has_high = true;
      wanted.low = wanted.high = transaction_.keep(start.key);
    }
  }
  const std::string_view end = has_end ? transaction_.keep(last) : std::string_view();
  if (forward) {
    wanted.has_high = has_end;
    wanted.high = end;
  } else {
    wanted.low = end;
  }
  const bool had = locks.ranges.covers(wanted);
  if (!had) MEMLITH_TRY(transaction_.took(transaction_.kv_.locks_.reach(locks, wanted)));
  range_ = wanted;
  has_range_ = true;
  MEMLITH_TRY(transaction_.confirm_map(number_));
  return had;
}

// The transaction's own record that comes before the candidate. True: it is the candidate now.
bool Cursor::take_own_write(bool forward, const Start& start) {
  const auto& writes = transaction_.locks_.writes;
  const auto better = [&](std::string_view key) {
    return !found_ || (forward ? key <= candidate_ : key >= candidate_);
  };
  const RecordKey from{start.bounded || forward ? map_ : map_ + 1, start.bounded ? std::string_view(start.key) : ""};
  auto each = start.bounded && forward && !start.inclusive ? writes.upper_bound(from) : writes.lower_bound(from);
  for (;;) {
    if (forward ? each == writes.end() : each == writes.begin()) return false;
    if (!forward) --each;
    if (each->first.map != map_ || !better(each->first.key) || !inside(each->first.key)) return false;
    if (each->second.kind == Pending::Kind::put) break;
    if (forward) ++each;
  }
  candidate_.assign(each->first.key);
  found_ = true;
  return true;
}

// ---- steps -----------------------------------------------------------------------------------------------------

Result<bool> Cursor::go(bool forward, Start start) {
  MEMLITH_TRY(check());
  auto found = move(forward, std::move(start));
  if (found.ok()) MEMLITH_TRY(transaction_.had_locks());
  return found;
}

Result<bool> Cursor::move(bool forward, Start start) {
  std::optional<Start> first;  // own writes are looked for from here on, where removed records are passed over
  for (;;) {
    MEMLITH_TRY(find_in_tree(forward, start));
    found_ = found_ && inside(candidate_);
    if (!transaction_.read_only_) {
      // A record may have come into the range before it was locked: what was found counts if the lock was there before.
      MEMLITH_TRY_ASSIGN(const bool locked, lock_to_candidate(forward, start));
      if (!locked) continue;
      const std::string in_tree = candidate_;
      const bool own = take_own_write(forward, first.has_value() ? *first : start);
      const bool removed = found_ && !own && transaction_.is_in_removed({map_, in_tree});
      if (removed) {
        if (!first.has_value()) first = start;
        if (pass_removed(forward, start)) continue;
        found_ = false;
        take_own_write(forward, *first);
      }
      const auto pending = found_ && !own && !removed ? transaction_.locks_.writes.find({map_, in_tree})
                                                      : transaction_.locks_.writes.end();
      if (pending != transaction_.locks_.writes.end() && pending->second.kind == Pending::Kind::remove) {
        start = {in_tree, true, false};
        continue;
      }
    }
    if (!found_) {
      position_ = forward ? Position::behind : Position::before;
      return false;
    }
    MEMLITH_ASSERT(!candidate_.empty() && inside(candidate_));
    position_ = Position::at;
    key_ = candidate_;
    return true;
  }
}

// The range that has the candidate was removed: the step goes on beyond. False: nothing lies there.
bool Cursor::pass_removed(bool forward, Start& start) const {
  const auto range = transaction_.locks_.removed.below_bound({map_, candidate_});
  MEMLITH_ASSERT(range.has_value());
  if (forward ? !range->has_high : range->low.empty()) return false;
  start = {std::string(forward ? range->high : range->low), true, forward};
  return true;
}

Status Cursor::set_bounds(std::optional<std::string_view> from, std::optional<std::string_view> to) {
  MEMLITH_TRY(check());
  lower_.assign(from.value_or(""));
  upper_.assign(to.value_or(""));
  has_upper_ = to.has_value();
  has_range_ = false;
  position_ = Position::fresh;
  return kOk;
}

Status Cursor::set_prefix(std::string_view prefix) {
  // The first key behind all that begin so: the last byte that can rise rises.
  std::string end(prefix);
  while (!end.empty() && end.back() == static_cast<char>(0xff)) end.pop_back();
  if (!end.empty()) ++end.back();
  return set_bounds(prefix, end.empty() ? std::nullopt : std::optional<std::string_view>(end));
}

Result<bool> Cursor::none(Position position) {
  MEMLITH_TRY(check());
  position_ = position;
  return false;
}

Result<bool> Cursor::first() {
  has_range_ = false;
  if (no_room()) return none(Position::behind);
  return go(true, {lower_, !lower_.empty(), true});
}

Result<bool> Cursor::last() {
  has_range_ = false;
  if (no_room()) return none(Position::before);
  return go(false, {upper_, has_upper_, false});
}

Result<bool> Cursor::seek(std::string_view key) {
  has_range_ = false;
  if (key.size() > kKeyBytesMax) {
    return fail(Errc::invalid, Detail::argument, "a key has up to {} bytes; this one has {}", kKeyBytesMax, key.size());
  }
  if (no_room() || (has_upper_ && key >= upper_)) return none(Position::behind);
  return go(true, {std::max(std::string(key), lower_), true, true});
}

Result<bool> Cursor::next() {
  switch (position_) {
    case Position::at: return go(true, {key_, true, false});
    case Position::behind: MEMLITH_TRY(check()); return false;
    default: return first();
  }
}

Result<bool> Cursor::prev() {
  switch (position_) {
    case Position::at: return go(false, {key_, true, false});
    case Position::before: MEMLITH_TRY(check()); return false;
    default: return last();
  }
}

// ---- the record ------------------------------------------------------------------------------------------------

Result<Cursor::Record> Cursor::peek() {
  auto found = read();
  if (found.ok()) MEMLITH_TRY(transaction_.had_locks());
  return found;
}

Result<Cursor::Record> Cursor::read() {
  if (!transaction_.read_only_) {
    const auto own = transaction_.locks_.writes.find({map_, key_});
    if (own != transaction_.locks_.writes.end() && own->second.kind == Pending::Kind::put) {
      return Record{key_, own->second.value, true};
    }
  }
  const bool fresh = loaded_ && (transaction_.view_ != kNewest || reader_.unchanged(leaf_));
  if (fresh && index_ < header_of(leaf_.bytes).count) {
    const Cell cell = cell_of(leaf_.bytes, index_);
    if (cell.key == key_ && !cell.overflow) return Record{key_, cell.value, leaf_.stays};
    if (cell.key == key_) {
      MEMLITH_TRY_ASSIGN(const std::string_view whole, transaction_.long_value(reader_, map_, cell, value_));
      return Record{key_, whole, transaction_.has_snapshot()};
    }
  }
  MEMLITH_TRY_ASSIGN(const auto value, transaction_.read_tree(map_, key_));
  if (!value.has_value()) return fail(Errc::not_found, Detail::kv, "the cursor stands on no record");
  return Record{key_, *value, true};
}

Result<bool> Cursor::on_a_record() {
  MEMLITH_TRY(check());
  if (position_ != Position::at) return false;
  if (transaction_.read_only_) return true;
  const auto own = transaction_.locks_.writes.find({map_, key_});
  const bool has_own = own != transaction_.locks_.writes.end() && own->second.kind != Pending::Kind::none;
  return has_own ? own->second.kind == Pending::Kind::put : !transaction_.is_in_removed({map_, key_});
}

Result<std::optional<std::string_view>> Cursor::current_key() {
  MEMLITH_TRY_ASSIGN(const bool there, on_a_record());
  if (!there) return std::optional<std::string_view>();
  return std::optional(transaction_.keep(key_));
}

Result<std::optional<Cursor::Record>> Cursor::current() {
  MEMLITH_TRY_ASSIGN(const bool there, on_a_record());
  if (!there) return std::optional<Record>();
  MEMLITH_TRY_ASSIGN(const Record found, peek());
  MEMLITH_TRY(transaction_.take_memory(0));
  const std::string_view value = found.value_stays ? found.value : transaction_.keep(found.value);
  return std::optional(Record{transaction_.keep(found.key), value, true});
}

Result<bool> Cursor::remove() {
  if (transaction_.read_only()) return fail(Errc::read_only, Detail::kv, "the transaction was begun read-only");
  MEMLITH_TRY_ASSIGN(const auto record, current());
  if (!record.has_value()) return false;
  MEMLITH_TRY(transaction_.write(number_, map_, key_, {Pending::Kind::remove, false, {}}));
  return true;
}

}  // namespace memlith::core::kv
