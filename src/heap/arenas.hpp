// The blocks of a heap: small ones from the slabs of arenas, larger ones from the pages of segments. Floor: heap.
//
// Threads allocate side by side, each from an arena (arena.hpp), under its lock. The structure lock (segments.hpp) is
// taken where an arena has no slab with room, where a slab became empty, and for larger blocks.
//
// In a heap for thread scope (thread_arenas.cpp) each thread has an arena of its own, whose slabs no other thread
// allocates from, so that no page has new blocks of two threads. Slabs say which blocks are in use in copies of their
// bits; the region has the bits, and the blocks of whole pages, as the captures of the threads left them:
//   - The next capture of a thread stores to the region what the thread allocated.
//   - The same for what it freed. A block of its own it may have again before; one of another thread's slab, or of an
//     earlier run, stays taken until then, so that no other thread's commit stores over a block that is in use as long
//     as this thread has not persisted.
//   - Slabs without blocks, segments and the region's growth change nothing that a program sees: they are in the region
//     at once, and the next capture of any thread takes them along.
// Slabs of earlier runs belong to the commons, and so do those of a thread that has ended, when nothing of it waits for
// a capture. A thread takes a slab with room from there only if the tracker knows threads by byte. If it knows pages,
// the threads that use the blocks of such a slab are unknown, so its room is used again when it is empty.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "heap/arena.hpp"
#include "heap/heap_memory.hpp"
#include "heap/segments.hpp"
#include "region/thread_number.hpp"

namespace memlith::core {

// All calls by any thread.
class Arenas {
 public:
  Arenas(const HeapMemory& memory, Segments& segments);

  // A block of at least this size at a multiple of the alignment, a power of two up to a page. Durable with the
  // next persist. Grows the region. `no_space`: the region is at its limit, or the disk is full; nothing changed.
  Result<void*> allocate(std::uint64_t bytes, std::uint64_t alignment) MEMLITH_EXCLUDES(segments_.structure);
  // The same where a slab of the thread's arena has room, which takes nanoseconds; else null, and nothing changed.
  void* allocate_at_once(std::uint64_t bytes, std::uint64_t alignment) noexcept;
  // Gives a block back. `invalid`: no block in use begins there; nothing changed.
  Status free(void* address) MEMLITH_EXCLUDES(segments_.structure);
  // The same for a small block whose slab stays; else false, and nothing changed.
  bool free_at_once(void* address) noexcept;
  // Bytes of the block that begins at the address.
  Result<std::uint64_t> block_bytes(const void* address) MEMLITH_EXCLUDES(segments_.structure);

  // ---- for captures and rollbacks of the region, with the structure lock held
  // Takes the locks of all arenas, in order of their numbers, and gives them back.
  void hold();
  void let_go();
  // Within hold() and let_go(): no arena has a slab.
  void forget();
  // In a heap for thread scope: from now on the region has what the thread (kAllThreads: each of them) has allocated
  // and, with `frees`, lacks what it has freed.
  void store_changes(ThreadNumber thread, bool frees);
  // That is captured.
  void changes_are_captured(ThreadNumber thread);
  // In a heap for thread scope, the owner of the slabs of earlier runs.
  SlabArena& commons() { return all_[0]; }

 private:
  static constexpr std::uint32_t kArenas = 16;

  // The calling thread's arena. Null: it has none yet, in a heap for thread scope.
  SlabArena* mine_at_once() {
    return memory_.by_thread() ? arena_of_thread_at_once() : &all_[this_thread_number() % count_];
  }
  SlabArena& mine() MEMLITH_REQUIRES(segments_.structure) {
    return memory_.by_thread() ? arena_of_thread() : all_[this_thread_number() % count_];
  }
  SlabArena* arena_of_thread_at_once();
  SlabArena& arena_of_thread() MEMLITH_REQUIRES(segments_.structure);
  SlabArena& make_arena_of_thread() MEMLITH_REQUIRES(segments_.structure);
  void free_in_slab_of_other(SlabArena& arena, Slab& slab, std::uint32_t block);
  bool take_from_commons(SlabArena& arena, std::uint32_t size_class) MEMLITH_REQUIRES(segments_.structure);
  void* take(SlabArena& arena, Slab& slab) MEMLITH_REQUIRES(arena.mutex);
  // True where the slab is empty now, and to be retired.
  Result<bool> give(Slab& slab, std::byte* address);
  // On ok the arena had a slab of the class with room, and other threads of the arena may have taken it since.
  Status acquire_slab(SlabArena& arena, std::uint32_t size_class) MEMLITH_REQUIRES(segments_.structure);
  bool steal_slab(SlabArena& arena, std::uint32_t size_class, bool any) MEMLITH_REQUIRES(segments_.structure);
  static bool move_slab(SlabArena& from, SlabArena& to, std::uint32_t size_class, bool any)
      MEMLITH_REQUIRES(from.mutex, to.mutex);

  const HeapMemory memory_;
  Segments& segments_;
  const std::uint32_t count_;
  std::array<SlabArena, kArenas> all_;  // for thread scope, the commons and no other
  // For thread scope: one a thread, also of threads that have ended.
  std::vector<std::unique_ptr<SlabArena>> of_threads_ MEMLITH_GUARDED_BY(segments_.structure);
  const std::uint64_t number_;  // of this object, among all that were
};

}  // namespace memlith::core
