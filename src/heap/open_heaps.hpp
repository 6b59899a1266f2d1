// Which heap of this process an address belongs to. Floor: heap.
#pragma once

#include <cstdint>

namespace memlith::core {

class Heap;

// The open heap in whose range the address lies, or null. Any thread, beside heaps that are opened and closed.
Heap* open_heap_at(std::uintptr_t address);
// True if the address lies in a heap that is open, or was.
bool heap_was_at(std::uintptr_t address);
// The only heap that is open in this process; null if there is none, or more than one.
Heap* only_open_heap();

void add_open_heap(const void* begin, std::uint64_t bytes, Heap* heap);
void remove_open_heap(const Heap* heap);

}  // namespace memlith::core
