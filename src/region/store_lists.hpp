// The stores that instrumented code reports: a list for each thread, with the ranges that the thread stored to since
// they were last taken. Floor: region.
//
// record() comes after each store of instrumented code to a region, so it takes no lock, no atomic read-modify-write
// and no fence. Only the owner of a list writes `pushed`; only a thread that takes the list's ranges writes `taken`.
// The taker moves `taken` first, then lets every running thread of the process pass a barrier (membarrier), and reads
// the ranges after that. So a store whose owner still saw the old `taken` is visible to the taker, who copies memory
// later; an owner that saw the new `taken` adds its range again. No store is forgotten. At worst a range is taken
// twice.
//
// Every function here but take_stores() and settle_stores() may run in a signal handler, also in one that interrupted
// another of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "region/thread_number.hpp"

namespace memlith::core {

// Addresses of stored bytes.
struct StoredRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

struct StoredBy {
  StoredRange range;
  ThreadNumber thread = 0;
};

// The calling thread stored to [begin, end).
void record_store(std::uintptr_t begin, std::uintptr_t end) noexcept;

// Around an atomic access of the calling thread, by which another thread may learn of this thread's stores before
// record_store() ran: between the two calls the range counts as stored to. `stored` is false if the access turned out
// to change nothing.
void begin_atomic_store(std::uintptr_t begin, std::uintptr_t end) noexcept;
void end_atomic_store(std::uintptr_t begin, std::uintptr_t end, bool stored) noexcept;

// The calling thread is about to store to [begin, end), perhaps several times: the range counts as stored to from now
// on, and each taking gives it, until one that comes after the thread settled. A thread settles when it takes stores
// itself, when it ends, and with settle_stores(), which no signal handler calls: all that it announced has been stored.
void announce_store(std::uintptr_t begin, std::uintptr_t end) noexcept;
void settle_stores() noexcept;

// Appends what `thread` (kAllThreads: any thread) stored to in [begin, end) since the last call that covered the
// thread, and forgets it. May append a range twice. On failure, or if std::bad_alloc is thrown, nothing is forgotten
// that was not appended.
Status take_stores(ThreadNumber thread, StoredRange memory, std::vector<StoredBy>& taken);

// The addresses that instrumented code compares with before it calls record_store(): a cell of each module of the
// program. Both ends are compared by themselves, and while memory is watched the cells only widen, so that a thread
// that sees one new end and one old one misses nothing. They begin and end a margin outside of the watched memory: the
// code may compare the address of an object instead of that of its field (MEMLITH_TRACK_MARGIN in memlith/track.h).
inline constexpr std::uintptr_t kTrackedMargin = 4096;
struct TrackedAddresses {
  std::uintptr_t low = ~std::uintptr_t{0};
  std::uintptr_t high = 0;
};
void add_tracked_addresses(TrackedAddresses* cell) noexcept;
void remove_tracked_addresses(TrackedAddresses* cell) noexcept;

// From now on instrumented code records its stores to this memory.
Status watch_stores(StoredRange memory);
// Forgets what was stored to it. No thread stores to it any more.
void unwatch_stores(StoredRange memory) noexcept;

}  // namespace memlith::core
