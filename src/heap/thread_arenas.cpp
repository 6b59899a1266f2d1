// The arenas of a heap for thread scope: arenas.hpp says what they promise. Floor: heap.
#include <algorithm>
#include <array>
#include <utility>

#include "heap/arenas.hpp"
#include "region/per_thread.hpp"

namespace memlith::core {

namespace {

// Tells that the thread has ended, for as long as an arena of it is there.
struct ThreadLife {
  std::shared_ptr<std::atomic<bool>> ended = std::make_shared<std::atomic<bool>>(false);
  ~ThreadLife() { ended->store(true, std::memory_order_release); }
};

// The arenas that the thread used last, in heaps of different numbers.
struct Recent {
  std::uint64_t arenas = 0;
  SlabArena* arena = nullptr;
};
constinit thread_local std::array<Recent, 4> t_recent{};

Recent& recent(std::uint64_t arenas) { return t_recent[arenas % t_recent.size()]; }

}  // namespace

SlabArena* Arenas::arena_of_thread_at_once() {
  const Recent& known = recent(number_);
  return known.arenas == number_ ? known.arena : nullptr;
}

SlabArena& Arenas::arena_of_thread() {
  if (SlabArena* const known = arena_of_thread_at_once(); known != nullptr) return *known;
  const ThreadNumber self = this_thread_number();
  const auto found =
      std::find_if(of_threads_.begin(), of_threads_.end(), [self](const auto& each) { return each->thread == self; });
  SlabArena& arena = found == of_threads_.end() ? make_arena_of_thread() : **found;
  recent(number_) = {number_, &arena};
  return arena;
}

// ORDER captured-before-next-thread: pages that the ended thread stored to count as its own until a capture took them,
// and a store of the next thread to such a page would be in none of that thread's commits. [test
// ThreadHeapTest.ArenasOfEndedThreadsAreUsedAgain]
SlabArena& Arenas::make_arena_of_thread() {
  const auto free = std::find_if(of_threads_.begin(), of_threads_.end(), [this](const auto& each) {
    return each->ended->load(std::memory_order_acquire) && each->has_all_captured() &&
           memory_.region().has_nothing_of(each->thread);
  });
  SlabArena& arena = free == of_threads_.end() ? *of_threads_.emplace_back(std::make_unique<SlabArena>()) : **free;
  if (free != of_threads_.end()) segments_.move_slabs(arena, commons());
  arena.thread = this_thread_number();
  arena.ended = of_this_thread<ThreadLife>().ended;
  return arena;
}

// With the lock of the slab's owner. The block stays taken until the thread's capture.
void Arenas::free_in_slab_of_other(SlabArena& arena, Slab& slab, std::uint32_t block) {
  arena.leaving.push_back({&slab, block});
  slab.leaving_word(block) |= std::uint64_t{1} << block % 64;
}

// ---- captures --------------------------------------------------------------------------------------------------

// Any number of arenas' locks is held, which the analysis cannot follow.
void Arenas::store_changes(ThreadNumber thread, bool frees) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  const auto concerns = [thread](const SlabArena& arena) { return thread == kAllThreads || arena.thread == thread; };
  for (const auto& arena : of_threads_) {
    if (!concerns(*arena)) continue;
    for (const Slab* slab = arena->changed; slab != nullptr; slab = slab->next_changed) {
      for (std::uint32_t word = 0; word < slab->words(); ++word) {
        if (slab->stored[word] != slab->bits[word]) memory_.put(slab->stored[word], slab->bits[word]);
      }
    }
    for (const std::uint64_t offset : arena->placed) segments_.place(offset);
  }
  if (!frees) return;
  for (const auto& arena : of_threads_) {
    if (!concerns(*arena)) continue;
    for (const SlabArena::Leaving& each : arena->leaving) {
      std::uint64_t& word = each.slab->stored[each.block / 64];
      memory_.put(word, word & ~(std::uint64_t{1} << each.block % 64));
    }
    for (const std::uint64_t offset : arena->removed) segments_.remove(offset);
  }
}

void Arenas::changes_are_captured(ThreadNumber thread) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  for (const auto& arena : of_threads_) {
    if (thread != kAllThreads && arena->thread != thread) continue;
    std::vector<Slab*> looked;
    while (Slab* const slab = arena->changed) {
      arena->changed = std::exchange(slab->next_changed, nullptr);
      slab->changed = false;
      looked.push_back(slab);
    }
    for (const auto& [slab, block] : arena->leaving) {
      slab->leaving_word(block) &= ~(std::uint64_t{1} << block % 64);
      slab->owner.load()->put_back(slab, block);
      looked.push_back(slab);
    }
    arena->leaving.clear();
    for (const std::uint64_t offset : std::exchange(arena->placed, {})) segments_.was_placed(offset);
    for (const std::uint64_t offset : std::exchange(arena->removed, {})) segments_.was_removed(offset);
    // Slabs without blocks, of which the region does not know blocks either.
    for (Slab* const slab : looked) {
      SlabArena* const owner = slab->owner.load();
      if (owner == nullptr || slab->changed) continue;
      if (owner->give_up(slab, owner != &commons())) segments_.retire(*slab);
    }
  }
}

bool Arenas::take_from_commons(SlabArena& arena, std::uint32_t size_class) {
  SlabArena& from = commons();
  const LockGuard lock_of_commons(from.mutex);
  const LockGuard lock(arena.mutex);
  return move_slab(from, arena, size_class, true);
}

}  // namespace memlith::core
