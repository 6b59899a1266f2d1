// The pages of a segment, as its header in the region lists them. Floor: heap.
#pragma once

#include <cstdint>
#include <vector>

#include "heap/format.hpp"
#include "heap/heap_memory.hpp"
#include "heap/segment_table.hpp"

namespace memlith::core {

struct PageRun {
  std::uint32_t page = 0;
  std::uint32_t pages = 0;
  std::uint32_t kind = kPageNone;

  [[nodiscard]] bool is_slab() const { return kind >= kPageSlab && kind < kPageSlab + kClasses; }
};

// Checks the header of a segment that has one, and lists what its pages hold; each free page is a run of its own.
// Numbers in the region are input: each is held against its bounds before it is used.
Status list_runs(const HeapMemory& memory, const SegmentTable& table, std::uint32_t segment,
                 std::vector<PageRun>& runs);

}  // namespace memlith::core
