// The regions whose clean pages are protected, and the SIGSEGV handler that serves them. Floor: region, private to the
// trackers and to EqualPages.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/host.hpp"
#include "base/status.hpp"
#include "base/units.hpp"
#include "region/thread_check.hpp"
#include "region/thread_number.hpp"

namespace memlith::core {

// Signal masks as the kernel has them. The C library's calls never block the signals with which it cancels threads and
// changes users, and a thread that was cancelled while it held a region would hold it forever.
using SignalSet = std::uint64_t;
constexpr SignalSet bit_of(int signal) { return SignalSet{1} << (signal - 1); }

// The page is dirty, but the thread that wrote it is unknown.
inline constexpr ThreadNumber kUnknownThread = ~ThreadNumber{0};

// The page is left open (Tracker::leave_open): writable, without a twin, and not among the dirty pages.
inline constexpr ThreadNumber kLeftOpen = ~ThreadNumber{1};

// For a clean page that is being captured. Its content at the time of a store may differ from what the capture copies,
// so it cannot serve as the twin of the next capture, which takes the whole page.
inline constexpr std::uint32_t kNoTwinNow = ~std::uint32_t{0};

// The thread that stored to a page since its last capture, and the page's twin.
struct PageMark {
  ThreadNumber thread = 0;  // 0: clean
  std::uint32_t twin = 0;   // index + 1 among the twins; 0: there is none. For a clean page 0 or kNoTwinNow
};

// Pages are protected in one of two ways. At first by mprotect(2), on the mapping over the home file: each dirty page
// is a mapping of its own, which costs about 6 us. A chunk that was stored to a few times is *adopted*: moved to
// anonymous memory, where userfaultfd's write protection changes page tables only, at half the price (on a mapping of a
// file, Linux offers it only in the asynchronous form). The chunk's pages are created in the mirror, invisible to other
// threads, and appear in their place at once, read-only until they are protected one by one.
inline constexpr std::uint64_t kChunkBytes = 64 * kKiB;
inline constexpr std::uint64_t kChunkPages = kChunkBytes / kPageBytes;
static_assert(kChunkBytes % kHostPageBytesMax == 0);
inline constexpr std::uint8_t kAdoptAfter = 4;  // faults; from then on the move, about 60 us, pays for itself
// Pages of a chunk that one capture found changed. From this number on they are a pattern: at the next store to one,
// all clean pages of the chunk become writable. A page that is opened in vain costs 0.6 us, and a fault that is saved
// is worth 5 us.
inline constexpr std::uint8_t kPatternPages = 3;
inline constexpr std::uint8_t kRefused = 253;    // the kernel refused the move: mprotect forever
inline constexpr std::uint8_t kAnonymous = 254;  // moved, but only mprotect works
inline constexpr std::uint8_t kAdopted = 255;

// For MEMLITH_CHECK_THREADS: the stores of two threads to one page.
struct WatchedPage {
  StorePlace first;
  StorePlace second;  // of another thread than the first
  bool reported = false;
};

// The handler's state of one region. Unused parts of the arrays take no memory. Everything is guarded by `busy`, which
// the handler holds while it copies the twin, marks the page and makes it writable, and a capture while it takes the
// marks and protects: in between, another thread must not see a page that is writable but not marked.
//
// The kernel may protect several pages at once: a *unit*. When a unit becomes writable, all of its pages are marked; a
// unit of which some are marked may be protected, and then the next store to it faults once more.
struct FaultPages {
  PageMark* marks = nullptr;       // one a page
  WatchedPage* watched = nullptr;  // one a page: every store is seen (store_steps.hpp); null: the first one is
  std::uint32_t* dirty = nullptr;  // numbers of the marked pages, in no order
  std::uint64_t dirty_count = 0;
  std::uint64_t unknown_count = 0;   // pages marked kUnknownThread
  std::uint8_t* prepared = nullptr;  // one per page: not 0 from prepare() until the page is captured
  std::uint64_t prepared_count = 0;
  std::atomic<std::uint8_t>* opened = nullptr;  // one per page: not 0 while it is marked; a hint, read without busy
  std::uint8_t* stored = nullptr;               // one per chunk: its pages in which its last capture found something
  bool opens_neighbours = false;                // no capture asks which thread stored where
  std::byte* twins = nullptr;
  std::uint32_t* free_twins = nullptr;
  std::uint32_t free_count = 0;
  std::uint32_t next_twin = 0;
  std::uint32_t twins_max = 0;
  std::byte* base = nullptr;
  std::uint64_t bytes = 0;                                    // of the region, in whole units
  const std::uint64_t unit = host_page_bytes() / kPageBytes;  // pages
  std::uint8_t* chunks = nullptr;  // one per chunk: the number of faults, or a state from kRefused on
  std::byte* mirror = nullptr;     // as many addresses as the region may grow to
  int uffd = -1;                   // -1: no chunk is adopted; chunks that were adopted use mprotect (in a forked child)

