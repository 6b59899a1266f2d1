// A heap: allocation inside a region, which a persist captures together with what was allocated. Floor: heap.
//
// A heap is at one persisted point after a crash, because its structures are memory of the region like any other: a
// block that was allocated and not persisted is free again, and one that was freed and not persisted is there again.
//
// Threads allocate side by side, each from an arena of slabs (arena.hpp). Captures and rollbacks of the region hold
// every lock of the heap, so that no allocation is captured half done; which arena a slab belongs to is not stored.
// Process scope only: threads share bits of one word and words of one page.
//
// Bytes of the region are input: each structure is checked when it is first followed, and what does not fit is an error
// that names it. Public calls may be made by any thread, but opening and closing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "heap/arena.hpp"
#include "heap/format.hpp"
#include "heap/segment.hpp"
#include "region/capture_guard.hpp"
#include "region/region.hpp"
#include "region/region_user.hpp"

namespace memlith::core {

// The stored description of an object's type, to refuse another one.
struct ObjectType {
  std::string_view name;  // without data: of any name, where an object is looked for
  std::uint64_t size = 0;
  std::uint32_t alignment = 1;
  std::uint32_t layout = 0;  // the program's own number for the layout
};

struct NamedObject {
  std::byte* address = nullptr;
  std::string name;
  std::string type_name;
  std::uint64_t size = 0;
  std::uint32_t alignment = 0;
  std::uint32_t layout = 0;
};

// Where every byte of the region is. The sums were held against each other.
struct HeapReport {
  std::uint64_t region_bytes = 0;
  std::uint64_t header_bytes = 0;  // of the heap and of segments
  std::uint64_t block_bytes = 0;   // in use
  std::uint64_t slab_bytes = 0;    // of slabs and not in use
  std::uint64_t free_bytes = 0;    // in whole pages
  std::uint64_t blocks = 0;
  std::uint64_t names = 0;
  std::uint64_t segments = 0;  // with a header
};

// The object that std::pmr containers lead to (include/memlith/heap.hpp): its pointer to virtual functions is written
// anew whenever the heap is opened.
inline constexpr std::string_view kResourceName = "memlith::resource";

struct OpenRegion;

struct HeapOptions {
  bool create = true;
  bool exclusive = false;
  // A heap that is there may grow to so many bytes from now on, durably, if that is more than it may; the region's
  // reserve is as large. 0: as it is.
  std::uint64_t reserve_bytes = 0;
};

// Memory outside of a heap that may lead into the heap, and where programs see it.
struct SeenMemory {
  std::span<const std::byte> bytes;
  std::uint64_t address = 0;
};
// True if the region's first bytes are those of a heap.
bool holds_heap(const Region& region);

class Heap final : public RegionUser, public CaptureGuard {
 public:
  // The smallest region that holds a heap of so many bytes at most.
  static std::uint64_t size_min(std::uint64_t reserve_bytes);
  // Opens the heap that is there; in a region of zeros makes one, if it may. A larger limit is durable on ok; after an
  // error the heap on the disk has the one or the other.
  static Result<std::unique_ptr<Heap>> open(Region& region, const HeapOptions& options = {});
  // A store of one file forgets where the file's region lay when it is closed; a heap in it remembers. Completes
  // options that name no address. `invalid`: a heap cannot grow to so many bytes. Before the region is opened.
  static Status place_as_made(Store& store, std::string_view name, RegionOptions& options);
  ~Heap() override;

  // A block of at least so many bytes at a multiple of the alignment, a power of two up to a page. Durable with the
  // next persist. Grows the region. `no_space`: the region is at its limit, or the disk is full; nothing changed.
  Result<void*> allocate(std::uint64_t bytes, std::uint64_t alignment);
  // The same where a slab of the thread's arena has room, which takes nanoseconds; else null, and nothing changed.
  void* allocate_at_once(std::uint64_t bytes, std::uint64_t alignment) noexcept;
  // Gives a block back. `invalid`: no block in use begins there; nothing changed.
  Status free(void* address);
  // The same for a small block whose slab stays; else false, and nothing changed.
  bool free_at_once(void* address) noexcept;
  // Bytes of the block that begins at the address.
  Result<std::uint64_t> block_bytes(const void* address);

