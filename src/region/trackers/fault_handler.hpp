// The table of protected regions and the SIGSEGV handler that serves it. Floor: region, private to the mprotect tracker.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/status.hpp"

namespace memlith::core {

// One region whose clean pages are protected. Read by the signal handler.
struct ProtectedRegion {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};          // 0: the entry is free
  std::atomic<std::uint8_t>* dirty = nullptr;  // one a page
  // Held by the handler around "make writable, mark dirty" and by the collector around "take marks, protect": between
  // the two halves of either, another thread must not see a page that is writable but not marked.
  std::atomic<bool> busy{false};
};

// Installs the handler, once a process, and takes a table entry. `dirty` has a byte for each page up to capacity.
Result<ProtectedRegion*> claim_protected_region(std::byte* base, std::uint64_t bytes, std::atomic<std::uint8_t>* dirty);
void release_protected_region(ProtectedRegion* region);

void acquire(ProtectedRegion& region);
void release(ProtectedRegion& region);

}  // namespace memlith::core
