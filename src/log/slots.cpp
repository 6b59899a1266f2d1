#include "log/slots.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"

namespace memlith::core {

void Slots::take_over(const SlotMap& found, std::uint64_t count) {
  map_ = found;
  count_ = count;
}

// Segments that are mapped beyond `end` are stale.
std::optional<std::uint64_t> Slots::use(std::uint64_t first, std::uint64_t end, std::span<const SlotHeader> headers) {
  SlotMap live;
  live.reset(first, static_cast<std::uint32_t>(count_));
  std::vector<bool> taken(count_, false);
  for (std::uint64_t segment = first; segment < end; ++segment) {
    const std::uint32_t slot = map_.at(segment);
    if (slot == SlotMap::kNone) return segment;
    live.append(slot);
    taken[slot] = true;
  }
  map_ = std::move(live);
  free_.reserve(count_);
  for (auto slot = static_cast<std::uint32_t>(count_); slot-- > 0;) {
    if (!taken[slot]) free_.push_back(slot);
  }
  // The order in which they were released; blank ones are taken before.
  const auto last_segment = [&headers](std::uint32_t slot) {
    const bool known = slot < headers.size() && headers[slot].magic == kSlotMagic;
    return known ? headers[slot].segment : 0;
  };
  std::sort(free_.begin(), free_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(last_segment(a), a) > std::pair(last_segment(b), b);
  });
  return std::nullopt;
}

std::uint64_t Slots::needed(std::uint64_t end) const { return end - std::min(end, map_.end()); }

std::uint64_t Slots::free_at_best(std::uint64_t head_segment) const {
  return count_ - (map_.end() - std::min(map_.end(), head_segment));
}

void Slots::map_until(std::uint64_t end) {
  MEMLITH_ASSERT(has_room(end));
  for (std::uint64_t i = needed(end); i > 0; --i) {
    map_.append(free_.back());
    free_.pop_back();
  }
}

// The slot that was released first is at the end, and is taken first: processes that read the log beside this one lose
// what they have not read yet as late as possible.
void Slots::release_before(std::uint64_t segment) {
  const std::uint64_t end = std::min(segment, map_.end());
  const std::uint64_t count = end - std::min(end, map_.first());
  MEMLITH_ASSERT(free_.size() + count <= free_.capacity());
  free_.insert(free_.begin(), count, 0);
  for (std::uint64_t i = count; i-- > 0;) free_[i] = map_.drop_first();
  // The tail may be the very start of a segment that has no frame yet.
  if (map_.first() == map_.end() && map_.first() < segment) map_.restart(segment);
}

void Slots::reserve(std::uint64_t count) {
  map_.grow(static_cast<std::uint32_t>(count));
  free_.reserve(count);
}

void Slots::add(std::uint64_t more) {
  MEMLITH_ASSERT(free_.size() + more <= free_.capacity());
  for (std::uint64_t slot = count_; slot < count_ + more; ++slot) free_.push_back(static_cast<std::uint32_t>(slot));
  count_ += more;
}

void Slots::assert_state(std::uint64_t first, std::uint64_t end) const {
  MEMLITH_ASSERT(map_.count() + free_.size() == count_);
  MEMLITH_ASSERT(map_.first() == first);
  MEMLITH_ASSERT(end <= map_.end());
}

}  // namespace memlith::core
