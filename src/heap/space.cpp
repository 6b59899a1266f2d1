// Pages and segments of a heap: finding, taking and giving them, and growing the region. All of it under the structure
// lock.
#include <algorithm>
#include <bit>
#include <cstring>

#include "heap/checks.hpp"
#include "heap/heap.hpp"

namespace memlith::core {

namespace {

constexpr std::uint32_t kLooks = 64;  // so many segments are looked at before the region grows instead
constexpr std::uint64_t kGrowthBytesMax = 64 * kMiB;
constexpr std::uint32_t kPagesWorthHeader = 16;  // fewer are not made usable behind a large block

}  // namespace

// ---- the segment table -----------------------------------------------------------------------------------------

std::uint32_t Heap::segment_count() const {
  MEMLITH_DCHECK(region_.size() % kPageBytes == 0);
  return static_cast<std::uint32_t>((region_.size() + kSegmentBytes - 1) / kSegmentBytes);
}

std::uint32_t Heap::pages_in(std::uint32_t segment) const {
  const std::uint64_t begin = segment * kSegmentBytes;
  if (begin >= region_.size()) return 0;
  return static_cast<std::uint32_t>(std::min(region_.size() - begin, kSegmentBytes) / kPageBytes);
}

bool Heap::entry_fits(std::uint32_t segment) const {
  const SegmentEntry& entry = entry_of(segment);
  if (entry.kind == SegmentKind::unused) return std::bit_cast<std::uint64_t>(entry) == 0;
  return entry.kind <= SegmentKind::table && entry.check == entry_check(segment, entry);
}

void Heap::set_entry(std::uint32_t segment, SegmentKind kind, std::uint32_t header_page, std::uint32_t pages) {
  MEMLITH_ASSERT(std::uint64_t{segment} * kSegmentBytes < region_.reserve());
  MEMLITH_ASSERT(header_page + kSegmentHeaderPages <= kSegmentPages);
  MEMLITH_ASSERT(header_page == 0 || kind == SegmentKind::headed);
  MEMLITH_ASSERT(kind == SegmentKind::huge ? pages >= kSegmentPages : pages == 0);
  SegmentEntry entry{kind, static_cast<std::uint8_t>(header_page), 0, pages};
  if (kind != SegmentKind::unused) entry.check = entry_check(segment, entry);
  table_[segment] = entry;
  wrote(&table_[segment], sizeof entry);
  if (kind == SegmentKind::unused) unused_from_ = std::min(unused_from_, segment);
}

// ---- segments with a header ------------------------------------------------------------------------------------

void Heap::set_page_word(Segment& segment, std::uint32_t page, PageWord word) {
  MEMLITH_ASSERT(page < pages_in(segment.number()));
  MEMLITH_ASSERT(page + (word >> 8u) <= pages_in(segment.number()));
  segment.header().pages[page] = word;
  wrote(&segment.header().pages[page], sizeof word);
}

// Frees the pages of an unused segment, or those of one behind `header_page` pages of a large block.
Segment* Heap::make_headed(std::uint32_t segment, std::uint32_t header_page) {
  MEMLITH_ASSERT(header_page + kSegmentHeaderPages <= pages_in(segment));
  MEMLITH_ASSERT(entry_of(segment).kind == SegmentKind::unused);
  SegmentHeader& header = *header_at(segment, header_page);
  // A block may have lain here. Bytes that are zero already are not stored to, so that a fresh page stays a clean one.
  for (std::uint64_t at = 0; at < sizeof header; at += kPageBytes) {
    auto* const page = reinterpret_cast<std::byte*>(&header) + at;
    if (std::any_of(page, page + kPageBytes, [](std::byte each) { return each != std::byte{0}; })) {
      std::memset(page, 0, kPageBytes);
      wrote(page, kPageBytes);
    }
  }
  header.magic = kSegmentMagic;
  header.number = segment;
  if (header_page > 0) header.pages[0] = page_word(kPageHugeEnd, header_page);
  header.pages[header_page] = page_word(kPageHeader, kSegmentHeaderPages);
  wrote(&header, offsetof(SegmentHeader, unused));
  set_entry(segment, SegmentKind::headed, header_page, 0);
  Segment* const made = remember(segment, header_page);
  const std::uint32_t first = header_page + kSegmentHeaderPages;
  made->give(first, pages_in(segment) - first);
  note_room(*made);
  return made;
}

Segment* Heap::remember(std::uint32_t segment, std::uint32_t header_page) {
  MEMLITH_ASSERT(segment < loaded_count_ && !segments_.contains(segment));
  MEMLITH_ASSERT(entry_of(segment).kind == SegmentKind::headed && entry_of(segment).header_page == header_page);
  auto made = std::make_unique<Segment>(segment, header_at(segment, header_page));
  Segment* const pointer = made.get();
  segments_[segment] = std::move(made);
  loaded_[segment].store(pointer, std::memory_order_release);
  return pointer;
}

void Heap::note_room(const Segment& segment) {
  MEMLITH_ASSERT(segment.longest() <= segment.free_pages());
  MEMLITH_ASSERT(segment.free_pages() + kSegmentHeaderPages <= pages_in(segment.number()));
  for (std::uint32_t log = 0; log < room_.size() && segment.longest() >> log != 0; ++log) {
    room_[log] = std::min(room_[log], segment.number());
  }
}

bool Heap::find_in_loaded(std::uint32_t pages, Place& found) {
  MEMLITH_ASSERT(pages > 0 && pages < kHugePagesMin);
  const auto log = static_cast<std::uint32_t>(std::bit_width(pages) - 1);
  const std::uint32_t count = segment_count();
  for (std::uint32_t number = room_[log]; number < count; ++number) {
    const Segment* const segment = loaded_[number].load(std::memory_order_relaxed);
    const std::uint32_t longest = segment == nullptr ? 0 : segment->longest();
    if (longest >= pages) {
      found = {segments_.at(number).get(), segment->find(pages)};
      MEMLITH_ASSERT(found.segment == segment && found.page + pages <= pages_in(number));
      return true;
    }
    if (room_[log] == number && longest >> log == 0) room_[log] = number + 1;
  }
  return false;
}

Result<Heap::Place> Heap::find_pages(SlabArena& arena, std::uint32_t pages) {
  Place found;
  const auto enough = [&]() MEMLITH_REQUIRES(structure_) { return find_in_loaded(pages, found); };
  if (enough()) return found;
  MEMLITH_TRY(load_next(arena, kLooks, enough));
  while (!enough()) {
    if (use_unused_segment() != nullptr) continue;
    // A segment of its own, with its header; or what the last one lacks to be whole.
    const std::uint64_t size = region_.size();
    const Status grown = grow_to(round_up(size + (pages + kSegmentHeaderPages) * kPageBytes, kPageBytes));
    if (grown.ok()) continue;
    if (grown.category != Errc::no_space) return grown;
    KeptFailure refused;
    refused.keep(grown);
    MEMLITH_TRY(load_next(arena, ~0u, enough));
    if (!enough()) return refused.tell();
  }
  return found;
}

void Heap::give_pages(Segment& segment, std::uint32_t page, std::uint32_t pages) {
  MEMLITH_ASSERT(pages > 0 && page + pages <= pages_in(segment.number()));
  MEMLITH_ASSERT(segment.header().pages[page] == 0);  // the region says so first
  segment.give(page, pages);
  note_room(segment);
  if (!wholly_free(segment)) return;
  // One is kept, so that a block that comes and goes does not make and drop a segment each time.
  const auto spare = segments_.find(spare_segment_);
  if (spare == segments_.end() || &segment == spare->second.get() || !wholly_free(*spare->second)) {
    spare_segment_ = segment.number();
  } else {
    drop_segment(segment);
  }
}

bool Heap::wholly_free(const Segment& segment) const {
  return segment.free_pages() + kSegmentHeaderPages == pages_in(segment.number());
}

void Heap::drop_segment(Segment& segment) {
  const std::uint32_t number = segment.number();
  MEMLITH_ASSERT(wholly_free(segment));
  MEMLITH_ASSERT(loaded_[number].load(std::memory_order_relaxed) == &segment);
  loaded_[number].store(nullptr, std::memory_order_release);
  segments_.erase(number);
  set_entry(number, SegmentKind::unused, 0, 0);
}

// Every segment that has a header and nothing in it.
Status Heap::drop_free_segments() {
  MEMLITH_TRY(load_next(arena_of_thread(), ~0u, [] { return false; }));
  for (std::uint32_t number = 0; number < segment_count(); ++number) {
    Segment* const segment = loaded_[number].load(std::memory_order_relaxed);
    if (segment != nullptr && wholly_free(*segment)) drop_segment(*segment);
  }
  return kOk;
}

Segment* Heap::use_unused_segment() {
  for (const std::uint32_t count = segment_count(); unused_from_ < count; ++unused_from_) {
    if (entry_of(unused_from_).kind != SegmentKind::unused) continue;
    if (pages_in(unused_from_) <= kSegmentHeaderPages) return nullptr;  // until the region grows
    return make_headed(unused_from_, 0);
  }
  return nullptr;
}

// ---- growing ---------------------------------------------------------------------------------------------------

Status Heap::full(std::uint64_t bytes) const {
  return fail(Errc::no_space, Detail::heap,
              "{}: no room for {} bytes: it has {} and may grow to {}; free something, or open the heap again with a "
              "larger max_size",
              place(), bytes, region_.size(), header_->reserve_bytes);
}

// At least to so many bytes, and by an eighth where the limit and the disk let it.
Status Heap::grow_to(std::uint64_t least) {
  const std::uint64_t size = region_.size();
  if (least > header_->reserve_bytes) {
    // The last segment may be short of less than a segment of its own.
    if (size % kSegmentBytes == 0 || size >= header_->reserve_bytes) return full(least - size);
    least = header_->reserve_bytes;
  }
  const std::uint64_t wanted = std::max(least, size + std::clamp(size / 8, kSegmentBytes, kGrowthBytesMax));
  MEMLITH_ASSERT(least > size && least <= header_->reserve_bytes);
  const std::uint32_t last = segment_count() - 1;
  const std::uint32_t before = pages_in(last);
  Status grown = region_.grow(std::min(round_up(wanted, kSegmentBytes), header_->reserve_bytes));
  if (grown.category == Errc::no_space) grown = region_.grow(least);
  MEMLITH_TRY(grown);
  MEMLITH_ASSERT(region_.size() >= least && region_.size() > size);
  if (Segment* const segment = loaded_[last].load(std::memory_order_relaxed);
      segment != nullptr && pages_in(last) > before) {
    segment->give(before, pages_in(last) - before);
    note_room(*segment);
  }
  return kOk;
}

// ---- blocks of whole segments ----------------------------------------------------------------------------------

// The first of `whole` unused segments with an unused one behind them that has room for `tail_pages` and a header. ~0:
// none.
std::uint32_t Heap::find_unused(std::uint32_t whole, std::uint32_t tail_pages) const {
  MEMLITH_ASSERT(whole > 0 && tail_pages + kSegmentHeaderPages <= kSegmentPages);
  const std::uint32_t count = segment_count();
  std::uint32_t run = 0;
  for (std::uint32_t number = unused_from_; number < count; ++number) {
    const bool unused = entry_of(number).kind == SegmentKind::unused;
    if (unused && run >= whole && pages_in(number) >= tail_pages + kSegmentHeaderPages) return number - whole;
    run = unused && pages_in(number) == kSegmentPages ? run + 1 : 0;
    if (tail_pages == 0 && run == whole) return number + 1 - whole;
  }
  return ~0u;
}

Result<std::byte*> Heap::allocate_huge(std::uint32_t pages) {
  std::uint32_t whole = pages / kSegmentPages;
  std::uint32_t tail = pages % kSegmentPages;
  if (whole == 0 || tail + kSegmentHeaderPages + kPagesWorthHeader > kSegmentPages) {
    ++whole;
    tail = 0;
  }
  std::uint32_t first = find_unused(whole, tail);
  if (first == ~0u) {
    std::uint32_t end = segment_count();
    while (end > 0 && entry_of(end - 1).kind == SegmentKind::unused) --end;
    const std::uint64_t tail_bytes = tail == 0 ? 0 : (tail + kSegmentHeaderPages) * kPageBytes;
    const std::uint64_t size = (std::uint64_t{end} + whole) * kSegmentBytes + tail_bytes;
    const Status grown = size > header_->reserve_bytes ? full(pages * kPageBytes) : grow_to(size);
    if (!grown.ok() && grown.category != Errc::no_space) return grown;
    KeptFailure refused;
    refused.keep(grown);
    if (!grown.ok()) MEMLITH_TRY(drop_free_segments());
    first = find_unused(whole, tail);
    if (first == ~0u) return refused.tell();
  }
  MEMLITH_ASSERT(whole > 0 && first + whole + (tail > 0 ? 1 : 0) <= segment_count());
  set_entry(first, SegmentKind::huge, 0, whole * kSegmentPages + tail);
  for (std::uint32_t i = 1; i < whole; ++i) {
    MEMLITH_ASSERT(entry_of(first + i).kind == SegmentKind::unused);
    set_entry(first + i, SegmentKind::huge_rest, 0, 0);
  }
  if (tail > 0) make_headed(first + whole, tail);
  return base_ + first * kSegmentBytes;
}

Status Heap::free_huge(std::uint32_t segment) {
  const std::uint32_t pages = entry_of(segment).pages;
  const std::uint32_t whole = pages / kSegmentPages;
  MEMLITH_ASSERT(entry_of(segment).kind == SegmentKind::huge && whole > 0);
  MEMLITH_ASSERT((std::uint64_t{segment} + whole) * kSegmentBytes <= region_.size());
  if (const std::uint32_t tail = pages % kSegmentPages; tail > 0) {
    Segment* last = loaded_[segment + whole].load(std::memory_order_relaxed);
    if (last == nullptr) {
      MEMLITH_TRY_ASSIGN(last, load(segment + whole, arena_of_thread()));
    }
    set_page_word(*last, 0, 0);
    give_pages(*last, 0, tail);
  }
  for (std::uint32_t i = 0; i < whole; ++i) set_entry(segment + i, SegmentKind::unused, 0, 0);
  return kOk;
}

// As a part of rolled_back(), between hold() and let_go(): with the locks of all arenas, which the analysis cannot see.
void Heap::forget_all() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  for (auto& arena : arenas_) {
    arena.first.fill(nullptr);
    arena.last.fill(nullptr);
  }
  for (const auto& [number, segment] : segments_) loaded_[number].store(nullptr);
  segments_.clear();
  slabs_.clear();
  spare_slabs_.clear();
  spare_segment_ = ~0u;
  next_unloaded_ = 0;
  room_.fill(0);
  unused_from_ = 0;
  names_loaded_ = false;
  names_.clear();
}

}  // namespace memlith::core
