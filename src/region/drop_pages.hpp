// The kernel's pages of a range of a region, and what is dropped of them. Floor: region.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/pages.hpp"
#include "region/tracker.hpp"

namespace memlith::core {

// The kernel's pages that lie in the range completely.
inline Range host_pages_in(Range range) {
  const std::uint64_t begin = round_up(range.offset, host_page_bytes());
  return {begin, std::max(round_down(range.offset + range.bytes, host_page_bytes()), begin) - begin};
}

// The kernel's pages that hold a byte of the range.
inline Range host_pages_around(Range range) {
  const std::uint64_t begin = round_down(range.offset, host_page_bytes());
  return {begin, round_up(range.offset + range.bytes, host_page_bytes()) - begin};
}

// Tracker::restore() without marks: drops whole pages if they are at home, and reads the rest.
inline Status restore_or_drop(std::byte* base, Range range, const Tracker::ReadHome& read, bool at_home) {
  const std::uint64_t end = range.offset + range.bytes;
  const Range whole = host_pages_in(range);
  MEMLITH_ASSERT(whole.bytes == 0 || (range.offset <= whole.offset && whole.offset + whole.bytes <= end));
  const bool dropped = at_home && whole.bytes > 0 && drop_pages(base + whole.offset, whole.bytes);
  const auto read_part = [&](std::uint64_t from, std::uint64_t to) {
    return from < to ? read(from, {base + from, to - from}) : kOk;
  };
  if (!dropped) return read_part(range.offset, end);
  MEMLITH_TRY(read_part(range.offset, whole.offset));
  return read_part(whole.offset + whole.bytes, end);
}

}  // namespace memlith::core
