// Blocks of whole pages in a heap for thread scope. Floor: heap.
//
// The region learns of a block with the capture of the thread that allocated it, and of the block's end with that of
// the thread that freed it. In between, the pages are taken in memory only. A block that is freed before the region
// knew of it is handed back to the thread that allocated it: its next capture has neither.
#include "heap/segments.hpp"

namespace memlith::core {

// A large block has whole segments: a segment header behind it would be in the region before the block is.
Result<std::byte*> Segments::allocate_for_thread(SlabArena& arena, std::uint32_t pages) {
  std::uint64_t offset = 0;
  if (pages >= kHugePagesMin) {
    const std::uint32_t whole = (pages + kSegmentPages - 1) / kSegmentPages;
    pages = whole * kSegmentPages;
    MEMLITH_TRY_ASSIGN(const std::uint32_t first, find_whole(arena, pages, whole, 0));
    for (std::uint32_t i = 0; i < whole; ++i) table_.reserve(first + i);
    offset = first * kSegmentBytes;
  } else {
    MEMLITH_TRY_ASSIGN(const SegmentPage found, find_pages(arena, pages));
    found.segment->take(found.page, pages);
    offset = found.segment->number() * kSegmentBytes + found.page * kPageBytes;
  }
  memory_.give_pages({offset, pages * kPageBytes});
  placed_[offset] = {pages, &arena};
  arena.placed.push_back(offset);
  return memory_.base() + offset;
}

Status Segments::free_for_thread(SlabArena& arena, std::uint64_t offset, std::uint64_t bytes) {
  const auto pages = static_cast<std::uint32_t>(bytes / kPageBytes);
  const std::uint32_t behind = segment_of(offset) + pages / kSegmentPages;
  if (pages > kSegmentPages && pages % kSegmentPages > 0 && loaded(behind) == nullptr) {
    MEMLITH_TRY(load(behind, arena).status());
  }
  const auto placed = placed_.find(offset);
  removed_.emplace(offset, pages);
  (placed == placed_.end() ? arena : *placed->second.arena).removed.push_back(offset);
  return kOk;
}

void Segments::place(std::uint64_t offset) {
  const std::uint32_t pages = placed_.at(offset).pages;
  const std::uint32_t number = segment_of(offset);
  if (pages < kSegmentPages)
    return set_page_word(*loaded(number), page_in_segment(offset), page_word(kPageExtent, pages));
  table_.set(number, SegmentKind::huge, 0, pages);
  for (std::uint32_t i = 1; i < pages / kSegmentPages; ++i) table_.set(number + i, SegmentKind::huge_rest);
}

void Segments::remove(std::uint64_t offset) {
  const std::uint32_t pages = removed_.at(offset);
  const std::uint32_t number = segment_of(offset);
  if (pages < kSegmentPages) return set_page_word(*loaded(number), page_in_segment(offset), 0);
  const std::uint32_t whole = pages / kSegmentPages;
  if (pages % kSegmentPages > 0) set_page_word(*loaded(number + whole), 0, 0);
  for (std::uint32_t i = 0; i < whole; ++i) table_.set(number + i, SegmentKind::unused);
}

void Segments::was_placed(std::uint64_t offset) {
  const auto placed = placed_.find(offset);
  const std::uint32_t pages = placed->second.pages;
  for (std::uint32_t i = 0; i < pages / kSegmentPages; ++i) table_.end_reserve(segment_of(offset) + i);
  placed_.erase(placed);
}

void Segments::was_removed(std::uint64_t offset) {
  const std::uint32_t pages = removed_.at(offset);
  removed_.erase(offset);
  const std::uint32_t number = segment_of(offset);
  if (pages < kSegmentPages) return give_pages(*loaded(number), page_in_segment(offset), pages);
  if (const std::uint32_t tail = pages % kSegmentPages; tail > 0) {
    give_pages(*loaded(number + pages / kSegmentPages), 0, tail);
  }
}

}  // namespace memlith::core
