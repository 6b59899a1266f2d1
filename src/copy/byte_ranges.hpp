// A set of byte ranges. Floor: copy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "base/assert.hpp"
#include "base/status.hpp"

namespace memlith::core {

class ByteRanges {
 public:
  void add(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    auto next = ranges_.upper_bound(begin);
    if (next != ranges_.begin() && std::prev(next)->second >= begin) --next;
    while (next != ranges_.end() && next->first <= end) {
      begin = std::min(begin, next->first);
      end = std::max(end, next->second);
      next = ranges_.erase(next);
    }
    MEMLITH_ASSERT(next == ranges_.end() || end < next->first);
    ranges_.emplace(begin, end);
  }
  // Visits what of [begin, end) is not in the set, in order.
  template <class Visit>
  Status for_each_gap(std::uint64_t begin, std::uint64_t end, const Visit& visit) const {
    auto next = ranges_.upper_bound(begin);
    if (next != ranges_.begin()) begin = std::max(begin, std::prev(next)->second);
    for (; begin < end; ++next) {
      const std::uint64_t gap_end = next == ranges_.end() ? end : std::min(end, next->first);
      if (begin < gap_end) MEMLITH_TRY(visit(begin, gap_end));
      if (next == ranges_.end()) break;
      begin = std::max(begin, next->second);
    }
    return kOk;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // begin to end; none touch
};

}  // namespace memlith::core
