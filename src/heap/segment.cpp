#include "heap/segment.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace memlith::core {

std::uint32_t Segment::next(std::uint32_t from, bool is_free) const {
  while (from < kSegmentPages) {
    const std::uint64_t word = (is_free ? free_[from / 64] : ~free_[from / 64]) >> from % 64;
    if (word != 0) return from + static_cast<std::uint32_t>(std::countr_zero(word));
    from = (from / 64 + 1) * 64;
  }
  return kSegmentPages;
}

std::uint32_t Segment::find(std::uint32_t pages) const {
  if (pages > longest_) return kNoPage;
  for (std::uint32_t begin = next(0, true); begin < kSegmentPages;) {
    const std::uint32_t end = next(begin, false);
    if (end - begin >= pages) return begin;
    begin = next(end, true);
  }
  MEMLITH_ASSERT(false && "no run is as long as the longest one");
  return kNoPage;
}

void Segment::mark(std::uint32_t page, std::uint32_t pages, bool is_free) {
  MEMLITH_ASSERT(page <= kSegmentPages && pages <= kSegmentPages - page);
  for (std::uint32_t i = page; i < page + pages; ++i) {
    MEMLITH_DCHECK(this->is_free(i) != is_free);
    const std::uint64_t bit = std::uint64_t{1} << i % 64;
    free_[i / 64] = is_free ? free_[i / 64] | bit : free_[i / 64] & ~bit;
  }
  longest_ = 0;
  for (std::uint32_t begin = next(0, true); begin < kSegmentPages;) {
    const std::uint32_t end = next(begin, false);
    longest_ = std::max(longest_, end - begin);
    begin = next(end, true);
  }
  MEMLITH_ASSERT(longest_ <= kSegmentPages && (!is_free || longest_ >= pages));
}

}  // namespace memlith::core
