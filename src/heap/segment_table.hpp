// The segment table of a heap, an entry for each segment up to the heap's limit. Floor: heap.
//
// The table lies behind the heap's header. A heap whose table has no room for a larger limit gets another table, in
// segments behind all others; nothing else in the heap moves. All of it is memory of the region: one persist makes the
// larger limit durable, and the table that goes with it.
//
// Segments (segments.hpp) owns the table and has the lock that guards it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_set>

#include "heap/format.hpp"
#include "heap/heap_memory.hpp"

namespace memlith::core {

// Pages of the header and the segment table of a heap that may grow to that size.
std::uint32_t header_pages_for(std::uint64_t reserve_bytes);
// Whole segments that the heap's header fills, and the pages of it in the next one, where the first segment header
// follows.
struct HeaderExtent {
  std::uint32_t segments = 0;
  std::uint32_t pages = 0;
};
HeaderExtent header_extent(std::uint32_t header_pages);
// The size of a heap with nothing in it.
std::uint64_t size_with_header(std::uint32_t header_pages);

class SegmentTable {
 public:
  static constexpr std::uint32_t kNone = ~0u;

  explicit SegmentTable(const HeapMemory& memory);

  // The heap's header says where the table lies: checks that this fits the header's other figures and the region.
  [[nodiscard]] Status check_place() const;
  // Follows the header, which was checked.
  void find();
  // Checks every entry.
  [[nodiscard]] Status check() const;

  [[nodiscard]] const SegmentEntry& operator[](std::uint32_t segment) const { return table_[segment]; }
  void set(std::uint32_t segment, SegmentKind kind, std::uint32_t header_page = 0, std::uint32_t pages = 0);

  // The first unused segment, also one that is shorter than the others; the number of segments if there is none.
  [[nodiscard]] std::uint32_t first_unused();
  // The first of `whole` unused segments with an unused one behind them that has room for `tail_pages` and a header.
  // kNone: there are none.
  [[nodiscard]] std::uint32_t find_unused(std::uint32_t whole, std::uint32_t tail_pages) const;
  // The memory is that of another moment.
  void forget() {
    unused_from_ = 0;
    reserved_.clear();
  }
  // In a heap for thread scope: an unused segment is not found unused, for a block that the region lacks yet.
  void reserve(std::uint32_t segment) { reserved_.insert(segment); }
  void end_reserve(std::uint32_t segment) {
    reserved_.erase(segment);
    unused_from_ = std::min(unused_from_, segment);
  }
  [[nodiscard]] bool is_unused(std::uint32_t segment) const {
    return table_[segment].kind == SegmentKind::unused && !reserved_.contains(segment);
  }

  // From the next persist on, the heap may grow to that size, which is above today's limit.
  Status raise_limit(std::uint64_t reserve_bytes);

 private:
  [[nodiscard]] bool entry_fits(std::uint32_t segment) const;
  [[nodiscard]] Status check_huge(std::uint32_t segment) const;
  // The segments of a table that was moved.
  [[nodiscard]] std::uint32_t first_of_table() const;
  [[nodiscard]] std::uint32_t segments_of_table() const;
  [[nodiscard]] bool is_in_table(std::uint32_t segment) const;
  [[nodiscard]] std::uint64_t room() const;  // in entries
  Status move(std::uint64_t reserve_bytes);

  HeapMemory memory_;
  SegmentEntry* table_;
  std::uint32_t unused_from_ = 0;  // no segment before it is unused
  std::unordered_set<std::uint32_t> reserved_;
};

}  // namespace memlith::core