  // Names. An object has to begin a block.
  Status set_name(std::string_view name, const void* object, const ObjectType& type);
  // The same for a name that another object has; that object stays.
  Status replace_name(std::string_view name, const void* object, const ObjectType& type);
  Result<NamedObject> find_name(std::string_view name);
  // The same, and `incompatible` where the type is another one.
  Result<NamedObject> find_name(std::string_view name, const ObjectType& type);
  Status remove_name(std::string_view name);  // the object stays
  Result<std::vector<NamedObject>> names();

  // Checks every structure, and that they account for every byte. No other thread may change the heap meanwhile.
  Result<HeapReport> verify();
  Status for_each_block(const std::function<void(std::byte* address, std::uint64_t bytes)>& use);

  // The blocks to which neither names nor words of other blocks lead, nor words of `others`: heap/reach.hpp says which
  // words do. No other thread may change the heap meanwhile. Blocks that the program holds by itself are among them.
  Status for_each_unreached(std::span<const SeenMemory> others,
                            const std::function<void(std::byte* address, std::uint64_t bytes)>& use);

  [[nodiscard]] Region& region() { return region_; }
  [[nodiscard]] OpenRegion* open_region() const { return open_region_; }  // whatever was set
  void set_open_region(OpenRegion* region) { open_region_ = region; }

  void view_moved() override;

  void hold() override MEMLITH_ACQUIRE(structure_);
  void let_go() override MEMLITH_RELEASE(structure_);
  void rolled_back() override MEMLITH_REQUIRES(structure_);
  [[nodiscard]] std::string_view what() const override { return "a heap"; }
  std::vector<std::string> where(std::span<const std::uint64_t> offsets) override;

 private:
  static constexpr std::uint32_t kArenas = 16;
  // The result of a look at a segment's header.
  struct Run {
    std::uint32_t page = 0;
    std::uint32_t pages = 0;
    std::uint32_t kind = kPageNone;
  };
  // Whole segments that the heap's header fills, and the pages of it in the next one, where the first segment header
  // follows.
  struct HeaderExtent {
    std::uint32_t segments = 0;
    std::uint32_t pages = 0;
  };
  static HeaderExtent header_extent(std::uint32_t header_pages);
  static std::uint64_t size_with_header(std::uint32_t header_pages);
  static Status check_limit(std::string_view region, std::uint64_t reserve_bytes);
  struct Place {
    Segment* segment = nullptr;
    std::uint32_t page = 0;
  };

  // Every lock of the heap, for as long as it lives.
  class MEMLITH_SCOPED_CAPABILITY AllLocks {
   public:
    explicit AllLocks(Heap& heap) MEMLITH_ACQUIRE(heap.structure_) : heap_(heap) { heap.hold(); }
    ~AllLocks() MEMLITH_RELEASE() { heap_.let_go(); }
    AllLocks(const AllLocks&) = delete;
    AllLocks& operator=(const AllLocks&) = delete;

   private:
    Heap& heap_;
  };

  explicit Heap(Region& region);

