#include "kv/proposal.hpp"

#include <cstring>
#include <optional>

#include "kv/kv.hpp"

namespace memlith::core::kv {

// ---- bytes -----------------------------------------------------------------------------------------------------

namespace {

template <class T>
void put(std::string& bytes, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& bytes, std::string_view text) {
  put(bytes, static_cast<std::uint32_t>(text.size()));
  bytes.append(text);
}

// Takes values from the front; `good` tells whether all were there.
struct Taker {
  std::string_view rest;
  bool good = true;
  template <class T>
  T take() {
    T value{};
    good = good && rest.size() >= sizeof value;
    if (!good) return T{};
    std::memcpy(&value, rest.data(), sizeof value);
    rest.remove_prefix(sizeof value);
    return value;
  }
  std::string_view take_text() {
    const auto size = take<std::uint32_t>();
    good = good && rest.size() >= size;
    if (!good) return {};
    const std::string_view text = rest.substr(0, size);
    rest.remove_prefix(size);
    return text;
  }
  RecordKey take_key() {
    const auto map = take<PageNumber>();
    const std::string_view key = take_text();
    good = good && !key.empty() && key.size() <= kKeyBytesMax;
    return {map, key};
  }
};

}  // namespace

namespace {

void put_ranges(std::string& bytes, const RangeSet& ranges) {
  put(bytes, static_cast<std::uint32_t>(ranges.size()));
  for (const KeyRange range : ranges.all()) {
    put(bytes, range.map);
    put(bytes, static_cast<std::uint8_t>(range.has_high));
    put_text(bytes, range.low);
    put_text(bytes, range.high);
  }
}

template <class Take>
void take_ranges(Taker& from, Take&& take) {
  for (auto count = from.take<std::uint32_t>(); from.good && count > 0; --count) {
    KeyRange range;
    range.map = from.take<PageNumber>();
    range.has_high = from.take<std::uint8_t>() != 0;
    range.low = from.take_text();
    range.high = from.take_text();
    from.good = from.good && (!range.has_high || range.low <= range.high);
    if (from.good) take(range);
  }
}

}  // namespace

std::string Proposal::bytes_of(Stamp view, const LockSet& locks) {
  std::string bytes;
  put(bytes, view);
  put(bytes, static_cast<std::uint32_t>(locks.reads.size()));
  for (const auto& [record, place] : locks.reads) {
    put(bytes, record.map);
    put_text(bytes, record.key);
  }
  put_ranges(bytes, locks.ranges);
  put_ranges(bytes, locks.removed);
  for (const auto& [record, pending] : locks.writes) {
    if (pending.kind == Pending::Kind::none) continue;
    put(bytes, pending.kind);
    put(bytes, record.map);
    put_text(bytes, record.key);
    put_text(bytes, pending.value);
  }
  return bytes;
}

Status Proposal::read(std::string_view bytes) {
  Taker from{bytes};
  view = from.take<Stamp>();
  for (auto count = from.take<std::uint32_t>(); from.good && count > 0; --count) {
    locks.reads.emplace(from.take_key(), LeafPlace{});
  }
  take_ranges(from, [&](const KeyRange& range) { ranges.push_back(range); });
  take_ranges(from, [&](const KeyRange& range) { locks.removed.add(range); });
  while (from.good && !from.rest.empty()) {
    Pending pending;
    pending.kind = from.take<Pending::Kind>();
    const RecordKey record = from.take_key();
    pending.value = from.take_text();
    from.good = from.good && pending.kind <= Pending::Kind::remove && pending.value.size() <= kValueBytesMax;
    if (from.good) locks.writes.insert_or_assign(record, pending);
  }
  if (from.good) return kOk;
  return fail(Errc::invalid, Detail::kv, "a client of the kv store sent what is no transaction");
}

// ---- what was read ---------------------------------------------------------------------------------------------

namespace {

// The records of a range in one state, in order.
class Records {
 public:
  Records(Pages& pages, Stamp view, const KeyRange& range)
      : range_(range), reader_(pages, range.map, view), next_(range.low) {}

