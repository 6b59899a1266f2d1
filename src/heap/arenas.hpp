// The blocks of a heap: small ones from the slabs of arenas, larger ones from the pages of segments. Floor: heap.
//
// Threads allocate side by side, each from an arena (arena.hpp), under its lock. The structure lock (segments.hpp) is
// taken where an arena has no slab with room, where a slab became empty, and for larger blocks.
#pragma once

#include <array>
#include <cstdint>

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

 private:
  static constexpr std::uint32_t kArenas = 16;

  SlabArena& mine() { return all_[this_thread_number() % count_]; }
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
  std::array<SlabArena, kArenas> all_;
};

}  // namespace memlith::core
