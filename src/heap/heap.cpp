#include "heap/heap.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "heap/checks.hpp"
#include "heap/open_heaps.hpp"
#include "region/thread_number.hpp"

namespace memlith::core {

namespace {

std::uint32_t header_pages_for(std::uint64_t reserve_bytes) {
  const std::uint64_t table_bytes = segments_for(reserve_bytes) * sizeof(SegmentEntry);
  return static_cast<std::uint32_t>(1 + round_up(table_bytes, kPageBytes) / kPageBytes);
}

}  // namespace

// ---- open ------------------------------------------------------------------------------------------------------

Heap::HeaderExtent Heap::header_extent(std::uint32_t header_pages) {
  HeaderExtent extent{header_pages / kSegmentPages, header_pages % kSegmentPages};
  if (extent.pages + kSegmentHeaderPages > kSegmentPages) extent = {extent.segments + 1, 0};
  return extent;
}

std::uint64_t Heap::size_with_header(std::uint32_t header_pages) {
  const HeaderExtent extent = header_extent(header_pages);
  return extent.segments * kSegmentBytes + (extent.pages + kSegmentHeaderPages + 1) * kPageBytes;
}

std::uint64_t Heap::size_min(std::uint64_t reserve_bytes) { return size_with_header(header_pages_for(reserve_bytes)); }

bool holds_heap(const Region& region) {
  return region.size() >= kHeapHeaderEnd &&
         reinterpret_cast<const HeapHeader*>(region.address() + kHeapHeaderOffset)->magic == kHeapMagic;
}

Heap::Heap(Region& region)
    : region_(region),
      base_(region.address()),
      header_(reinterpret_cast<HeapHeader*>(region.address() + kHeapHeaderOffset)),
      table_(reinterpret_cast<SegmentEntry*>(region.address() + kSegmentTableOffset)),
      touches_(region.tracker() != nullptr && (region.tracker()->kind() == TrackerKind::touched ||
                                               region.tracker()->kind() == TrackerKind::instrumented)),
      arena_count_(std::clamp(2 * processors(), 1u, kArenas)) {}

Result<std::unique_ptr<Heap>> Heap::open(Region& region, const HeapOptions& options) {
  MEMLITH_TRY(check_limit(region.shown_name(), region.reserve()));
  auto heap = std::unique_ptr<Heap>(new Heap(region));
  MEMLITH_TRY_ASSIGN(const bool empty, region.is_for_making("a heap", options.create, options.exclusive));
  if (const std::uint64_t least = size_min(region.reserve()); empty && region.size() < least) {
    if (least > region.reserve()) {
      return fail(Errc::invalid, Detail::argument,
                  "region \"{}\" may grow to {} bytes; a heap needs {} for its own structures", region.shown_name(),
                  region.reserve(), least);
    }
    MEMLITH_TRY(region.grow(least));
  }
  {
    const LockGuard structure(heap->structure_);
    if (empty) {
      heap->create();
    } else {
      MEMLITH_TRY(heap->check_header());
    }
    heap->find_table();
    MEMLITH_TRY(heap->check_table());
    if (region.tracker() != nullptr) MEMLITH_TRY(heap->raise_limit(options.reserve_bytes));
  }
  if (!region.anywhere()) add_open_heap(region.address(), region.reserve(), heap.get());
  region.set_guard(heap.get());
  return heap;
}

Heap::~Heap() {
  if (loaded_ == nullptr) return;  // not opened
  remove_open_heap(this);
  region_.set_guard(nullptr);
}

Status Heap::check_limit(std::string_view region, std::uint64_t reserve_bytes) {
  if (reserve_bytes <= kHeapBytesMax) return kOk;
  return fail(Errc::invalid, Detail::argument, "region \"{}\" may grow to {} bytes; a heap has {} at most", region,
              reserve_bytes, kHeapBytesMax);
}

Status Heap::place_as_made(Store& store, std::string_view name, RegionOptions& options) {
  MEMLITH_TRY(check_limit(name, options.reserve_bytes));
  if (!store.one_file() || options.address != 0) return kOk;
  const std::optional<ObjectInfo> info = store.find(name);
  if (!info.has_value() || info->address != 0 || info->size_bytes < kHeapHeaderEnd) return kOk;
  HeapHeader header{};
  MEMLITH_TRY(store.read_home_into(info->id, kHeapHeaderOffset, std::as_writable_bytes(std::span(&header, 1))));
  if (header.magic != kHeapMagic || header.check != header_check(header)) return kOk;  // for open() to tell
  options.address = header.address;
  options.reserve_bytes = std::max(options.reserve_bytes, header.reserve_bytes);
  return kOk;
}

void Heap::create() {
  HeapHeader header{};
  header.magic = kHeapMagic;
  header.version = kHeapVersion;
  header.header_pages = header_pages_for(region_.reserve());
  header.address = reinterpret_cast<std::uintptr_t>(base_);
  header.reserve_bytes = region_.reserve();
  header.segments_max = segments_for(region_.reserve());
  header.check = header_check(header);
  MEMLITH_ASSERT(region_.size() >= size_with_header(header.header_pages));
  *header_ = header;
  wrote(header_, sizeof header);
  const HeaderExtent extent = header_extent(header.header_pages);
  for (std::uint32_t segment = 0; segment < extent.segments; ++segment) set_entry(segment, SegmentKind::table, 0, 0);
  SegmentHeader& first = *header_at(extent.segments, extent.pages);
  first.magic = kSegmentMagic;
  first.number = extent.segments;
  if (extent.pages > 0) first.pages[0] = page_word(kPageTable, extent.pages);
  first.pages[extent.pages] = page_word(kPageHeader, kSegmentHeaderPages);
  wrote(&first, offsetof(SegmentHeader, unused));
  set_entry(extent.segments, SegmentKind::headed, extent.pages, 0);
}

Status Heap::check_header() const {
  const HeapHeader& header = *header_;
  if (region_.size() < kHeapHeaderEnd || header.magic != kHeapMagic) {
    return fail(Errc::incompatible, Detail::heap,
                "region \"{}\": its first bytes are not those of a heap; open it as what it was made as",
                region_.shown_name());
  }
  if (header.version != kHeapVersion) {
    return fail(Errc::incompatible, Detail::version,
                "{}: its format has version {}, this library reads version {}; open it with the library that made it",
                place(), header.version, kHeapVersion);
  }
  if (header.check != header_check(header))
    return corrupt(kHeapHeaderOffset, "the heap's header does not fit its checksum");
  // A copy of the file, or one file opened without its log, may have another limit; the table was made for the first
  // one.
  if (header.address != reinterpret_cast<std::uintptr_t>(base_) && !region_.anywhere()) {
    return fail(Errc::incompatible, Detail::heap,
                "{}: it was made at address {:#x} and is mapped at {:#x}, so that pointers in it lead nowhere; open it "
                "with that address",
                place(), header.address, reinterpret_cast<std::uintptr_t>(base_));
  }
  return check_extents();
}

Status Heap::check_extents() const {
  const HeapHeader& header = *header_;
  const std::uint32_t pages = header_pages_for(header.reserve_bytes);
  const bool moved = header.table_offset != 0;
  if (header.reserve_bytes > kHeapBytesMax || header.segments_max != segments_for(header.reserve_bytes) ||
      header.table_offset % kSegmentBytes != 0 || header.header_pages < 2 ||
      (moved ? header.header_pages > pages : header.header_pages != pages)) {
    return corrupt(kHeapHeaderOffset, "the heap's header does not fit itself");
  }
  if (region_.size() > header.reserve_bytes || region_.size() < size_with_header(header.header_pages)) {
    return corrupt(0, fmt::format("the region has {} bytes, which does not fit a heap of at most {}", region_.size(),
                                  header.reserve_bytes));
  }
  if (moved && (header.table_offset > region_.size() ||
                table_segments() * kSegmentBytes > region_.size() - header.table_offset)) {
    return corrupt(kHeapHeaderOffset,
                   fmt::format("the segment table lies at offset {} of {}", header.table_offset, region_.size()));
  }
  return kOk;
}

Status Heap::check_writable() const {
  if (region_.tracker() != nullptr) return kOk;
  return fail(Errc::read_only, Detail::heap, "{}: the store was opened read-only", place());
}

void Heap::wrote(const void* structure, std::uint64_t bytes) {
  MEMLITH_ASSERT(offset_of(structure) < region_.size() && bytes <= region_.size() - offset_of(structure));
  // Cannot fail: the structure lies in the region.
  if (touches_) (void)region_.touch(structure, bytes);
}

Status Heap::corrupt(std::uint64_t offset, std::string_view what) const {
  return fail(Errc::corrupt, Detail::heap, "{}: damaged at offset {}: {}; {}", place(), offset, what,
              region_.after_damage(offset));
}

// ---- what the region and its session ask -----------------------------------------------------------------------

// Any number of locks, which the analysis cannot follow; the one of the structure stands for all.
void Heap::hold() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  structure_.lock();
  for (std::uint32_t i = 0; i < arena_count_; ++i) arenas_[i].mutex.lock();
}

