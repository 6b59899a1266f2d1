#include "heap/open_heaps.hpp"

#include <atomic>
#include <mutex>

#include "base/sync.hpp"

namespace memlith::core {

namespace {

// Never freed, and its range never changes, so that readers need no lock: a heap that is opened again finds its own.
struct OpenRange {
  const std::uintptr_t begin;
  const std::uintptr_t end;
  OpenRange* const next;
  std::atomic<Heap*> heap;
};

std::atomic<OpenRange*> g_first{nullptr};
std::mutex g_mutex;  // of those who add and remove

}  // namespace

Heap* open_heap_at(std::uintptr_t address) {
  for (const OpenRange* range = g_first.load(std::memory_order_acquire); range != nullptr; range = range->next) {
    if (address < range->begin || address >= range->end) continue;
    if (Heap* const heap = range->heap.load(std::memory_order_acquire); heap != nullptr) return heap;
  }
  return nullptr;
}

bool heap_was_at(std::uintptr_t address) {
  for (const OpenRange* range = g_first.load(std::memory_order_acquire); range != nullptr; range = range->next) {
    if (address >= range->begin && address < range->end) return true;
  }
  return false;
}

Heap* only_open_heap() {
  Heap* found = nullptr;
  for (const OpenRange* range = g_first.load(std::memory_order_acquire); range != nullptr; range = range->next) {
    Heap* const heap = range->heap.load(std::memory_order_acquire);
    if (heap == nullptr) continue;
    if (found != nullptr) return nullptr;
    found = heap;
  }
  return found;
}

void add_open_heap(const void* begin, std::uint64_t bytes, Heap* heap) {
  const auto place = reinterpret_cast<std::uintptr_t>(begin);
  const std::lock_guard lock(g_mutex);
  for (OpenRange* range = g_first.load(); range != nullptr; range = range->next) {
    if (range->begin != place || range->end != place + bytes) continue;
    range->heap.store(heap, std::memory_order_release);
    return;
  }
  g_first.store(new OpenRange{place, place + bytes, g_first.load(), heap}, std::memory_order_release);
}

void remove_open_heap(const Heap* heap) {
  const std::lock_guard lock(g_mutex);
  for (OpenRange* range = g_first.load(); range != nullptr; range = range->next) {
    if (range->heap.load() == heap) range->heap.store(nullptr);
  }
}

}  // namespace memlith::core
