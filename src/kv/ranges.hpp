// The ranges of keys that a transaction has locked. Floor: kv.
//
// Ranges that meet are joined, so that a lookup is one step down a tree, however many cursors passed where.
#pragma once

#include <compare>
#include <map>
#include <memory_resource>
#include <optional>
#include <ranges>
#include <string_view>

#include "kv/page.hpp"

namespace memlith::core::kv {

struct RecordKey {
  PageNumber map = 0;
  std::string_view key;  // its bytes belong to the transaction
  friend auto operator<=>(const RecordKey&, const RecordKey&) = default;
};

// The keys from `low` to `high`, both included; without a bound, all. A key has a byte at least, so an empty `low` is
// no bound.
struct KeyRange {
  PageNumber map = 0;
  bool has_high = false;
  std::string_view low;
  std::string_view high;
  [[nodiscard]] bool contains(const RecordKey& record) const {
    return record.map == map && low <= record.key && (!has_high || record.key <= high);
  }
};

class RangeSet {
  struct High {
    bool bounded = false;
    std::string_view key;
  };
  using Map = std::pmr::map<RecordKey, High>;  // by the lowest key

 public:
  explicit RangeSet(std::pmr::memory_resource* memory) : all_(memory) {}

  void add(const KeyRange& range) {
    MEMLITH_ASSERT(!range.has_high || range.low <= range.high);
    auto at = all_.upper_bound({range.map, range.low});
    if (at != all_.begin()) {
      const auto before = std::prev(at);
      if (before->first.map == range.map && reaches(before->second, range.low)) at = before;
    }
    if (at == all_.end() || at->first.map != range.map || !reaches(high_of(range), at->first.key)) {
      all_.emplace_hint(at, RecordKey{range.map, range.low}, high_of(range));
      return;
    }
    if (range.low < at->first.key) {  // it begins earlier
      auto node = all_.extract(at);
      node.key() = {range.map, range.low};
      at = all_.insert(std::move(node)).position;
    }
    at->second = further(at->second, high_of(range));
    for (auto next = std::next(at);
         next != all_.end() && next->first.map == range.map && reaches(at->second, next->first.key);
         next = all_.erase(next)) {
      at->second = further(at->second, next->second);
    }
  }
  [[nodiscard]] bool contains(const RecordKey& record) const {
    const auto at = last_from(record);
    return at != all_.end() && reaches(at->second, record.key);
  }
  // The range that has the record, where bounds above are not included; null: there is none.
  [[nodiscard]] std::optional<KeyRange> below_bound(const RecordKey& record) const {
    const auto at = last_from(record);
    if (at == all_.end() || (at->second.bounded && record.key >= at->second.key)) return std::nullopt;
    return KeyRange{record.map, at->second.bounded, at->first.key, at->second.key};
  }
  // True if some key is in the range and in one of these.
  [[nodiscard]] bool meets(const KeyRange& range) const {
    const auto before = last_from({range.map, range.low});
    if (before != all_.end() && reaches(before->second, range.low)) return true;
    const auto next = all_.lower_bound({range.map, range.low});
    return next != all_.end() && range.contains(next->first);
  }
  // True if all of the range is in one of these.
  [[nodiscard]] bool covers(const KeyRange& range) const {
    const auto at = last_from({range.map, range.low});
    if (at == all_.end() || !reaches(at->second, range.low)) return false;
    return !at->second.bounded || (range.has_high && range.high <= at->second.key);
  }
  [[nodiscard]] bool any_in(PageNumber map) const {
    const auto at = all_.lower_bound({map, {}});
    return at != all_.end() && at->first.map == map;
  }
  [[nodiscard]] std::size_t size() const { return all_.size(); }
  // A KeyRange for each, in their order.
  [[nodiscard]] auto all() const {
    return std::views::transform(all_, [](const Map::value_type& each) {
      return KeyRange{each.first.map, each.second.bounded, each.first.key, each.second.key};
    });
  }
  void clear() { all_.clear(); }

 private:
  static High high_of(const KeyRange& range) { return {range.has_high, range.high}; }
  static bool reaches(const High& high, std::string_view key) { return !high.bounded || key <= high.key; }
  static High further(const High& a, const High& b) { return reaches(a, b.key) && (!a.bounded || b.bounded) ? a : b; }
  // The last range of the map that begins at the key or before.
  [[nodiscard]] Map::const_iterator last_from(const RecordKey& record) const {
    auto at = all_.upper_bound(record);
    if (at == all_.begin()) return all_.end();
    --at;
    return at->first.map == record.map ? at : all_.end();
  }
  Map all_;
};

}  // namespace memlith::core::kv