void Heap::let_go() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  for (std::uint32_t i = arena_count_; i > 0; --i) arenas_[i - 1].mutex.unlock();
  structure_.unlock();
}

void Heap::rolled_back() {
  forget_all();
  // A heap that no persist has captured is gone; a heap is there for as long as it is open.
  if (header_->magic == 0) create();
  // The state to which a reader moved may have a larger limit, and its table elsewhere.
  if (check_header().ok()) find_table();
}

void Heap::view_moved() {
  const AllLocks locks(*this);
  forget_all();
}

// ---- allocate --------------------------------------------------------------------------------------------------

SlabArena& Heap::arena_of_thread() { return arenas_[this_thread_number() % arena_count_]; }

Result<void*> Heap::allocate(std::uint64_t bytes, std::uint64_t alignment) {
  if (void* const quick = allocate_at_once(bytes, alignment); quick != nullptr) return quick;
  MEMLITH_TRY(check_writable());
  if (!is_power_of_two(alignment) || alignment > kPageBytes) {
    return fail(Errc::invalid, Detail::argument, "an alignment of {}; it is a power of two up to {}", alignment,
                kPageBytes);
  }
  const std::uint32_t size_class = class_of(bytes, alignment);
  if (size_class == kClasses) return allocate_pages(bytes);
  const LockGuard structure(structure_);
  return allocate_locked(arena_of_thread(), size_class);
}

