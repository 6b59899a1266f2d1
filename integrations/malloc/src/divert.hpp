// Where the two libraries of this plugin decide which memory is meant. Neither allocates by itself.
//
// A block goes back to where it came from, by its address, whatever heap the thread uses by now. What lies in a heap
// that is closed is gone with the heap.
#pragma once

#include <cstddef>

#include "memlith/heap.h"
#include "private/inside.h"

namespace memlith::diverted {

constexpr std::size_t kAlignment = alignof(std::max_align_t);

// A block of the heap that this thread uses; null where the heap has no room.
void* allocate(memlith_heap* heap, std::size_t bytes, std::size_t alignment) noexcept;
// Frees a block that memlith_heap_owns. Ends the process if no block begins there: the program's heap is damaged.
void free(void* block) noexcept;

}  // namespace memlith::diverted
