#include "heap/arenas.hpp"

#include <algorithm>

namespace memlith::core {

namespace {

constexpr std::uint32_t kLooksForSlab = 16;  // segments that are looked at before a new slab is made

std::atomic<std::uint64_t> g_arenas{0};

}  // namespace

Arenas::Arenas(const HeapMemory& memory, Segments& segments)
    : memory_(memory),
      segments_(segments),
      count_(memory.by_thread() ? 1 : std::clamp(2 * processors(), 1u, kArenas)),
      number_(++g_arenas) {}

// ---- allocate --------------------------------------------------------------------------------------------------

Result<void*> Arenas::allocate(std::uint64_t bytes, std::uint64_t alignment) {
  if (void* const quick = allocate_at_once(bytes, alignment); quick != nullptr) return quick;
  MEMLITH_TRY(memory_.check_writable());
  if (!is_power_of_two(alignment) || alignment > kPageBytes) {
    return fail(Errc::invalid, Detail::argument, "an alignment of {}; it is a power of two up to {}", alignment,
                kPageBytes);
  }
  const std::uint32_t size_class = class_of(bytes, alignment);
  if (size_class == kClasses && bytes > memory_.header().reserve_bytes) return memory_.full(bytes);
  const LockGuard structure(segments_.structure);
  SlabArena& arena = mine();
  if (size_class == kClasses) {
    const std::uint64_t pages = round_up(std::max<std::uint64_t>(bytes, 1), kPageBytes) / kPageBytes;
    MEMLITH_TRY_ASSIGN(std::byte* const block, segments_.allocate(arena, static_cast<std::uint32_t>(pages)));
    memory_.announce(block, pages);
    return static_cast<void*>(block);
  }
  for (;;) {
    MEMLITH_TRY(acquire_slab(arena, size_class));
    const LockGuard lock(arena.mutex);
    if (Slab* const slab = arena.first[size_class]; slab != nullptr) return take(arena, *slab);
    // Other threads of the arena have used up the slab since.
  }
}

void* Arenas::allocate_at_once(std::uint64_t bytes, std::uint64_t alignment) noexcept {
  if (bytes > kSmallBytesMax || alignment > kPageBytes || !is_power_of_two(alignment)) return nullptr;
  if (!memory_.can_change_at_once()) return nullptr;
  const std::uint32_t size_class = class_of(bytes, alignment);
  if (size_class == kClasses) return nullptr;
  SlabArena* const arena = mine_at_once();
  if (arena == nullptr) return nullptr;
  const LockGuard lock(arena->mutex);
  Slab* const slab = arena->first[size_class];
  return slab == nullptr ? nullptr : take(*arena, *slab);
}

void* Arenas::take(SlabArena& arena, Slab& slab) {
  MEMLITH_DCHECK(slab.owner.load(std::memory_order_relaxed) == &arena);
  const std::uint32_t block = arena.take(&slab);
  MEMLITH_DCHECK(block < slab.blocks);
  if (memory_.by_thread()) {
    arena.note_changed(&slab);
  } else {
    memory_.wrote(&slab.bits[block / 64], sizeof(std::uint64_t));
  }
  return slab.base + std::uint64_t{block} * slab.block_bytes;
}

// ---- free ------------------------------------------------------------------------------------------------------

Status Arenas::free(void* address) {
  MEMLITH_TRY(memory_.check_writable());
  const std::uint64_t offset = memory_.offset_of(address);
  if (offset >= memory_.region().size()) return memory_.no_block(offset, "it lies outside of the heap");
  Slab* slab = segments_.loaded_slab(offset);
  if (slab == nullptr) {
    const LockGuard structure(segments_.structure);
    MEMLITH_TRY_ASSIGN(slab, segments_.slab_at(offset, mine()));
    if (slab == nullptr) return segments_.free(mine(), offset);
  }
  MEMLITH_TRY_ASSIGN(const bool empty, give(*slab, static_cast<std::byte*>(address)));
  if (empty) {
    const LockGuard structure(segments_.structure);
    segments_.retire(*slab);
  }
  return kOk;
}

Result<bool> Arenas::give(Slab& slab, std::byte* address) {
  const std::uint32_t block = slab.block_at(address);
  const std::uint64_t offset = memory_.offset_of(address);
  if (block == slab.blocks) return memory_.no_block(offset, "it lies inside of a block");
  SlabArena* own = mine_at_once();
  if (own == nullptr) {
    const LockGuard structure(segments_.structure);
    own = &mine();
  }
  for (;;) {
    SlabArena* const owner = slab.owner.load(std::memory_order_acquire);
    if (owner == nullptr) return memory_.no_block(offset, "it was freed before");
    const LockGuard lock(owner->mutex);
    if (slab.owner.load(std::memory_order_relaxed) != owner) continue;  // another arena has taken it over
    if (!slab.in_use(block) || slab.is_leaving(block)) return memory_.no_block(offset, "it was freed before");
    if (memory_.by_thread()) {
      if (owner != own) {
        free_in_slab_of_other(*own, slab, block);
      } else {
        owner->put_back(&slab, block);
        owner->note_changed(&slab);
      }
      return false;
    }
    const bool empty = owner->give(&slab, block);
    memory_.wrote(&slab.bits[block / 64], sizeof(std::uint64_t));
    return empty;
  }
}

bool Arenas::free_at_once(void* address) noexcept {
  auto* const block_begin = static_cast<std::byte*>(address);
  const std::uint64_t offset = memory_.offset_of(block_begin);
  if (offset >= memory_.region().size() || !memory_.can_change_at_once()) return false;
  Slab* const slab = segments_.loaded_slab(offset);
  if (slab == nullptr) return false;
  const std::uint32_t block = slab->block_at(block_begin);
  SlabArena* const owner = slab->owner.load(std::memory_order_acquire);
  if (block == slab->blocks || owner == nullptr) return false;
  const LockGuard lock(owner->mutex);
  if (slab->owner.load(std::memory_order_relaxed) != owner || !slab->in_use(block) || slab->used == 1) return false;
  if (memory_.by_thread()) {
    if (owner != mine_at_once() || slab->is_leaving(block)) return false;
    owner->note_changed(slab);
  }
  owner->put_back(slab, block);
  return true;
}

Result<std::uint64_t> Arenas::block_bytes(const void* address) {
  const std::uint64_t offset = memory_.offset_of(address);
  if (offset >= memory_.region().size()) return memory_.no_block(offset, "it lies outside of the heap");
  const LockGuard structure(segments_.structure);
  MEMLITH_TRY_ASSIGN(const Slab* const slab, segments_.slab_at(offset, mine()));
  if (slab == nullptr) return segments_.block_bytes(offset);
  const std::uint32_t block = slab->block_at(static_cast<const std::byte*>(address));
  if (block == slab->blocks) return memory_.no_block(offset, "it lies inside of a block");
  // Constant under the structure lock, unless the slab is empty.
  SlabArena* const owner = slab->owner.load(std::memory_order_acquire);
  if (owner == nullptr) return memory_.no_block(offset, "the block is free");
  const LockGuard lock(owner->mutex);
  if (!slab->in_use(block) || slab->is_leaving(block)) return memory_.no_block(offset, "the block is free");
  return std::uint64_t{slab->block_bytes};
}

// ---- slabs of an arena -----------------------------------------------------------------------------------------

Status Arenas::acquire_slab(SlabArena& arena, std::uint32_t size_class) {
  const auto enough = [&] {
    const LockGuard lock(arena.mutex);
    return arena.first[size_class] != nullptr;
  };
  if (enough()) return kOk;
  if (memory_.by_thread()) {
    const auto taken = [&]() MEMLITH_REQUIRES(segments_.structure) { return take_from_commons(arena, size_class); };
    if (!memory_.parts_pages() && taken()) return kOk;
    if (!memory_.parts_pages()) MEMLITH_TRY(segments_.load_next(arena, kLooksForSlab, taken));
  } else {
    MEMLITH_TRY(segments_.load_next(arena, kLooksForSlab, enough));
  }
  if (enough()) return kOk;
  const std::uint32_t pages = kSizeClasses[size_class].pages;
  Segments::SegmentPage at;
  if (!segments_.find_in_loaded(pages, at)) {
    if (steal_slab(arena, size_class, false)) return kOk;
    const Result<Segments::SegmentPage> found = segments_.find_pages(arena, pages);
    if (!found.ok()) {
      // Everything is loaded by now: the room that is left is in slabs.
      if (found.error().category == Errc::no_space && (enough() || steal_slab(arena, size_class, true))) return kOk;
      return found.error();
    }
    at = *found;
  }
  memory_.announce(memory_.page_at(at.segment->number(), at.page), pages);
  segments_.make_slab(at, size_class, arena);
  return kOk;
}

// Takes a slab with room over from another arena. Here a thread holds the locks of two arenas, in the order of hold().
bool Arenas::steal_slab(SlabArena& arena, std::uint32_t size_class, bool any) {
  if (memory_.by_thread()) return false;
  for (std::uint32_t i = 0; i < count_; ++i) {
    SlabArena& other = all_[i];
    if (&other < &arena) {
      const LockGuard lock_of_other(other.mutex);
      const LockGuard lock(arena.mutex);
      if (move_slab(other, arena, size_class, any)) return true;
    } else if (&other > &arena) {
      const LockGuard lock(arena.mutex);
      const LockGuard lock_of_other(other.mutex);
      if (move_slab(other, arena, size_class, any)) return true;
    }
  }
  return false;
}

// Moves a slab with room from one arena to the other; unless `any`, one that is a quarter free at least.
bool Arenas::move_slab(SlabArena& from, SlabArena& to, std::uint32_t size_class, bool any) {
  MEMLITH_ASSERT(&from != &to && size_class < kClasses);
  for (Slab* slab = from.first[size_class]; slab != nullptr; slab = slab->next) {
    if (!any && slab->used * 4 > slab->blocks * 3) continue;
    MEMLITH_ASSERT(slab->owner.load(std::memory_order_relaxed) == &from && slab->listed && !slab->full());
    from.unlist(slab);
    slab->owner.store(&to, std::memory_order_release);
    to.list(slab);
    return true;
  }
  return false;
}

// ---- captures and rollbacks ------------------------------------------------------------------------------------

// Any number of locks, which the analysis cannot follow; the one of the structure stands for all.
void Arenas::hold() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  for (std::uint32_t i = 0; i < count_; ++i) all_[i].mutex.lock();
  for (const auto& arena : of_threads_) arena->mutex.lock();
}

void Arenas::let_go() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  for (const auto& arena : of_threads_) arena->mutex.unlock();
  for (std::uint32_t i = count_; i > 0; --i) all_[i - 1].mutex.unlock();
}

void Arenas::forget() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  const auto empty = [](SlabArena& arena) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
    arena.first.fill(nullptr);
    arena.last.fill(nullptr);
    arena.changed = nullptr;
    arena.leaving.clear();
    arena.placed.clear();
    arena.removed.clear();
  };
  for (SlabArena& arena : all_) empty(arena);
  for (const auto& arena : of_threads_) empty(*arena);
}

}  // namespace memlith::core
