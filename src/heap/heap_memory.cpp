#include "heap/heap_memory.hpp"

#include <algorithm>

namespace memlith::core {

namespace {

bool needs_touches(const Tracker* tracker) {
  return tracker != nullptr &&
         (tracker->kind() == TrackerKind::touched || tracker->kind() == TrackerKind::instrumented);
}

}  // namespace

void SharedStores::hand_over(Range pages) {
  const LockGuard lock(mutex_);
  const auto apart = std::partition(ranges_.begin(), ranges_.end(), [pages](const Range& range) {
    return range.offset + range.bytes <= pages.offset || pages.offset + pages.bytes <= range.offset;
  });
  handed_.insert(handed_.end(), apart, ranges_.end());
  ranges_.erase(apart, ranges_.end());
}

void SharedStores::add_to(std::vector<Range>& ranges, bool handed) {
  const LockGuard lock(mutex_);
  ranges.insert(ranges.end(), ranges_.begin(), ranges_.end());
  if (handed) ranges.insert(ranges.end(), handed_.begin(), handed_.end());
}

HeapMemory::HeapMemory(Region& region, SharedStores* shared)
    : region_(&region),
      base_(region.address()),
      header_(reinterpret_cast<HeapHeader*>(region.address() + kHeapHeaderOffset)),
      touches_(needs_touches(region.tracker())),
      shared_(shared) {}

std::uint32_t HeapMemory::segment_count() const {
  MEMLITH_DCHECK(region_->size() % kPageBytes == 0);
  return static_cast<std::uint32_t>((region_->size() + kSegmentBytes - 1) / kSegmentBytes);
}

std::uint32_t HeapMemory::pages_in(std::uint32_t segment) const {
  const std::uint64_t begin = segment * kSegmentBytes;
  if (begin >= region_->size()) return 0;
  return static_cast<std::uint32_t>(std::min(region_->size() - begin, kSegmentBytes) / kPageBytes);
}

Status HeapMemory::check_writable() const {
  if (region_->tracker() != nullptr) return kOk;
  return fail(Errc::read_only, Detail::heap, "{}: the store was opened read-only", shown());
}

Status HeapMemory::corrupt(std::uint64_t offset, std::string_view what) const {
  return fail(Errc::corrupt, Detail::heap, "{}: damaged at offset {}: {}; {}", shown(), offset, what,
              region_->after_damage(offset));
}

Status HeapMemory::no_block(std::uint64_t offset, std::string_view why) const {
  return fail(Errc::invalid, Detail::heap, "{}: no block in use begins at {:#x}: {}", shown(),
              reinterpret_cast<std::uintptr_t>(base_) + offset, why);
}

Status HeapMemory::full(std::uint64_t bytes) const {
  return fail(Errc::no_space, Detail::heap,
              "{}: no room for {} bytes: it has {} and may grow to {}; free something{}, or open the heap again with a "
              "larger max_size",
              shown(), bytes, region_->size(), header_->reserve_bytes, by_thread() ? " and persist" : "");
}

}  // namespace memlith::core
