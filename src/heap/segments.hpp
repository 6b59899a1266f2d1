// The segments of a heap while it is open: which pages are free, which are blocks, and which are slabs. Floor: heap.
//
// A segment is loaded from its header in the region when it is first used, and forgotten when the region is rolled
// back. Slabs of a segment that is loaded belong to an arena, which the caller gives. Their owner's lock guards them
// then; all else here is guarded by the structure lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/sync.hpp"
#include "heap/arena.hpp"
#include "heap/heap_memory.hpp"
#include "heap/page_runs.hpp"
#include "heap/segment.hpp"
#include "heap/segment_table.hpp"

namespace memlith::core {

class Segments {
 public:
  struct SegmentPage {
    Segment* segment = nullptr;
    std::uint32_t page = 0;
  };
  // Asked when a segment was loaded: whether that is enough.
  using Enough = std::function<bool()>;

  explicit Segments(const HeapMemory& memory);
  // In a heap for thread scope: the arena that owns the slabs of earlier runs. Before the first call.
  void set_commons(SlabArena& commons) { commons_ = &commons; }

  // The structure lock of the heap: guards the segments, the table of segments, and which arena owns a slab. Taken
  // before the arenas' locks, and before the region's capture lock, for the region to grow.
  Mutex structure;

  [[nodiscard]] SegmentTable& table() MEMLITH_REQUIRES(structure) { return table_; }
  [[nodiscard]] const SegmentTable& table() const MEMLITH_REQUIRES(structure) { return table_; }

  // ---- opening, and another state of the region
  // The header is new, or was checked: finds the table, and makes room for as many segments. No segment is loaded.
  void follow_header() MEMLITH_REQUIRES(structure);
  // The memory is that of another moment. With the locks of all arenas, which the analysis cannot see.
  void forget() MEMLITH_REQUIRES(structure);

  // ---- slabs
  // The slab at an offset in the region's size, if its segment is loaded; else null. Any thread, without a lock.
  [[nodiscard]] Slab* loaded_slab(std::uint64_t offset) const {
    const Segment* const segment = loaded_[offset / kSegmentBytes].load(std::memory_order_acquire);
    return segment == nullptr ? nullptr : segment->slab_of(offset / kPageBytes % kSegmentPages);
  }
  // The same, and loads the segment first. Null: there is no slab.
  Result<Slab*> slab_at(std::uint64_t offset, SlabArena& arena) MEMLITH_REQUIRES(structure);
  // Makes free pages a slab of that class, which the arena owns.
  void make_slab(const SegmentPage& at, std::uint32_t size_class, SlabArena& owner) MEMLITH_REQUIRES(structure);
  // All slabs of an arena become those of another one, which comes before it.
  void move_slabs(SlabArena& from, SlabArena& to) MEMLITH_REQUIRES(structure);
  // Gives the pages of an empty slab back. Until then it is a slab all the same, for a capture that comes between.
  void retire(Slab& slab) MEMLITH_REQUIRES(structure);

  // ---- pages
  // Loads `most` segments at most.
  Status load_next(SlabArena& arena, std::uint32_t most, const Enough& enough) MEMLITH_REQUIRES(structure);
  // Free pages in a row, fewer than kHugePagesMin; nothing is taken. The first looks at loaded segments only, the
  // second loads others, and grows the region.
  bool find_in_loaded(std::uint32_t pages, SegmentPage& found) MEMLITH_REQUIRES(structure);
  Result<SegmentPage> find_pages(SlabArena& arena, std::uint32_t pages) MEMLITH_REQUIRES(structure);
  // A block of that number of pages.
  Result<std::byte*> allocate(SlabArena& arena, std::uint32_t pages) MEMLITH_REQUIRES(structure);
  // The block that begins at the offset; slab_at() found no slab there.
  [[nodiscard]] Result<std::uint64_t> block_bytes(std::uint64_t offset) MEMLITH_REQUIRES(structure);
  Status free(SlabArena& arena, std::uint64_t offset) MEMLITH_REQUIRES(structure);

  // ---- for captures of a heap for thread scope, with the locks of all arenas
  // The region has the block of whole pages from now on, or lacks it.
  void place(std::uint64_t offset) MEMLITH_REQUIRES(structure);
  void remove(std::uint64_t offset) MEMLITH_REQUIRES(structure);
  // That is captured. The pages of one that was removed are free.
  void was_placed(std::uint64_t offset) MEMLITH_REQUIRES(structure);
  void was_removed(std::uint64_t offset) MEMLITH_REQUIRES(structure);

