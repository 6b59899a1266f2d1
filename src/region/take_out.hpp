// Taking a part of a region out of what a tracker has collected. Floor: region.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

#include "region/tracker.hpp"

namespace memlith::core {

// Cuts `part` out of the items, whose ranges `get(item)` returns and `set(item, range)` changes. Where an item would
// become two and memory for the second is lacking, the item stays whole: its bytes are persisted once more, and none is
// forgotten.
template <class Item, class Get, class Set>
void take_out(std::vector<Item>& items, Range part, const Get& get, const Set& set) noexcept {
  const std::uint64_t part_end = part.offset + part.bytes;
  const std::size_t count = items.size();
  const auto becomes_two = [&](const Item& item) {
    const Range range = get(item);
    return range.offset < part.offset && range.offset + range.bytes > part_end;
  };
  bool has_room = true;
  try {
    items.reserve(count + static_cast<std::size_t>(std::count_if(items.begin(), items.end(), becomes_two)));
  } catch (const std::bad_alloc&) {
    has_room = false;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Range range = get(items[i]);
    const std::uint64_t end = range.offset + range.bytes;
    if (end <= part.offset || range.offset >= part_end || (becomes_two(items[i]) && !has_room)) continue;
    if (becomes_two(items[i])) {
      items.push_back(items[i]);
      set(items.back(), Range{part_end, end - part_end});
    }
    set(items[i], range.offset < part.offset ? Range{range.offset, part.offset - range.offset}
                                             : Range{part_end, end - std::min(end, part_end)});
  }
  std::erase_if(items, [&](const Item& item) { return get(item).bytes == 0; });
}

}  // namespace memlith::core
