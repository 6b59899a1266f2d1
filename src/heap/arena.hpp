// Slabs with room, which the threads of an arena allocate from under a lock of their own. Floor: heap.
//
// To which arena a slab belongs is remembered in memory only: a crash does not have to know. A heap for thread scope
// has an arena for each thread, which also keeps what the thread allocated and freed and has not persisted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/sync.hpp"
#include "heap/segment.hpp"
#include "region/thread_number.hpp"

namespace memlith::core {

struct alignas(64) SlabArena {
  // A block of another arena's slab that the thread has freed.
  struct Leaving {
    Slab* slab = nullptr;
    std::uint32_t block = 0;
  };

  Mutex mutex;
  std::array<Slab*, kClasses> first MEMLITH_GUARDED_BY(mutex){};  // of the slabs with room, by class
  std::array<Slab*, kClasses> last MEMLITH_GUARDED_BY(mutex){};

  // ---- of a thread, what its next capture stores to the region. Changed by that thread under the lock of an arena, or
  // the structure lock; read with all of them.
  ThreadNumber thread = 0;
  std::shared_ptr<const std::atomic<bool>> ended;  // the thread has
  Slab* changed = nullptr;                         // slabs of this arena
  std::vector<Leaving> leaving;
  std::vector<std::uint64_t> placed;   // offsets of blocks of whole pages
  std::vector<std::uint64_t> removed;  // the same, freed; also of other arenas

  [[nodiscard]] bool has_all_captured() const {
    return changed == nullptr && leaving.empty() && placed.empty() && removed.empty();
  }
  void note_changed(Slab* slab) MEMLITH_REQUIRES(mutex) {
    if (std::exchange(slab->changed, true)) return;
    slab->next_changed = std::exchange(changed, slab);
  }

  // The slabs are those that this arena owns.
  void list(Slab* slab) MEMLITH_REQUIRES(mutex) {
    MEMLITH_DCHECK(!slab->listed && !slab->full());
    slab->previous = last[slab->size_class];
    slab->next = nullptr;
    (slab->previous != nullptr ? slab->previous->next : first[slab->size_class]) = slab;
    last[slab->size_class] = slab;
    slab->listed = true;
  }
  void unlist(Slab* slab) MEMLITH_REQUIRES(mutex) {
    MEMLITH_DCHECK(slab->listed);
    MEMLITH_DCHECK(slab->previous != nullptr || first[slab->size_class] == slab);
    MEMLITH_DCHECK(slab->next != nullptr || last[slab->size_class] == slab);
    (slab->previous != nullptr ? slab->previous->next : first[slab->size_class]) = slab->next;
    (slab->next != nullptr ? slab->next->previous : last[slab->size_class]) = slab->previous;
    slab->listed = false;
  }

  // Takes a block of a listed slab; returns its number.
  std::uint32_t take(Slab* slab) MEMLITH_REQUIRES(mutex) {
    MEMLITH_DCHECK(slab->listed && !slab->full());
    std::uint32_t word = slab->first_word;
    while (slab->bits[word] == ~std::uint64_t{0}) ++word;
    const std::uint64_t bits = slab->bits[word];
    slab->first_word = word;
    slab->bits[word] = bits | (bits + 1);  // the lowest zero becomes a one
    if (++slab->used == slab->blocks) unlist(slab);
    return word * 64 + static_cast<std::uint32_t>(std::countr_one(bits));
  }
  // Gives one back. True where the slab is empty now, and not the arena's only one of its class with room: the slab is
  // out of the list then, and free for all.
  bool give(Slab* slab, std::uint32_t block) MEMLITH_REQUIRES(mutex) {
    put_back(slab, block);
    return give_up(slab);
  }
  void put_back(Slab* slab, std::uint32_t block) MEMLITH_REQUIRES(mutex) {
    MEMLITH_DCHECK(block < slab->blocks && slab->used > 0 && slab->in_use(block));
    const std::uint32_t word = block / 64;
    slab->bits[word] &= ~(std::uint64_t{1} << block % 64);
    if (word < slab->first_word) slab->first_word = word;
    --slab->used;
    if (!slab->listed) list(slab);
  }
  bool give_up(Slab* slab, bool keeps_one = true) MEMLITH_REQUIRES(mutex) {
    if (slab->used > 0 || (keeps_one && first[slab->size_class] == last[slab->size_class])) return false;
    unlist(slab);
    slab->owner.store(nullptr);
    return true;
  }
};

}  // namespace memlith::core