  // Compares the state of a segment, if it is loaded, with the runs that its header lists. A difference is a fault of
  // this library, or of the program where it stored to the header. With the locks of all arenas.
  [[nodiscard]] Status check_loaded(std::uint32_t segment, std::span<const PageRun> runs) const
      MEMLITH_REQUIRES(structure);

 private:
  [[nodiscard]] Segment* loaded(std::uint32_t segment) const MEMLITH_REQUIRES(structure) {
    return loaded_[segment].load(std::memory_order_relaxed);
  }
  Result<Segment*> load(std::uint32_t segment, SlabArena& arena) MEMLITH_REQUIRES(structure);
  Segment* remember(std::uint32_t segment, std::uint32_t header_page) MEMLITH_REQUIRES(structure);
  // A run of pages that is a slab already, by its page word; it may have blocks in use.
  void load_slab(Segment& segment, std::uint32_t page, std::uint32_t size_class, SlabArena& owner)
      MEMLITH_REQUIRES(structure);
  void set_page_word(Segment& segment, std::uint32_t page, PageWord word) MEMLITH_REQUIRES(structure);
  void note_room(const Segment& segment) MEMLITH_REQUIRES(structure);
  void give_pages(Segment& segment, std::uint32_t page, std::uint32_t pages) MEMLITH_REQUIRES(structure);

  // Whole segments.
  Segment* make_headed(std::uint32_t segment, std::uint32_t header_page) MEMLITH_REQUIRES(structure);
  Segment* use_unused_segment() MEMLITH_REQUIRES(structure);
  [[nodiscard]] bool wholly_free(const Segment& segment) const;
  void drop_segment(Segment& segment) MEMLITH_REQUIRES(structure);
  Status drop_free_segments(SlabArena& arena) MEMLITH_REQUIRES(structure);
  Status grow_to(std::uint64_t least) MEMLITH_REQUIRES(structure);
  Result<std::uint32_t> find_whole(SlabArena& arena, std::uint32_t pages, std::uint32_t whole, std::uint32_t tail)
      MEMLITH_REQUIRES(structure);
  Result<std::byte*> allocate_huge(SlabArena& arena, std::uint32_t pages) MEMLITH_REQUIRES(structure);
  Status free_huge(SlabArena& arena, std::uint32_t segment) MEMLITH_REQUIRES(structure);

  // ---- thread_pages.cpp
  Result<std::byte*> allocate_for_thread(SlabArena& arena, std::uint32_t pages) MEMLITH_REQUIRES(structure);
  Status free_for_thread(SlabArena& arena, std::uint64_t offset, std::uint64_t bytes) MEMLITH_REQUIRES(structure);

  const HeapMemory memory_;
  SlabArena* commons_ = nullptr;
  SegmentTable table_ MEMLITH_GUARDED_BY(structure);
  // All that are loaded, and for any thread an element for each segment that there may be. Each element is stored under
  // the lock; readers without the lock pair with that store.
  std::unordered_map<std::uint32_t, std::unique_ptr<Segment>> segments_ MEMLITH_GUARDED_BY(structure);
  std::unique_ptr<Atomic<Segment*>[]> loaded_;
  std::uint64_t loaded_count_ MEMLITH_GUARDED_BY(structure) = 0;
  // Segments before it are loaded, or have no header.
  std::uint32_t next_unloaded_ MEMLITH_GUARDED_BY(structure) = 0;
  // [b]: no loaded segment before it has 2^b free pages in a row.
  std::array<std::uint32_t, 9> room_ MEMLITH_GUARDED_BY(structure){};
  std::uint32_t spare_segment_ MEMLITH_GUARDED_BY(structure) = ~0u;  // wholly free, and kept
  std::vector<std::unique_ptr<Slab>> slabs_ MEMLITH_GUARDED_BY(structure);
  std::vector<Slab*> spare_slabs_ MEMLITH_GUARDED_BY(structure);
  // For thread scope: blocks of whole pages, by their offsets, that the region lacks yet, and those that are free when
  // the thread that freed them persists, with their pages.
  struct Placed {
    std::uint32_t pages = 0;
    SlabArena* arena = nullptr;
  };
  std::unordered_map<std::uint64_t, Placed> placed_ MEMLITH_GUARDED_BY(structure);
  std::unordered_map<std::uint64_t, std::uint32_t> removed_ MEMLITH_GUARDED_BY(structure);
};

}  // namespace memlith::core