void* Heap::allocate_at_once(std::uint64_t bytes, std::uint64_t alignment) noexcept {
  if (bytes > kSmallBytesMax || alignment > kPageBytes || !is_power_of_two(alignment)) return nullptr;
  if (touches_ || region_.tracker() == nullptr || region_.store().in_forked_child()) return nullptr;
  const std::uint32_t size_class = class_of(bytes, alignment);
  if (size_class == kClasses) return nullptr;
  SlabArena& arena = arena_of_thread();
  const LockGuard lock(arena.mutex);
  Slab* const slab = arena.first[size_class];
  return slab == nullptr ? nullptr : take(arena, *slab);
}

Result<void*> Heap::allocate_locked(SlabArena& arena, std::uint32_t size_class) {
  MEMLITH_ASSERT(size_class < kClasses);
  for (;;) {
    MEMLITH_TRY(acquire_slab(arena, size_class));
    const LockGuard lock(arena.mutex);
    if (Slab* const slab = arena.first[size_class]; slab != nullptr) return take(arena, *slab);
    // Other threads of the arena have used up the slab since.
  }
}

void* Heap::take(SlabArena& arena, Slab& slab) {
  MEMLITH_DCHECK(slab.owner.load(std::memory_order_relaxed) == &arena);
  const std::uint32_t block = arena.take(&slab);
  MEMLITH_DCHECK(block < slab.blocks);
  wrote(&slab.bits[block / 64], sizeof(std::uint64_t));
  return slab.base + std::uint64_t{block} * slab.block_bytes;
}

