// A heap: allocation inside a region, which a persist captures together with what was allocated. Floor: heap.
//
// A heap is at one persisted point after a crash, because its structures are memory of the region like any other: a
// block that was allocated and not persisted is free again, and one that was freed and not persisted is there again.
//
// Its parts: Arenas allocates blocks, from slabs and pages of Segments; Names keeps the named objects; DerivedObjects
// has what programs derive from its bytes. Captures and rollbacks of the region hold every lock of the heap, in the
// order Names, Segments, Arenas, so that no allocation is captured half done. In a heap for thread scope they ask
// Arenas for what the capturing thread allocated and freed. Names change with captures of process scope only: their
// records are links of one list.
//
// Bytes of the region are input: each structure is checked when it is first followed, and what does not fit is an error
// that names it. Public calls may be made by any thread, but opening and closing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heap/arenas.hpp"
#include "heap/derived.hpp"
#include "heap/format.hpp"
#include "heap/heap_memory.hpp"
#include "heap/names.hpp"
#include "heap/segments.hpp"
#include "region/capture_guard.hpp"
#include "region/region.hpp"
#include "region/region_user.hpp"

namespace memlith::core {

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
  bool thread_scope = false;  // captures may have thread scope: the region's tracker knows threads
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

  [[nodiscard]] Arenas& arenas() { return arenas_; }
  [[nodiscard]] Names& names() { return names_; }
  [[nodiscard]] DerivedObjects& derived() { return derived_; }
  [[nodiscard]] Region& region() { return memory_.region(); }
  [[nodiscard]] OpenRegion* open_region() const { return open_region_; }  // the one that was set
  void set_open_region(OpenRegion* region) { open_region_ = region; }

  // Checks every structure, and that they account for every byte. No other thread may change the heap meanwhile.
  Result<HeapReport> verify();
  Status for_each_block(const std::function<void(std::byte* address, std::uint64_t bytes)>& use);

  // The blocks to which neither names nor words of other blocks lead, nor words of `others`: heap/reach.hpp says which
  // words do. No other thread may change the heap meanwhile. Blocks that the program holds by itself are among them.
  Status for_each_unreached(std::span<const SeenMemory> others,
                            const std::function<void(std::byte* address, std::uint64_t bytes)>& use);

  // ---- for the session and the region
  void view_moved() override;
  Range rewritten() override;
  void hold() override MEMLITH_ACQUIRE(names_.mutex, segments_.structure);
  void let_go() override MEMLITH_RELEASE(names_.mutex, segments_.structure);
  void rolled_back() override MEMLITH_REQUIRES(names_.mutex, segments_.structure);
  [[nodiscard]] bool knows_threads() const override { return memory_.by_thread(); }
  Status before_capture(ThreadNumber thread, std::vector<Range>& shared) override
      MEMLITH_REQUIRES(names_.mutex, segments_.structure);
  void captured() override MEMLITH_REQUIRES(names_.mutex, segments_.structure);
  void not_captured() override MEMLITH_REQUIRES(names_.mutex, segments_.structure);
  void add_shared(std::vector<Range>& shared) override;
  [[nodiscard]] bool shares_page(std::uint64_t page) const override;
  [[nodiscard]] std::string_view what() const override { return "a heap"; }
  std::vector<std::string> where(std::span<const std::uint64_t> offsets) override;

 private:
  using UseBlock = std::function<void(std::byte* address, std::uint64_t bytes)>;

  // Every lock of the heap, for as long as it lives.
  class MEMLITH_SCOPED_CAPABILITY AllLocks {
   public:
    explicit AllLocks(Heap& heap) MEMLITH_ACQUIRE(heap.names_.mutex, heap.segments_.structure) : heap_(heap) {
      heap.hold();
    }
    ~AllLocks() MEMLITH_RELEASE() { heap_.let_go(); }
    AllLocks(const AllLocks&) = delete;
    AllLocks& operator=(const AllLocks&) = delete;

   private:
    Heap& heap_;
  };

  Heap(Region& region, bool thread_scope);

  static Status check_limit(std::string_view region, std::uint64_t reserve_bytes);
  void create() MEMLITH_REQUIRES(segments_.structure);
  Status check_header() MEMLITH_REQUIRES(segments_.structure);
  Status raise_limit(std::uint64_t reserve_bytes) MEMLITH_REQUIRES(segments_.structure);
  void forget() MEMLITH_REQUIRES(names_.mutex, segments_.structure);

  // ---- verify.cpp
  Status count_segment(std::uint32_t segment, HeapReport& report, const UseBlock& use)
      MEMLITH_REQUIRES(segments_.structure);
  Result<HeapReport> count(const UseBlock& use);

  SharedStores shared_stores_;  // of a heap for thread scope
  const HeapMemory memory_;
  ThreadNumber capturing_ MEMLITH_GUARDED_BY(segments_.structure) = kAllThreads;
  OpenRegion* open_region_ = nullptr;
  bool opened_ = false;
  Segments segments_;
  Arenas arenas_;
  Names names_;
  DerivedObjects derived_;
};

}  // namespace memlith::core