  // False: there are no more.
  Result<bool> next() {
    for (;;) {
      if (loaded_ && index_ < header_of(leaf_.bytes).count) {
        cell_ = cell_of(leaf_.bytes, index_++);
        return !range_.has_high || cell_.key <= range_.high;
      }
      if (loaded_ && !leaf_.has_upper) return false;
      if (loaded_) next_ = leaf_.upper;
      const std::string_view key = next_;
      MEMLITH_TRY(reader_.load_leaf(&key, leaf_));
      loaded_ = true;
      index_ = find_cell(leaf_.bytes, key).index;
    }
  }
  [[nodiscard]] std::string_view key() const { return cell_.key; }
  // No page changes meanwhile. Valid until next().
  Result<std::string_view> value() {
    if (!cell_.overflow) return cell_.value;
    return reader_.view_of(reference_of(cell_));
  }

 private:
  const KeyRange range_;
  TreeReader reader_;
  TreeReader::Leaf leaf_;
  bool loaded_ = false;
  std::uint32_t index_ = 0;
  std::string next_;
  Cell cell_;
};

// True if both states have the same records in the range.
Result<bool> is_unchanged(Pages& pages, Stamp view, const KeyRange& range) {
  const auto before = std::make_unique<Records>(pages, view, range);
  const auto now = std::make_unique<Records>(pages, pages.kept.newest(), range);
  for (;;) {
    MEMLITH_TRY_ASSIGN(const bool had, before->next());
    MEMLITH_TRY_ASSIGN(const bool has, now->next());
    if (had != has) return false;
    if (!has) return true;
    if (before->key() != now->key()) return false;
    MEMLITH_TRY_ASSIGN(const std::string_view old_value, before->value());
    MEMLITH_TRY_ASSIGN(const std::string_view value, now->value());
    if (old_value != value) return false;
  }
}

Status changed() {
  set_error_text("another transaction has changed what this one read; this one was aborted: begin it again");
  return Status{Errc::conflict, Detail::kv, 0, 0};
}

}  // namespace

// The map that the transaction saw there is there still.
Status Kv::check_map_of(PageNumber root, Stamp view) {
  const MapEntry* const map = map_with_root(root);
  return map != nullptr && map->created <= view ? kOk : changed();
}

Status Kv::validate(const Proposal& proposal) {
  for (const auto& [record, place] : proposal.locks.reads) {
    MEMLITH_TRY(check_map_of(record.map, proposal.view));
    if (proposal.view == pages_.kept.newest()) continue;
    MEMLITH_TRY_ASSIGN(const bool same,
                       is_unchanged(pages_, proposal.view, {record.map, true, record.key, record.key}));
    if (!same) return changed();
  }
  for (const KeyRange& each : proposal.ranges) {
    MEMLITH_TRY(check_map_of(each.map, proposal.view));
    if (proposal.view == pages_.kept.newest()) continue;
    MEMLITH_TRY_ASSIGN(const bool same, is_unchanged(pages_, proposal.view, each));
    if (!same) return changed();
  }
  for (const auto& each : proposal.locks.writes) MEMLITH_TRY(check_map_of(each.first.map, proposal.view));
  for (const KeyRange range : proposal.locks.removed.all()) MEMLITH_TRY(check_map_of(range.map, proposal.view));
  return kOk;
}

Result<std::uint64_t> Kv::commit_proposal(const Proposal& proposal, Durability durability, Lsn& ticket) {
  const Status valid = validate(proposal);
  if (valid.category == Errc::conflict) conflicts_.fetch_add(1, std::memory_order_relaxed);
  MEMLITH_TRY(valid);
  Left left;
  MEMLITH_TRY_ASSIGN(const std::uint64_t number, apply(proposal.locks, durability, left));
  ticket = left.ticket;
  if (durability == Durability::weak) {
    weak_commits_.ask_for(left.wish);
    region().store().stats()->kv_weak_commits.fetch_add(1, std::memory_order_relaxed);
  }
  if (proposal.locks.removed.size() > 0) free_removed_later();
  return number;
}

}  // namespace memlith::core::kv