Result<void*> Heap::allocate_pages(std::uint64_t bytes) {
  if (bytes > header_->reserve_bytes) return full(bytes);
  const auto pages = static_cast<std::uint32_t>(round_up(std::max<std::uint64_t>(bytes, 1), kPageBytes) / kPageBytes);
  const LockGuard structure(structure_);
  if (pages >= kHugePagesMin) {
    MEMLITH_TRY_ASSIGN(std::byte* const block, allocate_huge(pages));
    return static_cast<void*>(block);
  }
  MEMLITH_TRY_ASSIGN(const Place found, find_pages(arena_of_thread(), pages));
  MEMLITH_ASSERT(found.page + pages <= pages_in(found.segment->number()));
  found.segment->take(found.page, pages);
  set_page_word(*found.segment, found.page, page_word(kPageExtent, pages));
  return static_cast<void*>(base_ + found.segment->number() * kSegmentBytes + found.page * kPageBytes);
}

// ---- free ------------------------------------------------------------------------------------------------------

Status Heap::no_block(std::uint64_t offset, std::string_view why) const {
  return fail(Errc::invalid, Detail::heap, "{}: no block in use begins at {:#x}: {}", place(),
              reinterpret_cast<std::uintptr_t>(base_) + offset, why);
}

Status Heap::free(void* address) {
  MEMLITH_TRY(check_writable());
  auto* const block = static_cast<std::byte*>(address);
  const std::uint64_t offset = offset_of(block);
  if (offset >= region_.size()) return no_block(offset, "it lies outside of the heap");
  Slab* const slab = quick_slab(offset);
  if (slab == nullptr) {
    const LockGuard structure(structure_);
    return free_locked(block);
  }
  MEMLITH_TRY_ASSIGN(const bool empty, free_from_slab(*slab, block));
  if (empty) {
    const LockGuard structure(structure_);
    retire(*slab);
  }
  return kOk;
}

Slab* Heap::quick_slab(std::uint64_t offset) const {
  const Segment* const segment = loaded_[offset / kSegmentBytes].load(std::memory_order_acquire);
  return segment == nullptr ? nullptr : segment->slab_of(offset / kPageBytes % kSegmentPages);
}

bool Heap::free_at_once(void* address) noexcept {
  auto* const block_begin = static_cast<std::byte*>(address);
  const std::uint64_t offset = offset_of(block_begin);
  if (touches_ || offset >= region_.size() || region_.tracker() == nullptr || region_.store().in_forked_child())
    return false;
  Slab* const slab = quick_slab(offset);
  if (slab == nullptr) return false;
  const std::uint32_t block = slab->block_at(block_begin);
  SlabArena* const owner = slab->owner.load(std::memory_order_acquire);
  if (block == slab->blocks || owner == nullptr) return false;
  const LockGuard lock(owner->mutex);
  if (slab->owner.load(std::memory_order_relaxed) != owner || !slab->in_use(block) || slab->used == 1) return false;
  (void)owner->give(slab, block);
  return true;
}

// True where the slab is empty now, and to be retired.
Result<bool> Heap::free_from_slab(Slab& slab, std::byte* address) {
  const std::uint32_t block = slab.block_at(address);
  if (block == slab.blocks) return no_block(offset_of(address), "it lies inside of a block");
  for (;;) {
    SlabArena* const owner = slab.owner.load(std::memory_order_acquire);
    if (owner == nullptr) return no_block(offset_of(address), "it was freed before");
    const LockGuard lock(owner->mutex);
    if (slab.owner.load(std::memory_order_relaxed) != owner) continue;  // another arena has taken it over
    if (!slab.in_use(block)) return no_block(offset_of(address), "it was freed before");
    const bool empty = owner->give(&slab, block);
    wrote(&slab.bits[block / 64], sizeof(std::uint64_t));
    return empty;
  }
}

