#include "store/vacant.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/units.hpp"

namespace memlith::core {

void Vacant::take_out(Parts& parts, std::uint64_t begin, std::uint64_t end) {
  MEMLITH_ASSERT(begin < end);
  auto at = parts.upper_bound(begin);
  if (at != parts.begin()) --at;
  while (at != parts.end() && at->first < end) {
    const auto [part_begin, part_end] = *at;
    if (part_end <= begin) {
      ++at;
      continue;
    }
    at = parts.erase(at);
    if (part_begin < begin) parts.emplace(part_begin, begin);
    if (part_end > end) at = std::next(parts.emplace(end, part_end).first);
  }
  MEMLITH_DCHECK(are_apart(parts));
}

bool Vacant::are_apart(const Parts& parts) {
  std::uint64_t before = 0;
  for (const auto& [begin, end] : parts) {
    if (begin < before || begin >= end) return false;
    before = end;
  }
  return true;
}

void Vacant::add(const Extent& pages) {
  MEMLITH_ASSERT(pages.bytes > 0 && pages.offset % kPageBytes == 0 && pages.bytes % kPageBytes == 0);
  const LockGuard lock(mutex_);
  Parts& parts = objects_[pages.object];
  take_out(parts, pages.offset, pages.offset + pages.bytes);
  parts.emplace(pages.offset, pages.offset + pages.bytes);
  any_.store(true, std::memory_order_release);
}

Status Vacant::fill_some(std::span<const Extent> extents, Homes& homes) {
  const LockGuard lock(mutex_);
  for (const Extent& extent : extents) {
    const auto found = objects_.find(extent.object);
    if (found == objects_.end() || extent.bytes == 0) continue;
    Parts& parts = found->second;
    const std::uint64_t begin = round_down(extent.offset, kPageBytes);
    const std::uint64_t end = round_up(extent.offset + extent.bytes, kPageBytes);
    auto at = parts.upper_bound(begin);
    if (at != parts.begin()) --at;
    std::uint64_t first = end;
    std::uint64_t last = begin;
    for (; at != parts.end() && at->first < end; ++at) {
      if (at->second <= begin) continue;
      first = std::min(first, std::max(at->first, begin));
      last = std::max(last, std::min(at->second, end));
    }
    if (first >= last) continue;
    MEMLITH_TRY_ASSIGN(Device* const device, homes.get(extent.object));
    MEMLITH_TRY(device->undiscard(first, last - first));
    take_out(parts, first, last);
  }
  return kOk;
}

Status Vacant::discard(ObjectId object, Device& device, std::uint64_t offset, std::uint64_t bytes,
                       const Overwrite& overwrite) {
  MEMLITH_ASSERT(bytes > 0 && offset % kPageBytes == 0 && bytes % kPageBytes == 0);
  const std::uint64_t end = offset + bytes;
  std::vector<Extent> occupied;
  const auto occupy = [&](std::uint64_t until) {
    if (offset < until) occupied.push_back({object, offset, until - offset});
    offset = std::max(offset, until);
  };
  {
    const LockGuard lock(mutex_);
    const Parts& parts = objects_[object];
    auto at = parts.upper_bound(offset);
    if (at != parts.begin()) --at;
    for (; at != parts.end() && at->first < end; ++at) {
      if (at->second <= offset) continue;
      occupy(at->first);
      const std::uint64_t until = std::min(at->second, end);
      MEMLITH_TRY(device.discard(offset, until - offset));
      offset = until;
    }
  }
  occupy(end);
  for (const Extent& pages : occupied) MEMLITH_TRY(overwrite(pages.offset, pages.bytes));
  return kOk;
}

}  // namespace memlith::core
