// The regions whose clean pages are protected, and the SIGSEGV handler that serves them. Floor: region, private to the
// trackers.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
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

// What the handler keeps of one region. Untouched parts of the arrays cost no memory. Everything under `busy`, which is held
// by the handler around "copy the twin, mark, make writable" and by a capture around "take the marks, protect": between two
// halves of either, another thread must not see a page that is writable but not marked.
struct FaultPages {
  PageMark* marks = nullptr;       // one a page
  std::uint32_t* dirty = nullptr;  // numbers of the marked pages, in no order
  std::uint64_t dirty_count = 0;
  std::uint64_t unknown_count = 0;  // pages marked kUnknownThread
  std::byte* twins = nullptr;
  std::uint32_t* free_twins = nullptr;
  std::uint32_t free_count = 0;
  std::uint32_t next_twin = 0;
  std::uint32_t twins_max = 0;
};

struct FaultRegion {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};  // 0: the entry is free
  FaultPages* pages = nullptr;         // null: faults only wait until the region is writable again
  std::atomic<bool> busy{false};
};

// Installs the handler, once a process, and takes a table entry.
Result<FaultRegion*> claim_fault_region(std::byte* base, std::uint64_t bytes, FaultPages* pages);
void release_fault_region(FaultRegion* region);

// Marks the page as stored to by `thread`, with its twin, and makes it writable. False when the kernel refuses. Under busy.
bool take_page(FaultRegion& region, std::uintptr_t page, ThreadNumber thread);

// Holds a region against the handler. Signals wait meanwhile: a handler of the program's own that stored to the region in this
// very thread would wait for ever.
class FaultHold {
 public:
  explicit FaultHold(FaultRegion& region);
  ~FaultHold();
  FaultHold(const FaultHold&) = delete;
  FaultHold& operator=(const FaultHold&) = delete;

 private:
  FaultRegion& region_;
  sigset_t signals_;
};

}  // namespace memlith::core