// Gives the pages of an empty slab back. Until then it is a slab all the same, for a capture that comes between.
void Heap::retire(Slab& slab) {
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

Status Heap::free_locked(std::byte* address) {
  const std::uint64_t offset = offset_of(address);
  const auto number = static_cast<std::uint32_t>(offset / kSegmentBytes);
  const auto page = static_cast<std::uint32_t>(offset / kPageBytes % kSegmentPages);
  MEMLITH_TRY_ASSIGN(Slab* const slab, slab_at(offset));
  if (slab != nullptr) {
    MEMLITH_TRY_ASSIGN(const bool empty, free_from_slab(*slab, address));
    if (empty) retire(*slab);
    return kOk;
  }
  MEMLITH_TRY(locked_block_bytes(offset).status());
  if (entry_of(number).kind == SegmentKind::huge) return free_huge(number);
  Segment& segment = *segments_.at(number);
  const std::uint32_t pages = segment.header().pages[page] >> 8;
  if (pages == 0 || pages > pages_in(number) - page) {
    return corrupt(offset, fmt::format("page {} of segment {} says that {} pages begin there", page, number, pages));
  }
  set_page_word(segment, page, 0);
  give_pages(segment, page, pages);
  return kOk;
}

Result<Slab*> Heap::slab_at(std::uint64_t offset) {
  const auto number = static_cast<std::uint32_t>(offset / kSegmentBytes);
  if (entry_of(number).kind != SegmentKind::headed) return static_cast<Slab*>(nullptr);
  Segment* segment = loaded_[number].load(std::memory_order_relaxed);
  if (segment == nullptr) {
    MEMLITH_TRY_ASSIGN(segment, load(number, arena_of_thread()));
  }
  return segment->slab_of(offset / kPageBytes % kSegmentPages);
}

Result<std::uint64_t> Heap::locked_block_bytes(std::uint64_t offset) {
  MEMLITH_TRY_ASSIGN(const Slab* const slab, slab_at(offset));
  if (slab != nullptr) {
    const std::uint32_t block = slab->block_at(base_ + offset);
    if (block == slab->blocks) return no_block(offset, "it lies inside of a block");
    SlabArena* const owner =
        slab->owner.load(std::memory_order_acquire);  // constant under the structure lock, unless the slab is empty
    if (owner == nullptr) return no_block(offset, "the block is free");
    const LockGuard lock(owner->mutex);
    if (!slab->in_use(block)) return no_block(offset, "the block is free");
    return std::uint64_t{slab->block_bytes};
  }
  const SegmentEntry entry = entry_of(static_cast<std::uint32_t>(offset / kSegmentBytes));
  if (entry.kind == SegmentKind::huge && offset % kSegmentBytes == 0) return entry.pages * kPageBytes;
  if (entry.kind == SegmentKind::headed && offset % kPageBytes == 0) {
    const PageWord word = loaded_[offset / kSegmentBytes]
                              .load(std::memory_order_relaxed)
                              ->header()
                              .pages[offset / kPageBytes % kSegmentPages];
    if ((word & 0xff) == kPageExtent) return (word >> 8) * kPageBytes;
  }
  return no_block(offset, "the heap has no block there");
}

Result<std::uint64_t> Heap::block_bytes(const void* address) {
  const std::uint64_t offset = offset_of(address);
  if (offset >= region_.size()) return no_block(offset, "it lies outside of the heap");
  const LockGuard structure(structure_);
  return locked_block_bytes(offset);
}

}  // namespace memlith::core
