// How many records a range has, from the ways to its ends. Floor: kv.
#include <algorithm>
#include <cmath>

#include "kv/kv.hpp"

namespace memlith::core::kv {

namespace {

// Records below one child of a page of that level of the ways, if pages have as many cells as those that were seen.
double records_below(const TreeReader::Way& begin, const TreeReader::Way& end, std::uint32_t level) {
  double records = 1;
  for (std::uint32_t i = level + 1; i < begin.depth; ++i) records *= (begin.steps[i].count + end.steps[i].count) / 2.0;
  return records;
}

double records_between(const TreeReader::Way& begin, const TreeReader::Way& end) {
  MEMLITH_ASSERT(begin.depth > 0 && begin.depth == end.depth);
  std::uint32_t parting = 0;
  while (parting + 1 < begin.depth && begin.steps[parting].index == end.steps[parting].index) ++parting;
  const double apart = 1.0 * end.steps[parting].index - begin.steps[parting].index;
  if (parting + 1 == begin.depth) return std::max(apart, 0.0);  // in one leaf: exact
  double records = (apart - 1) * records_below(begin, end, parting);
  for (std::uint32_t i = parting + 1; i < begin.depth; ++i) {
    const bool leaf = i + 1 == begin.depth;
    const double behind = 1.0 * begin.steps[i].count - begin.steps[i].index - (leaf ? 0 : 1);
    records += (behind + end.steps[i].index) * records_below(begin, end, i);
  }
  return std::max(records, 0.0);
}

}  // namespace

Status Transaction::estimate(MapNumber number, std::optional<std::string_view> from, std::optional<std::string_view> to,
                             RangeEstimate& estimate) {
  estimate = {};
  MEMLITH_TRY_ASSIGN(const PageNumber map, check(number, "k"));
  if (from.has_value() && to.has_value() && *from >= *to) return kOk;
  TreeReader reader(kv_.pages_, map, view_);
  TreeReader::Way begin;
  TreeReader::Way end;
  const std::string_view first = from.value_or("");
  do {  // a commit may make the tree higher meanwhile
    MEMLITH_TRY(reader.find_way(&first, begin));
    MEMLITH_TRY(reader.find_way(to.has_value() ? &*to : nullptr, end));
  } while (begin.depth != end.depth);
  const double records = records_between(begin, end);
  estimate.records = static_cast<std::uint64_t>(std::llround(records));
  if (begin.leaf == end.leaf) {  // exact, unless a commit has changed the leaf in between
    estimate.bytes = std::max(end.leaf_bytes_before, begin.leaf_bytes_before) - begin.leaf_bytes_before;
    return kOk;
  }
  const double seen = begin.steps[begin.depth - 1].count + end.steps[end.depth - 1].count;
  const double bytes_each = seen > 0 ? static_cast<double>(begin.leaf_bytes + end.leaf_bytes) / seen : 0;
  estimate.bytes = static_cast<std::uint64_t>(std::llround(records * bytes_each));
  return kOk;
}

}  // namespace memlith::core::kv
