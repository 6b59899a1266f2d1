// Reading what the region holds: the segment table at opening, each segment when it is first used, and slabs made of
// them. Under the structure lock.
//
// Numbers in the region are input. Each is held against its bounds before it is used, and what is wrong is told with
// its place.
#include <algorithm>

#include "heap/heap.hpp"

namespace memlith::core {

namespace {

constexpr std::uint32_t kLooksForSlab = 16;  // segments that are looked at before a new slab is made

std::uint32_t reciprocal_of(std::uint32_t bytes) {
  return static_cast<std::uint32_t>(((std::uint64_t{1} << 32) + bytes - 1) / bytes);
}

constexpr bool is_slab(std::uint32_t kind) { return kind >= kPageSlab && kind < kPageSlab + kClasses; }

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

// ---- the segment table -----------------------------------------------------------------------------------------

Status Heap::check_table() const {
  const std::uint32_t count = segment_count();
  std::uint32_t inside = 0;  // of a block of whole segments: so many more belong to it
  for (std::uint32_t number = 0; number < count; ++number) {
    const std::uint64_t offset = kSegmentTableOffset + number * sizeof(SegmentEntry);
    const SegmentEntry& entry = entry_of(number);
    if (!entry_fits(number)) {
      return corrupt(offset, fmt::format("the entry of segment {} does not fit its checksum", number));
    }
    if ((entry.kind == SegmentKind::huge_rest) != (inside > 0)) {
      return corrupt(offset,
                     fmt::format("segment {} is {} a large block", number, inside > 0 ? "missing in" : "inside of no"));
    }
    if (inside > 0) --inside;
    if (entry.kind == SegmentKind::huge) {
      MEMLITH_TRY(check_huge(number));
      inside = entry.pages / kSegmentPages - 1;
    }
    if (entry.kind == SegmentKind::headed && entry.header_page + kSegmentHeaderPages > pages_in(number)) {
      return corrupt(offset, fmt::format("the header of segment {} lies beyond its end", number));
    }
    if (is_in_table(number) != (entry.kind == SegmentKind::table)) {
      return corrupt(offset, fmt::format("segment {} does not belong to the heap's header, or does", number));
    }
  }
  return kOk;
}

Status Heap::check_huge(std::uint32_t segment) const {
  const std::uint64_t offset = kSegmentTableOffset + segment * sizeof(SegmentEntry);
  const SegmentEntry& entry = entry_of(segment);
  const std::uint32_t whole = entry.pages / kSegmentPages;
  const std::uint32_t tail = entry.pages % kSegmentPages;
  if (whole == 0 || segment * kSegmentBytes + entry.pages * kPageBytes > region_.size()) {
    return corrupt(offset, fmt::format("the large block in segment {} has {} pages", segment, entry.pages));
  }
  const SegmentEntry& last = entry_of(tail == 0 ? segment : segment + whole);
  if (tail > 0 && (last.kind != SegmentKind::headed || last.header_page != tail)) {
    return corrupt(offset, fmt::format("the large block in segment {} does not end where segment {} begins to be used",
                                       segment, segment + whole));
  }
  return kOk;
}

// ---- segments --------------------------------------------------------------------------------------------------

// Checks the header of a segment, and lists what its pages hold.
Status Heap::inspect(std::uint32_t segment, std::vector<Run>& runs) const {
  runs.clear();
  MEMLITH_ASSERT(entry_of(segment).kind == SegmentKind::headed);
  const std::uint32_t header_page = entry_of(segment).header_page;
  const SegmentHeader& header = *header_at(segment, header_page);
  const std::uint64_t offset = offset_of(&header);
  if (header.magic != kSegmentMagic || header.number != segment) {
    return corrupt(offset, fmt::format("segment {} has no header there", segment));
  }
  const std::uint32_t limit = pages_in(segment);
  bool header_met = false;
  for (std::uint32_t page = 0; page < kSegmentPages;) {
    const PageWord word = header.pages[page];
    Run run{page, word == 0 ? 1u : word >> 8u, word & 0xffu};
    if (page >= limit && word == 0) break;
    if (run.pages == 0 || run.pages > limit - std::min(page, limit)) {
      return corrupt(offset,
                     fmt::format("page {} of segment {} says that {} pages begin there", page, segment, run.pages));
    }
    MEMLITH_TRY(inspect_run(segment, run));
    header_met = header_met || run.kind == kPageHeader;
    runs.push_back(run);
    page += run.pages;
  }
  if (!header_met) return corrupt(offset, fmt::format("the pages of segment {} leave out its header", segment));
  return kOk;
}

Status Heap::inspect_run(std::uint32_t segment, const Run& run) const {
  const std::uint32_t header_page = entry_of(segment).header_page;
  const SegmentHeader& header = *header_at(segment, header_page);
  const std::uint64_t offset = offset_of(&header.pages[run.page]);
  const SegmentEntry* const before = segment == 0 ? nullptr : &entry_of(segment - 1);
  bool fits = false;
  switch (run.kind) {
    case kPageNone: fits = header.pages[run.page] == 0; break;
    case kPageExtent: fits = true; break;
    case kPageHeader: fits = run.page == header_page && run.pages == kSegmentHeaderPages; break;
    case kPageTable:
      fits = run.page == 0 && run.pages == header_page && segment == header_extent(header_->header_pages).segments;
      break;
    case kPageHugeEnd:
      fits = run.page == 0 && run.pages == header_page && before != nullptr &&
             (before->kind == SegmentKind::huge || before->kind == SegmentKind::huge_rest);
      break;
    default: fits = is_slab(run.kind) && run.pages == kSizeClasses[run.kind - kPageSlab].pages; break;
  }
  for (std::uint32_t page = run.page + 1; page < run.page + run.pages; ++page) {
    fits = fits && (header.pages[page] == 0);
  }
  // The other pages of the header's own run say nothing; a free page that should be the header's is one that lies over
  // it.
  const bool over_header =
      run.kind != kPageHeader && run.page < header_page + kSegmentHeaderPages && run.page + run.pages > header_page;
  if (!fits || over_header) {
    return corrupt(offset, fmt::format("page {} of segment {} holds a run of kind {} and {} pages, which does not fit",
                                       run.page, segment, run.kind, run.pages));
  }
  return inspect_blocks(segment, run);
}

// Bits may be set for the blocks of slabs only.
Status Heap::inspect_blocks(std::uint32_t segment, const Run& run) const {
  const SegmentHeader& header = *header_at(segment, entry_of(segment).header_page);
  const std::uint32_t blocks = is_slab(run.kind) ? kSizeClasses[run.kind - kPageSlab].blocks : 0;
  const std::uint64_t* const bits = header.blocks[run.page];
  for (std::uint32_t word = blocks / 64; word < run.pages * 4; ++word) {
    const std::uint64_t allowed = word == blocks / 64 ? (std::uint64_t{1} << blocks % 64) - 1 : 0;
    if ((bits[word] & ~allowed) == 0) continue;
    return corrupt(offset_of(&bits[word]),
                   fmt::format("a block is marked in pages {} to {} of segment {} where there is none", run.page,
                               run.page + run.pages - 1, segment));
  }
  return kOk;
}

Result<Segment*> Heap::load(std::uint32_t segment, SlabArena& arena) {
  std::vector<Run> runs;
  MEMLITH_TRY(inspect(segment, runs));
  Segment* const loaded = remember(segment, entry_of(segment).header_page);
  for (std::size_t i = 0; i < runs.size();) {
    const Run& run = runs[i++];
    if (is_slab(run.kind)) make_slab(*loaded, run.page, run.kind - kPageSlab, arena);
    if (run.kind != kPageNone) continue;
    std::uint32_t pages = 1;
    for (; i < runs.size() && runs[i].kind == kPageNone; ++i) ++pages;
    loaded->give(run.page, pages);
  }
  MEMLITH_ASSERT(loaded->free_pages() + kSegmentHeaderPages <= pages_in(segment));
  note_room(*loaded);
  return loaded;
}

Status Heap::load_next(SlabArena& arena, std::uint32_t most, const std::function<bool()>& enough) {
  for (const std::uint32_t count = segment_count(); next_unloaded_ < count && most > 0; ++next_unloaded_) {
    if (entry_of(next_unloaded_).kind != SegmentKind::headed ||
        loaded_[next_unloaded_].load(std::memory_order_relaxed) != nullptr) {
      continue;
    }
    MEMLITH_TRY(load(next_unloaded_, arena).status());
    --most;
    if (enough()) return kOk;
  }
  return kOk;
}

// ---- slabs -----------------------------------------------------------------------------------------------------

// Loads a run of pages that is a slab already, by its page word; it may have blocks in use.
Slab* Heap::make_slab(Segment& segment, std::uint32_t page, std::uint32_t size_class, SlabArena& owner) {
  if (spare_slabs_.empty()) {
    slabs_.push_back(std::make_unique<Slab>());
    spare_slabs_.push_back(slabs_.back().get());
  }
  Slab* const slab = spare_slabs_.back();
  spare_slabs_.pop_back();
  MEMLITH_ASSERT(size_class < kClasses && !slab->listed);
  const SizeClass& kind = kSizeClasses[size_class];
  MEMLITH_ASSERT(segment.header().pages[page] == page_word(kPageSlab + size_class, kind.pages));
  MEMLITH_ASSERT(page + kind.pages <= pages_in(segment.number()));
  slab->base = base_ + segment.number() * kSegmentBytes + page * kPageBytes;
  slab->bits = segment.header().blocks[page];
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
  const LockGuard lock(owner.mutex);
  slab->owner.store(&owner, std::memory_order_release);
  slab->listed = false;
  if (!slab->full()) owner.list(slab);
  segment.set_slab(page, kind.pages, slab);
  return slab;
}

// On ok the arena had a slab of the class with room, and other threads of the arena may have taken it since.
Status Heap::acquire_slab(SlabArena& arena, std::uint32_t size_class) {
  const auto enough = [&] {
    const LockGuard lock(arena.mutex);
    return arena.first[size_class] != nullptr;
  };
  if (enough()) return kOk;
  MEMLITH_TRY(load_next(arena, kLooksForSlab, enough));
  if (enough()) return kOk;
  const std::uint32_t pages = kSizeClasses[size_class].pages;
  Place place;
  if (!find_in_loaded(pages, place)) {
    if (steal_slab(arena, size_class, false)) return kOk;
    const Result<Place> found = find_pages(arena, pages);
    if (!found.ok()) {
      // Everything is loaded by now: what room there is, is in slabs.
      if (found.error().category == Errc::no_space && (enough() || steal_slab(arena, size_class, true))) return kOk;
      return found.error();
    }
    place = *found;
  }
  place.segment->take(place.page, pages);
  set_page_word(*place.segment, place.page, page_word(kPageSlab + size_class, pages));
  make_slab(*place.segment, place.page, size_class, arena);
  return kOk;
}

// Moves a slab with room from one arena to the other; unless `any`, one that is a quarter free at least.
bool Heap::move_slab(SlabArena& from, SlabArena& to, std::uint32_t size_class, bool any) {
  MEMLITH_ASSERT(&from != &to && size_class < kClasses);
  for (Slab* slab = from.first[size_class]; slab != nullptr; slab = slab->next) {
    if (!any && slab->used * 4 > slab->blocks * 3) continue;
    MEMLITH_ASSERT(slab->owner.load(std::memory_order_relaxed) == &from && slab->listed && !slab->full());
    from.unlist(slab);
    slab->owner.store(&to, std::memory_order_release);
    to.list(slab);
    return true;
  }
  return false;
}

// Takes a slab with room over from another arena. Here a thread holds the locks of two arenas, in the order of hold().
bool Heap::steal_slab(SlabArena& arena, std::uint32_t size_class, bool any) {
  for (std::uint32_t i = 0; i < arena_count_; ++i) {
    SlabArena& other = arenas_[i];
    if (&other < &arena) {
      const LockGuard lock_of_other(other.mutex);
      const LockGuard lock(arena.mutex);
      if (move_slab(other, arena, size_class, any)) return true;
    } else if (&other > &arena) {
      const LockGuard lock(arena.mutex);
      const LockGuard lock_of_other(other.mutex);
      if (move_slab(other, arena, size_class, any)) return true;
    }
  }
  return false;
}

}  // namespace memlith::core