  [[nodiscard]] bool adopted(std::uint64_t page) const { return chunks[page / kChunkPages] == kAdopted; }
  [[nodiscard]] bool anonymous(std::uint64_t page) const { return chunks[page / kChunkPages] >= kAnonymous; }
  // The end of the run of pages from `first` on that are protected in the same way, at most `end`.
  [[nodiscard]] std::uint64_t same_kind_until(std::uint64_t first, std::uint64_t end) const;
};

// Protects the units of pages [first, end), or makes them writable. False, with errno, when the kernel refuses. Under
// busy.
bool set_writable(const FaultPages& pages, std::uint64_t first, std::uint64_t end, bool writable);

// Marks the clean pages in the units of [first, end) as stored to by `thread`, but for those of [first, end) itself.
// Under busy.
void mark_neighbours(FaultPages& pages, std::uint64_t first, std::uint64_t end, ThreadNumber thread);

// Copies a page, which no thread changes meanwhile, to a free twin. Returns its index + 1; 0: all twins are in use.
// Under busy.
std::uint32_t copy_twin(FaultPages& pages, const std::byte* page);

// Bytes [begin, end) are whole pages: those that are marked count as stored to by `thread`. Under busy.
void mark_for(FaultPages& pages, std::uint64_t begin, std::uint64_t end, ThreadNumber thread);

// The twins of marked pages get what the bytes [begin, end) are now. Under busy.
void copy_to_twins(FaultPages& pages, std::uint64_t begin, std::uint64_t end);

struct FaultRegion {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};  // 0: the entry is free
  FaultPages* pages = nullptr;         // null: a fault only waits until the region is writable again
  std::atomic<bool> busy{false};
  // The owner: twice its process_mark(), plus 1 while a forked child takes the entry over.
  std::atomic<std::uint64_t> process{0};
  // Under busy.
  std::uint64_t releases = 0;  // releases of its memory so far
  bool shut = false;           // if pages is null: some pages may be read-only, during or after a release
};

// From the return on, fork(2) waits while the handler is being installed: the kernel copies the handlers before the
// memory, and a child without the handler, but with read-only pages, would end at its first store. Called when a
// tracker attaches, long before its first read-only page; a fork under way then is over by the installation.
void order_forks_before_handler();
// Held while a handler is being installed.
std::mutex& installing_handlers();

// Installs the handler, once per process, and claims a table entry.
Result<FaultRegion*> claim_fault_region(std::byte* base, std::uint64_t bytes, FaultPages* pages);
void release_fault_region(FaultRegion* region);

// Marks the clean pages in the units of [first, end) as stored to by `thread`, with their twins, and makes the units
// writable. False when the kernel refuses. Under busy.
bool take_pages(FaultRegion& region, std::uint64_t first, std::uint64_t end, ThreadNumber thread);
// The same for a page that was stored to, and for its clean neighbours if the chunk's last capture found many pages.
bool take_stored_page(FaultRegion& region, std::uint64_t page, ThreadNumber thread);

// The thread is about to store there. For pages that are watched. Under busy.
void note_store(FaultPages& pages, std::uint64_t page, ThreadNumber thread, std::uint64_t offset, std::uintptr_t code);
// A store to a page that is watched is done: the next one is seen, too.
void protect_watched_page(FaultRegion& region, std::uint64_t page);

// Holds a region against the handler, with signals blocked: a signal handler of the program that stored to the region
// in this thread would wait forever. So would one that interrupted another thread in malloc(3), fork(2) or memlith's
// code, if the holder waited for a lock of that thread. Therefore the holder of a region allocates nothing and takes no
// lock.
class FaultHold {
 public:
  explicit FaultHold(FaultRegion& region);
  ~FaultHold();
  FaultHold(const FaultHold&) = delete;
  FaultHold& operator=(const FaultHold&) = delete;

 private:
  FaultRegion& region_;
  SignalSet signals_;  // blocked before
};

}  // namespace memlith::core