  // ---- heap.cpp
  void create() MEMLITH_REQUIRES(structure_);
  Status check_header() const;
  Status check_extents() const;
  Status check_writable() const;
  void wrote(const void* structure, std::uint64_t bytes);
  [[nodiscard]] Status corrupt(std::uint64_t offset, std::string_view what) const;
  [[nodiscard]] std::string place() const { return "heap \"" + region_.shown_name() + "\""; }
  [[nodiscard]] std::uint64_t offset_of(const void* address) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - base_);
  }
  SlabArena& arena_of_thread();
  Result<void*> allocate_locked(SlabArena& arena, std::uint32_t size_class) MEMLITH_REQUIRES(structure_);
  Result<void*> allocate_pages(std::uint64_t bytes);
  void* take(SlabArena& arena, Slab& slab) MEMLITH_REQUIRES(arena.mutex);
  Result<bool> free_from_slab(Slab& slab, std::byte* address);
  Status free_locked(std::byte* address) MEMLITH_REQUIRES(structure_);
  void retire(Slab& slab) MEMLITH_REQUIRES(structure_);
  // The slab at an address. Null: no slab.
  Result<Slab*> slab_at(std::uint64_t offset) MEMLITH_REQUIRES(structure_);
  Result<std::uint64_t> locked_block_bytes(std::uint64_t offset) MEMLITH_REQUIRES(structure_);
  [[nodiscard]] Slab* quick_slab(std::uint64_t offset) const;
  [[nodiscard]] Status no_block(std::uint64_t offset, std::string_view why) const;

  // ---- space.cpp
  // In the region's size; the last one may be shorter than the others.
  [[nodiscard]] std::uint32_t segment_count() const;
  [[nodiscard]] std::uint32_t pages_in(std::uint32_t segment) const;
  [[nodiscard]] SegmentHeader* header_at(std::uint32_t segment, std::uint32_t page) const {
    return reinterpret_cast<SegmentHeader*>(base_ + segment * kSegmentBytes + page * kPageBytes);
  }
  [[nodiscard]] const SegmentEntry& entry_of(std::uint32_t segment) const MEMLITH_REQUIRES(structure_) {
    return table_[segment];
  }
  [[nodiscard]] bool entry_fits(std::uint32_t segment) const MEMLITH_REQUIRES(structure_);
  void set_entry(std::uint32_t segment, SegmentKind kind, std::uint32_t header_page, std::uint32_t pages)
      MEMLITH_REQUIRES(structure_);
  void set_page_word(Segment& segment, std::uint32_t page, PageWord word) MEMLITH_REQUIRES(structure_);
  Segment* make_headed(std::uint32_t segment, std::uint32_t header_page) MEMLITH_REQUIRES(structure_);
  Segment* remember(std::uint32_t segment, std::uint32_t header_page) MEMLITH_REQUIRES(structure_);
  void note_room(const Segment& segment) MEMLITH_REQUIRES(structure_);
  bool find_in_loaded(std::uint32_t pages, Place& found) MEMLITH_REQUIRES(structure_);
  Result<Place> find_pages(SlabArena& arena, std::uint32_t pages) MEMLITH_REQUIRES(structure_);
  void give_pages(Segment& segment, std::uint32_t page, std::uint32_t pages) MEMLITH_REQUIRES(structure_);
  [[nodiscard]] bool wholly_free(const Segment& segment) const MEMLITH_REQUIRES(structure_);
  void drop_segment(Segment& segment) MEMLITH_REQUIRES(structure_);
  Status drop_free_segments() MEMLITH_REQUIRES(structure_);
  Segment* use_unused_segment() MEMLITH_REQUIRES(structure_);
  Status grow_to(std::uint64_t least) MEMLITH_REQUIRES(structure_);
  Result<std::byte*> allocate_huge(std::uint32_t pages) MEMLITH_REQUIRES(structure_);
  [[nodiscard]] std::uint32_t find_unused(std::uint32_t whole, std::uint32_t tail_pages) const
      MEMLITH_REQUIRES(structure_);
  Status free_huge(std::uint32_t segment) MEMLITH_REQUIRES(structure_);
  Status full(std::uint64_t bytes) const;
  void forget_all() MEMLITH_REQUIRES(structure_);

  // ---- load.cpp
  Status check_table() const MEMLITH_REQUIRES(structure_);
  Status check_huge(std::uint32_t segment) const MEMLITH_REQUIRES(structure_);
  Status inspect(std::uint32_t segment, std::vector<Run>& runs) const MEMLITH_REQUIRES(structure_);
  Status inspect_run(std::uint32_t segment, const Run& run) const MEMLITH_REQUIRES(structure_);
  Status inspect_blocks(std::uint32_t segment, const Run& run) const MEMLITH_REQUIRES(structure_);
  Result<Segment*> load(std::uint32_t segment, SlabArena& arena) MEMLITH_REQUIRES(structure_);
  Status load_next(SlabArena& arena, std::uint32_t most, const std::function<bool()>& enough)
      MEMLITH_REQUIRES(structure_);
  Slab* make_slab(Segment& segment, std::uint32_t page, std::uint32_t size_class, SlabArena& owner)
      MEMLITH_REQUIRES(structure_);
  Status acquire_slab(SlabArena& arena, std::uint32_t size_class) MEMLITH_REQUIRES(structure_);
  static bool move_slab(SlabArena& from, SlabArena& to, std::uint32_t size_class, bool any)
      MEMLITH_REQUIRES(from.mutex, to.mutex);
  bool steal_slab(SlabArena& arena, std::uint32_t size_class, bool any) MEMLITH_REQUIRES(structure_);

  // ---- limit.cpp
  // The segments of a table that was moved.
  [[nodiscard]] std::uint32_t table_first() const;
  [[nodiscard]] std::uint32_t table_segments() const;
  [[nodiscard]] bool is_in_table(std::uint32_t segment) const;
  [[nodiscard]] std::uint64_t table_room() const;  // in entries
  void find_table() MEMLITH_REQUIRES(structure_);
  Status raise_limit(std::uint64_t reserve_bytes) MEMLITH_REQUIRES(structure_);
  Status move_table(std::uint64_t reserve_bytes) MEMLITH_REQUIRES(structure_);

  // ---- names.cpp
  Status load_names() MEMLITH_REQUIRES(structure_);
  Result<NameRecord*> record_at(std::uint64_t offset, std::uint64_t previous) MEMLITH_REQUIRES(structure_);
  [[nodiscard]] Status check_name(std::string_view name, const ObjectType& type, std::uint64_t object)
      MEMLITH_REQUIRES(structure_);
  Result<NameRecord*> make_record(std::string_view name, const ObjectType& type, std::uint64_t object)
      MEMLITH_REQUIRES(structure_);
  void link_first(NameRecord& record) MEMLITH_REQUIRES(structure_);
  void unlink(NameRecord& record) MEMLITH_REQUIRES(structure_);
  Result<NameRecord*> record_of(std::string_view name) MEMLITH_REQUIRES(structure_);
  [[nodiscard]] NamedObject object_of(const NameRecord& record) const MEMLITH_REQUIRES(structure_);

  // ---- verify.cpp
  Status count_segment(std::uint32_t segment, HeapReport& report,
                       const std::function<void(std::byte*, std::uint64_t)>& use) const MEMLITH_REQUIRES(structure_);
  Result<HeapReport> count(const std::function<void(std::byte*, std::uint64_t)>& use);
  Status check_remembered(std::uint32_t segment) const MEMLITH_REQUIRES(structure_);

  Region& region_;
  OpenRegion* open_region_ = nullptr;
  std::byte* const base_;
  HeapHeader* const header_;
  SegmentEntry* table_ MEMLITH_PT_GUARDED_BY(structure_);
  const bool touches_;  // the tracker has to be told
  std::uint32_t arena_count_ = 1;

  // Guards what follows, the table of segments, and which arena owns a slab. Taken before the arenas' locks, which
  // are taken in order of their numbers and guard the slabs that they own.
  Mutex structure_;
  std::array<SlabArena, kArenas> arenas_;
  // Set by find_table(), with an element for each segment that there may be. Each element is stored under the lock;
  // readers without the lock pair with that store.
  std::unique_ptr<Atomic<Segment*>[]> loaded_;
  std::uint64_t loaded_count_ = 0;
  // All that are loaded.
  std::unordered_map<std::uint32_t, std::unique_ptr<Segment>> segments_ MEMLITH_GUARDED_BY(structure_);
  std::uint32_t spare_segment_ MEMLITH_GUARDED_BY(structure_) = ~0u;  // wholly free, and kept
  std::vector<std::unique_ptr<Slab>> slabs_ MEMLITH_GUARDED_BY(structure_);
  std::vector<Slab*> spare_slabs_ MEMLITH_GUARDED_BY(structure_);
  // Segments before it are loaded, or have no header.
  std::uint32_t next_unloaded_ MEMLITH_GUARDED_BY(structure_) = 0;
  // [b]: no loaded segment before it has 2^b free pages in a row.
  std::array<std::uint32_t, 9> room_ MEMLITH_GUARDED_BY(structure_){};
  std::uint32_t unused_from_ MEMLITH_GUARDED_BY(structure_) = 0;  // no segment before it is unused
  bool names_loaded_ MEMLITH_GUARDED_BY(structure_) = false;
  // To the record's offset.
  std::unordered_map<std::string, std::uint64_t> names_ MEMLITH_GUARDED_BY(structure_);
};

}  // namespace memlith::core
