#include "heap/segments.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/bytes.hpp"

namespace memlith::core {

namespace {

constexpr std::uint32_t kLooks = 64;  // segments that are looked at before the region grows instead
constexpr std::uint64_t kGrowthBytesMax = 64 * kMiB;
constexpr std::uint32_t kPagesWorthHeader = 16;  // fewer are not made usable behind a large block

std::uint32_t reciprocal_of(std::uint32_t bytes) {
  return static_cast<std::uint32_t>(((std::uint64_t{1} << 32) + bytes - 1) / bytes);
}

// Block numbers are found by multiplying instead of dividing: exact for each block of each slab, and for what lies
// between.
constexpr bool reciprocals_are_exact() {
  for (const SizeClass& each : kSizeClasses) {
    const std::uint64_t reciprocal = ((std::uint64_t{1} << 32) + each.bytes - 1) / each.bytes;
    for (std::uint32_t block = 0; block < each.blocks; ++block) {
      const std::uint64_t begin = std::uint64_t{block} * each.bytes;
      if (begin * reciprocal >> 32 != block || (begin + each.bytes - 1) * reciprocal >> 32 != block) return false;
    }
  }
  return true;
}
static_assert(reciprocals_are_exact());

}  // namespace

Segments::Segments(const HeapMemory& memory) : memory_(memory), table_(memory) {}

// ---- opening, and another state of the region ------------------------------------------------------------------

void Segments::follow_header() {
  table_.find();
  const std::uint64_t count = memory_.header().segments_max;
  MEMLITH_ASSERT(memory_.segment_count() <= count);
  if (count <= loaded_count_) return;
  MEMLITH_ASSERT(segments_.empty());
  loaded_ = std::make_unique<Atomic<Segment*>[]>(count);
  loaded_count_ = count;
}

void Segments::forget() {
  for (const auto& [number, segment] : segments_) loaded_[number].store(nullptr);
  segments_.clear();
  slabs_.clear();
  spare_slabs_.clear();
  placed_.clear();
  removed_.clear();
  spare_segment_ = ~0u;
  next_unloaded_ = 0;
  room_.fill(0);
  table_.forget();
}

// ---- loading ---------------------------------------------------------------------------------------------------

Segment* Segments::remember(std::uint32_t segment, std::uint32_t header_page) {
  MEMLITH_ASSERT(segment < loaded_count_ && !segments_.contains(segment));
  MEMLITH_ASSERT(table_[segment].kind == SegmentKind::headed && table_[segment].header_page == header_page);
  auto made = std::make_unique<Segment>(segment, memory_.header_at(segment, header_page));
  Segment* const pointer = made.get();
  segments_[segment] = std::move(made);
  loaded_[segment].store(pointer, std::memory_order_release);
  return pointer;
}

Result<Segment*> Segments::load(std::uint32_t segment, SlabArena& arena) {
  std::vector<PageRun> runs;
  MEMLITH_TRY(list_runs(memory_, table_, segment, runs));
  Segment* const loaded = remember(segment, table_[segment].header_page);
  for (std::size_t i = 0; i < runs.size();) {
    const PageRun& run = runs[i++];
    if (run.is_slab()) load_slab(*loaded, run.page, run.kind - kPageSlab, commons_ == nullptr ? arena : *commons_);
    if (run.kind != kPageNone) continue;
    std::uint32_t pages = 1;
    for (; i < runs.size() && runs[i].kind == kPageNone; ++i) ++pages;
    loaded->give(run.page, pages);
  }
  MEMLITH_ASSERT(loaded->free_pages() + kSegmentHeaderPages <= memory_.pages_in(segment));
  note_room(*loaded);
  return loaded;
}

Status Segments::load_next(SlabArena& arena, std::uint32_t most, const Enough& enough) {
  for (const std::uint32_t count = memory_.segment_count(); next_unloaded_ < count && most > 0; ++next_unloaded_) {
    if (table_[next_unloaded_].kind != SegmentKind::headed || loaded(next_unloaded_) != nullptr) continue;
    MEMLITH_TRY(load(next_unloaded_, arena).status());
    --most;
    if (enough()) return kOk;
  }
  return kOk;
}

void Segments::note_room(const Segment& segment) {
  MEMLITH_ASSERT(segment.longest() <= segment.free_pages());
  MEMLITH_ASSERT(segment.free_pages() + kSegmentHeaderPages <= memory_.pages_in(segment.number()));
  for (std::uint32_t log = 0; log < room_.size() && segment.longest() >> log != 0; ++log) {
    room_[log] = std::min(room_[log], segment.number());
  }
}

// ---- slabs -----------------------------------------------------------------------------------------------------

Result<Slab*> Segments::slab_at(std::uint64_t offset, SlabArena& arena) {
  const std::uint32_t number = segment_of(offset);
  MEMLITH_ASSERT(number < memory_.segment_count());
  if (table_[number].kind != SegmentKind::headed) return static_cast<Slab*>(nullptr);
  Segment* segment = loaded(number);
  if (segment == nullptr) {
    MEMLITH_TRY_ASSIGN(segment, load(number, arena));
  }
  return segment->slab_of(page_in_segment(offset));
}

void Segments::load_slab(Segment& segment, std::uint32_t page, std::uint32_t size_class, SlabArena& owner) {
  if (spare_slabs_.empty()) {
    slabs_.push_back(std::make_unique<Slab>());
    spare_slabs_.push_back(slabs_.back().get());
  }
  Slab* const slab = spare_slabs_.back();
  spare_slabs_.pop_back();
  MEMLITH_ASSERT(size_class < kClasses && !slab->listed);
  const SizeClass& kind = kSizeClasses[size_class];
  MEMLITH_ASSERT(segment.header().pages[page] == page_word(kPageSlab + size_class, kind.pages));
  MEMLITH_ASSERT(page + kind.pages <= memory_.pages_in(segment.number()));
  slab->base = memory_.page_at(segment.number(), page);
  slab->stored = slab->bits = segment.header().blocks[page];
  slab->block_bytes = kind.bytes;
  slab->reciprocal = reciprocal_of(kind.bytes);
  slab->blocks = kind.blocks;
  slab->size_class = size_class;
  slab->segment = segment.number();
  slab->first_page = page;
  slab->used = 0;
  slab->first_word = 0;
  for (std::uint32_t word = 0; word <= (kind.blocks - 1) / 64; ++word) {
    slab->used += static_cast<std::uint32_t>(std::popcount(slab->bits[word]));
  }
  MEMLITH_ASSERT(slab->used <= slab->blocks);
  if (memory_.by_thread()) {
    slab->copy.assign(std::size_t{2} * slab->words(), 0);
    std::copy_n(slab->stored, slab->words(), slab->copy.begin());
    slab->bits = slab->copy.data();
  }
  const LockGuard lock(owner.mutex);
  slab->owner.store(&owner, std::memory_order_release);
  slab->listed = false;
  if (!slab->full()) owner.list(slab);
  segment.set_slab(page, kind.pages, slab);
}

void Segments::make_slab(const SegmentPage& at, std::uint32_t size_class, SlabArena& owner) {
  const std::uint32_t pages = kSizeClasses[size_class].pages;
  at.segment->take(at.page, pages);
  if (memory_.by_thread()) {
    memory_.give_pages({at.segment->number() * kSegmentBytes + at.page * kPageBytes, pages * kPageBytes});
  }
  set_page_word(*at.segment, at.page, page_word(kPageSlab + size_class, pages));
  load_slab(*at.segment, at.page, size_class, owner);
}

void Segments::move_slabs(SlabArena& from, SlabArena& to) {
  const LockGuard lock_of_target(to.mutex);
  const LockGuard lock(from.mutex);
  for (const auto& slab : slabs_) {
    if (slab->owner.load(std::memory_order_relaxed) != &from) continue;
    if (slab->listed) from.unlist(slab.get());
    slab->owner.store(&to, std::memory_order_release);
    if (!slab->full()) to.list(slab.get());
  }
}

void Segments::retire(Slab& slab) {
  MEMLITH_ASSERT(!slab.listed && slab.owner.load(std::memory_order_relaxed) == nullptr);
  Segment& segment = *segments_.at(slab.segment);
  const std::uint32_t pages = kSizeClasses[slab.size_class].pages;
  MEMLITH_ASSERT(slab.used == 0 && segment.slab_of(slab.first_page) == &slab);
  segment.set_slab(slab.first_page, pages, nullptr);
  set_page_word(segment, slab.first_page, 0);
  slab.blocks = 0;
  spare_slabs_.push_back(&slab);
  give_pages(segment, slab.first_page, pages);
}

// ---- pages -----------------------------------------------------------------------------------------------------

void Segments::set_page_word(Segment& segment, std::uint32_t page, PageWord word) {
  MEMLITH_ASSERT(page < memory_.pages_in(segment.number()));
  MEMLITH_ASSERT(page + (word >> 8u) <= memory_.pages_in(segment.number()));
  memory_.put(segment.header().pages[page], word);
}

bool Segments::find_in_loaded(std::uint32_t pages, SegmentPage& found) {
  MEMLITH_ASSERT(pages > 0 && pages < kHugePagesMin);
  const auto log = static_cast<std::uint32_t>(std::bit_width(pages) - 1);
  const std::uint32_t count = memory_.segment_count();
  for (std::uint32_t number = room_[log]; number < count; ++number) {
    Segment* const segment = loaded(number);
    const std::uint32_t longest = segment == nullptr ? 0 : segment->longest();
    if (longest >= pages) {
      found = {segment, segment->find(pages)};
      MEMLITH_ASSERT(found.page + pages <= memory_.pages_in(number));
      return true;
    }
    if (room_[log] == number && longest >> log == 0) room_[log] = number + 1;
  }
  return false;
}

Result<Segments::SegmentPage> Segments::find_pages(SlabArena& arena, std::uint32_t pages) {
  SegmentPage found;
  const auto enough = [&]() MEMLITH_REQUIRES(structure) { return find_in_loaded(pages, found); };
  if (enough()) return found;
  MEMLITH_TRY(load_next(arena, kLooks, enough));
  while (!enough()) {
    if (use_unused_segment() != nullptr) continue;
    // Grow by a new segment with its header, or by the pages that the last segment lacks.
    const std::uint64_t size = memory_.region().size();
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

Result<std::byte*> Segments::allocate(SlabArena& arena, std::uint32_t pages) {
  if (memory_.by_thread()) return allocate_for_thread(arena, pages);
  if (pages >= kHugePagesMin) return allocate_huge(arena, pages);
  MEMLITH_TRY_ASSIGN(const SegmentPage found, find_pages(arena, pages));
  MEMLITH_ASSERT(found.page + pages <= memory_.pages_in(found.segment->number()));
  found.segment->take(found.page, pages);
  set_page_word(*found.segment, found.page, page_word(kPageExtent, pages));
  return memory_.page_at(found.segment->number(), found.page);
}

Result<std::uint64_t> Segments::block_bytes(std::uint64_t offset) {
  const std::uint32_t number = segment_of(offset);
  const SegmentEntry& entry = table_[number];
  if (removed_.contains(offset)) return memory_.no_block(offset, "it was freed before");
  if (const auto placed = placed_.find(offset); placed != placed_.end()) return placed->second.pages * kPageBytes;
  if (entry.kind == SegmentKind::huge && offset % kSegmentBytes == 0) return entry.pages * kPageBytes;
  if (entry.kind == SegmentKind::headed && offset % kPageBytes == 0) {
    const PageWord word = loaded(number)->header().pages[page_in_segment(offset)];
    if ((word & 0xff) == kPageExtent) return (word >> 8) * kPageBytes;
  }
  return memory_.no_block(offset, "the heap has no block there");
}

Status Segments::free(SlabArena& arena, std::uint64_t offset) {
  MEMLITH_TRY_ASSIGN(const std::uint64_t bytes, block_bytes(offset));
  if (memory_.by_thread()) return free_for_thread(arena, offset, bytes);
  const std::uint32_t number = segment_of(offset);
  const std::uint32_t page = page_in_segment(offset);
  if (table_[number].kind == SegmentKind::huge) return free_huge(arena, number);
  Segment& segment = *segments_.at(number);
  const std::uint32_t pages = segment.header().pages[page] >> 8;
  if (pages == 0 || pages > memory_.pages_in(number) - page) {
    return memory_.corrupt(offset,
                           fmt::format("page {} of segment {} says that {} pages begin there", page, number, pages));
  }
  set_page_word(segment, page, 0);
  give_pages(segment, page, pages);
  return kOk;
}

void Segments::give_pages(Segment& segment, std::uint32_t page, std::uint32_t pages) {
  MEMLITH_ASSERT(pages > 0 && page + pages <= memory_.pages_in(segment.number()));
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

// ---- whole segments --------------------------------------------------------------------------------------------

// Frees the pages of an unused segment, or those of one behind `header_page` pages of a large block.
Segment* Segments::make_headed(std::uint32_t segment, std::uint32_t header_page) {
  MEMLITH_ASSERT(header_page + kSegmentHeaderPages <= memory_.pages_in(segment));
  MEMLITH_ASSERT(table_[segment].kind == SegmentKind::unused);
  SegmentHeader& header = *memory_.header_at(segment, header_page);
  // A block may have lain here. Bytes that are zero already are not stored to, so that a fresh page stays a clean one.
  for (std::uint64_t at = 0; at < sizeof header; at += kPageBytes) {
    auto* const page = reinterpret_cast<std::byte*>(&header) + at;
    if (is_zero({page, kPageBytes})) continue;
    std::memset(page, 0, kPageBytes);
    memory_.wrote(page, kPageBytes);
  }
  header.magic = kSegmentMagic;
  header.number = segment;
  if (header_page > 0) header.pages[0] = page_word(kPageHugeEnd, header_page);
  header.pages[header_page] = page_word(kPageHeader, kSegmentHeaderPages);
  memory_.wrote(&header, offsetof(SegmentHeader, unused));
  table_.set(segment, SegmentKind::headed, header_page);
  Segment* const made = remember(segment, header_page);
  const std::uint32_t first = header_page + kSegmentHeaderPages;
  made->give(first, memory_.pages_in(segment) - first);
  note_room(*made);
  return made;
}

Segment* Segments::use_unused_segment() {
  const std::uint32_t number = table_.first_unused();
  // One that is too short becomes longer when the region grows.
  return memory_.pages_in(number) <= kSegmentHeaderPages ? nullptr : make_headed(number, 0);
}

bool Segments::wholly_free(const Segment& segment) const {
  return segment.free_pages() + kSegmentHeaderPages == memory_.pages_in(segment.number());
}

void Segments::drop_segment(Segment& segment) {
  const std::uint32_t number = segment.number();
  MEMLITH_ASSERT(wholly_free(segment));
  MEMLITH_ASSERT(loaded(number) == &segment);
  loaded_[number].store(nullptr, std::memory_order_release);
  segments_.erase(number);
  table_.set(number, SegmentKind::unused);
}

// Every segment that has a header and nothing in it.
Status Segments::drop_free_segments(SlabArena& arena) {
  MEMLITH_TRY(load_next(arena, ~0u, [] { return false; }));
  for (std::uint32_t number = 0; number < memory_.segment_count(); ++number) {
    Segment* const segment = loaded(number);
    if (segment != nullptr && wholly_free(*segment)) drop_segment(*segment);
  }
  return kOk;
}

// Grows at least to that size, and by an eighth where the limit and the disk let it.
Status Segments::grow_to(std::uint64_t least) {
  Region& region = memory_.region();
  const std::uint64_t size = region.size();
  const std::uint64_t limit = memory_.header().reserve_bytes;
  if (least > limit) {
    // The last segment may be short of less than a segment of its own.
    if (size % kSegmentBytes == 0 || size >= limit) return memory_.full(least - size);
    least = limit;
  }
  const std::uint64_t wanted = std::max(least, size + std::clamp(size / 8, kSegmentBytes, kGrowthBytesMax));
  MEMLITH_ASSERT(least > size && least <= limit);
  const std::uint32_t last = memory_.segment_count() - 1;
  const std::uint32_t before = memory_.pages_in(last);
  Status grown = region.grow(std::min(round_up(wanted, kSegmentBytes), limit));
  if (grown.category == Errc::no_space) grown = region.grow(least);
  MEMLITH_TRY(grown);
  MEMLITH_ASSERT(region.size() >= least && region.size() > size);
  if (Segment* const segment = loaded(last); segment != nullptr && memory_.pages_in(last) > before) {
    segment->give(before, memory_.pages_in(last) - before);
    note_room(*segment);
  }
  return kOk;
}

// ---- blocks of whole segments ----------------------------------------------------------------------------------

// The first of `whole` unused segments for a block of `pages`, with room for the `tail` of it behind them.
Result<std::uint32_t> Segments::find_whole(SlabArena& arena, std::uint32_t pages, std::uint32_t whole,
                                           std::uint32_t tail) {
  if (const std::uint32_t first = table_.find_unused(whole, tail); first != SegmentTable::kNone) return first;
  std::uint32_t end = memory_.segment_count();
  while (end > 0 && table_.is_unused(end - 1)) --end;
  const std::uint64_t tail_bytes = tail == 0 ? 0 : (tail + kSegmentHeaderPages) * kPageBytes;
  const std::uint64_t size = (std::uint64_t{end} + whole) * kSegmentBytes + tail_bytes;
  const Status grown = size > memory_.header().reserve_bytes ? memory_.full(pages * kPageBytes) : grow_to(size);
  if (!grown.ok() && grown.category != Errc::no_space) return grown;
  KeptFailure refused;
  refused.keep(grown);
  if (!grown.ok()) MEMLITH_TRY(drop_free_segments(arena));
  const std::uint32_t first = table_.find_unused(whole, tail);
  if (first == SegmentTable::kNone) return refused.tell();
  return first;
}

Result<std::byte*> Segments::allocate_huge(SlabArena& arena, std::uint32_t pages) {
  std::uint32_t whole = pages / kSegmentPages;
  std::uint32_t tail = pages % kSegmentPages;
  if (whole == 0 || tail + kSegmentHeaderPages + kPagesWorthHeader > kSegmentPages) {
    ++whole;
    tail = 0;
  }
  MEMLITH_TRY_ASSIGN(const std::uint32_t first, find_whole(arena, pages, whole, tail));
  MEMLITH_ASSERT(whole > 0 && first + whole + (tail > 0 ? 1 : 0) <= memory_.segment_count());
  table_.set(first, SegmentKind::huge, 0, whole * kSegmentPages + tail);
  for (std::uint32_t i = 1; i < whole; ++i) {
    MEMLITH_ASSERT(table_[first + i].kind == SegmentKind::unused);
    table_.set(first + i, SegmentKind::huge_rest);
  }
  if (tail > 0) make_headed(first + whole, tail);
  return memory_.page_at(first, 0);
}

Status Segments::free_huge(SlabArena& arena, std::uint32_t segment) {
  const std::uint32_t pages = table_[segment].pages;
  const std::uint32_t whole = pages / kSegmentPages;
  MEMLITH_ASSERT(table_[segment].kind == SegmentKind::huge && whole > 0);
  MEMLITH_ASSERT((std::uint64_t{segment} + whole) * kSegmentBytes <= memory_.region().size());
  if (const std::uint32_t tail = pages % kSegmentPages; tail > 0) {
    Segment* last = loaded(segment + whole);
    if (last == nullptr) {
      MEMLITH_TRY_ASSIGN(last, load(segment + whole, arena));
    }
    set_page_word(*last, 0, 0);
    give_pages(*last, 0, tail);
  }
  for (std::uint32_t i = 0; i < whole; ++i) table_.set(segment + i, SegmentKind::unused);
  return kOk;
}

// ---- verification ----------------------------------------------------------------------------------------------

Status Segments::check_loaded(std::uint32_t segment, std::span<const PageRun> runs) const {
  const Segment* const state = loaded(segment);
  if (state == nullptr) return kOk;
  const SegmentHeader& header = *memory_.header_at(segment, table_[segment].header_page);
  for (const PageRun& run : runs) {
    const Slab* const slab = state->slab_of(run.page);
    std::uint32_t used = 0;
    for (std::uint32_t word = 0; run.is_slab() && word < run.pages * 4; ++word) {
      used += static_cast<std::uint32_t>(std::popcount(header.blocks[run.page + word / 4][word % 4]));
    }
    const bool same = (slab != nullptr) == run.is_slab() && state->is_free(run.page) == (run.kind == kPageNone) &&
                      (slab == nullptr || (slab->used == used && slab->size_class == run.kind - kPageSlab));
    if (same) continue;
    return memory_.corrupt(segment * kSegmentBytes + run.page * kPageBytes,
                           fmt::format("page {} of segment {} is not what it was when it was read", run.page, segment));
  }
  return kOk;
}

}  // namespace memlith::core
