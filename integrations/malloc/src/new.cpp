// libmemlith_new: `new` and `delete` of a program. A thread that has named a heap (memlith::use_heap) allocates in that
// heap; everything else is malloc's, as before.
#include <cstdlib>
#include <new>

#include "divert.hpp"

namespace {

using namespace memlith;

void* allocate_or_null(std::size_t bytes, std::size_t alignment) noexcept {
  if (memlith_heap* const heap = memlith_heap_used(); heap != nullptr)
    return diverted::allocate(heap, bytes, alignment);
  if (alignment <= diverted::kAlignment) return std::malloc(bytes == 0 ? 1 : bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  for (;;) {
    if (void* const block = allocate_or_null(bytes, alignment); block != nullptr) return block;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void* allocate_or_null(std::size_t bytes, std::size_t alignment, const std::nothrow_t&) noexcept {
  try {
    return allocate(bytes, alignment);
  } catch (...) {  // of a handler
    return nullptr;
  }
}

void give_back(void* block) noexcept {
  if (block != nullptr && memlith_heap_owns(block) != 0) {
    diverted::free(block);
  } else {
    std::free(block);
  }
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, diverted::kAlignment); }
void* operator new[](std::size_t bytes) { return allocate(bytes, diverted::kAlignment); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t& none) noexcept {
  return allocate_or_null(bytes, diverted::kAlignment, none);
}
void* operator new[](std::size_t bytes, const std::nothrow_t& none) noexcept {
  return allocate_or_null(bytes, diverted::kAlignment, none);
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t& none) noexcept {
  return allocate_or_null(bytes, static_cast<std::size_t>(alignment), none);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t& none) noexcept {
  return allocate_or_null(bytes, static_cast<std::size_t>(alignment), none);
}
void operator delete(void* block) noexcept { give_back(block); }
void operator delete[](void* block) noexcept { give_back(block); }
void operator delete(void* block, std::size_t) noexcept { give_back(block); }
void operator delete[](void* block, std::size_t) noexcept { give_back(block); }
void operator delete(void* block, std::align_val_t) noexcept { give_back(block); }
void operator delete[](void* block, std::align_val_t) noexcept { give_back(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { give_back(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { give_back(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { give_back(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { give_back(block); }
void operator delete(void* block, std::align_val_t, const std::nothrow_t&) noexcept { give_back(block); }
void operator delete[](void* block, std::align_val_t, const std::nothrow_t&) noexcept { give_back(block); }
