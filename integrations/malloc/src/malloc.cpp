// libmemlith_malloc: `malloc`, `free` and their relatives of a process, linked or preloaded; `new` and `delete` are
// made of them. A thread that has named a heap (memlith::use_heap, memlith_heap_use) allocates in that heap; everything
// else is glibc's, as before. A block that is resized stays in its heap.
#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "divert.hpp"
#include "memlith/track.h"

// The names of glibc's own functions, beside those that a program may replace.
extern "C" {
void* __libc_malloc(std::size_t);
void __libc_free(void*);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

using namespace memlith;

bool is_power_of_two(std::size_t number) { return number != 0 && (number & (number - 1)) == 0; }

void* out_of_memory() {
  errno = ENOMEM;
  return nullptr;
}

void* allocate_in(memlith_heap* heap, std::size_t bytes, std::size_t alignment) {
  void* const block = diverted::allocate(heap, bytes, alignment);
  return block != nullptr ? block : out_of_memory();
}

void* allocate_aligned(std::size_t alignment, std::size_t bytes) {
  memlith_heap* const heap = memlith_heap_used();
  return heap == nullptr ? __libc_memalign(alignment, bytes) : allocate_in(heap, bytes, alignment);
}

// Null, with errno, and the block as it was, where the heap has no room.
void* resize_in(memlith_heap* heap, void* block, std::size_t bytes) {
  std::uint64_t before = 0;
  if (memlith_heap_block_bytes(heap, block, &before) != MEMLITH_OK) {
    diverted::free(block);  // says what is wrong with the block
    return out_of_memory();
  }
  if (bytes <= before && bytes >= before / 2) return block;
  void* const moved = allocate_in(heap, bytes, diverted::kAlignment);
  if (moved == nullptr) return bytes <= before ? block : nullptr;
  std::memcpy(moved, block, std::min<std::uint64_t>(before, bytes));
  memlith_track_store(moved, std::min<std::uint64_t>(before, bytes));
  diverted::free(block);
  return moved;
}

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) {
  memlith_heap* const heap = memlith_heap_used();
  return heap == nullptr ? __libc_malloc(bytes) : allocate_in(heap, bytes, diverted::kAlignment);
}

void free(void* block) {
  const int kept = errno;
  if (block != nullptr && memlith_heap_owns(block) != 0) {
    diverted::free(block);
  } else {
    __libc_free(block);
  }
  errno = kept;
}

void* calloc(std::size_t count, std::size_t bytes) {
  memlith_heap* const heap = memlith_heap_used();
  if (heap == nullptr) return __libc_calloc(count, bytes);
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) return out_of_memory();
  void* const block = allocate_in(heap, all, diverted::kAlignment);
  if (block == nullptr) return nullptr;
  std::memset(block, 0, all);
  memlith_track_store(block, all);  // no pass has seen the stores of this library
  return block;
}

void* realloc(void* block, std::size_t bytes) {
  if (block == nullptr) return malloc(bytes);
  if (memlith_heap_owns(block) == 0) return __libc_realloc(block, bytes);
  if (bytes == 0) {
    free(block);
    return nullptr;
  }
  memlith_heap* const heap = memlith_heap_of(block);
  return heap == nullptr ? out_of_memory() : resize_in(heap, block, bytes);
}

void* reallocarray(void* block, std::size_t count, std::size_t bytes) {
  std::size_t all = 0;
  return __builtin_mul_overflow(count, bytes, &all) ? out_of_memory() : realloc(block, all);
}

void* memalign(std::size_t alignment, std::size_t bytes) { return allocate_aligned(alignment, bytes); }
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return allocate_aligned(alignment, bytes); }
void* valloc(std::size_t bytes) { return allocate_aligned(4096, bytes); }
void* pvalloc(std::size_t bytes) { return allocate_aligned(4096, (bytes + 4095) / 4096 * 4096); }

int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int kept = errno;
  void* const made = allocate_aligned(alignment, bytes);
  errno = kept;
  if (made == nullptr) return ENOMEM;
  *block = made;
  return 0;
}

std::size_t malloc_usable_size(void* block) {
  if (block == nullptr) return 0;
  if (memlith_heap_owns(block) != 0) {
    std::uint64_t bytes = 0;
    return memlith_heap_block_bytes(memlith_heap_of(block), block, &bytes) == MEMLITH_OK ? bytes : 0;
  }
  // The one that has no other name.
  static const auto of_glibc = reinterpret_cast<std::size_t (*)(void*)>(::dlsym(RTLD_NEXT, "malloc_usable_size"));
  return of_glibc(block);
}

}  // extern "C"
