// The regions whose clean pages are protected, and the SIGSEGV handler that serves them. Floor: region, private to the
// trackers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "base/units.hpp"
#include "region/thread_number.hpp"

namespace memlith::core {

// Of a page that somebody stored to, nobody knows who.
inline constexpr ThreadNumber kUnknownThread = ~ThreadNumber{0};

// Of a clean page that is being captured. What it holds when somebody stores to it need not be what the capture copies, so it
// cannot be the twin that the next capture compares with: that one takes the whole page.
inline constexpr std::uint32_t kNoTwinNow = ~std::uint32_t{0};

// Who stored to a page since it was last taken, and what it held before.
struct PageMark {
  ThreadNumber thread = 0;  // 0: clean
  std::uint32_t twin = 0;   // index + 1 among the twins; 0: there is none. Of a clean page 0 or kNoTwinNow
};

// Pages are protected in one of two ways. At first by mprotect(2), on the mapping over home: a mapping of its own for each page
// stored to, which costs the kernel some 6 us. A chunk that was stored to a few times is *adopted*: moved to anonymous memory,
// where userfaultfd's write protection works on the page tables alone, at half the price (on a file's mapping Linux has it
// only in the form that tells nobody). The chunk's pages are made in the mirror, out of everybody's sight, and appear in their
// place at once, read-only until they are protected one by one.
inline constexpr std::uint64_t kChunkBytes = 64 * kKiB;
inline constexpr std::uint64_t kChunkPages = kChunkBytes / kPageBytes;
inline constexpr std::uint8_t kAdoptAfter = 4;   // faults; by then the move, some 60 us, is as good as paid
inline constexpr std::uint8_t kRefused = 253;    // the kernel would not have it moved: mprotect for good
inline constexpr std::uint8_t kAnonymous = 254;  // moved, but only mprotect works
inline constexpr std::uint8_t kAdopted = 255;

// What the handler keeps of one region. Untouched parts of the arrays cost no memory. Everything under `busy`, which is held
// by the handler around "copy the twin, mark, make writable" and by a capture around "take the marks, protect": between two
// halves of either, another thread must not see a page that is writable but not marked.
struct FaultPages {
  PageMark* marks = nullptr;       // one a page
  std::uint32_t* dirty = nullptr;  // numbers of the marked pages, in no order
  std::uint64_t dirty_count = 0;
  std::uint64_t unknown_count = 0;   // pages marked kUnknownThread
  std::uint8_t* prepared = nullptr;  // one a page: not 0 from prepare() until it is taken
  std::uint64_t prepared_count = 0;
  std::byte* twins = nullptr;
  std::uint32_t* free_twins = nullptr;
  std::uint32_t free_count = 0;
  std::uint32_t next_twin = 0;
  std::uint32_t twins_max = 0;
  std::byte* base = nullptr;
  std::uint64_t bytes = 0;         // of the region
  std::uint8_t* chunks = nullptr;  // one a chunk: faults seen, or a state from kRefused on
  std::byte* mirror = nullptr;     // as many addresses as the region may have
  int uffd = -1;  // -1: no chunk is adopted; those that were have nothing but mprotect (a forked child's)

  [[nodiscard]] bool adopted(std::uint64_t page) const { return chunks[page / kChunkPages] == kAdopted; }
  [[nodiscard]] bool anonymous(std::uint64_t page) const { return chunks[page / kChunkPages] >= kAnonymous; }
  // The end of the pages from `first` on that are protected in the same way, at most `end`.
  [[nodiscard]] std::uint64_t same_kind_until(std::uint64_t first, std::uint64_t end) const;
};

// Protects pages, or makes them writable. False, with errno, when the kernel refuses. Under busy.
bool set_writable(const FaultPages& pages, std::uint64_t first, std::uint64_t end, bool writable);

struct FaultRegion {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};  // 0: the entry is free
  FaultPages* pages = nullptr;         // null: faults only wait until the region is writable again
  std::atomic<bool> busy{false};
  // Whose it is: twice the process_mark(), and 1 more while a forked child makes it its own.
  std::atomic<std::uint64_t> process{0};
  // Under busy.
  std::uint64_t releases = 0;  // of its memory, so far
  bool shut = false;           // where pages is null: some pages may be read-only, after or in a release
};

// Installs the handler, once a process, and takes a table entry.
Result<FaultRegion*> claim_fault_region(std::byte* base, std::uint64_t bytes, FaultPages* pages);
void release_fault_region(FaultRegion* region);

// Marks the page as stored to by `thread`, with its twin, and makes it writable. False when the kernel refuses. Under busy.
bool take_page(FaultRegion& region, std::uint64_t page, ThreadNumber thread);

// Holds a region against the handler. Signals wait meanwhile: a handler of the program's own that stored to the region in this
// very thread would wait for ever. So would one that interrupted another thread in the midst of malloc(3) or fork(2), or of ours, if
// the holder waited for the lock that this one has: who holds a region allocates nothing and takes no lock.
class FaultHold {
 public:
  explicit FaultHold(FaultRegion& region);
  ~FaultHold();
  FaultHold(const FaultHold&) = delete;
  FaultHold& operator=(const FaultHold&) = delete;

 private:
  FaultRegion& region_;
  std::uint64_t signals_;  // blocked before
};

}  // namespace memlith::core
