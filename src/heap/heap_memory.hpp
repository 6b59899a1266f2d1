// The region of a heap, as each part of the heap sees it. Floor: heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/assert.hpp"
#include "heap/format.hpp"
#include "region/region.hpp"

namespace memlith::core {

// Constant while the heap is open, and small: each part has a copy.
class HeapMemory {
 public:
  explicit HeapMemory(Region& region);

  [[nodiscard]] Region& region() const { return *region_; }
  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] HeapHeader& header() const { return *header_; }
  [[nodiscard]] std::uint64_t offset_of(const void* address) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - base_);
  }

  // In the region's size; the last segment may be shorter than the others.
  [[nodiscard]] std::uint32_t segment_count() const;
  [[nodiscard]] std::uint32_t pages_in(std::uint32_t segment) const;
  [[nodiscard]] std::byte* page_at(std::uint32_t segment, std::uint32_t page) const {
    return base_ + segment * kSegmentBytes + page * kPageBytes;
  }
  [[nodiscard]] SegmentHeader* header_at(std::uint32_t segment, std::uint32_t page) const {
    return reinterpret_cast<SegmentHeader*>(page_at(segment, page));
  }

  // Tells the tracker of stores to a structure, if the tracker has to be told.
  void wrote(const void* structure, std::uint64_t bytes) const {
    MEMLITH_ASSERT(offset_of(structure) < region_->size() && bytes <= region_->size() - offset_of(structure));
    // Cannot fail: the structure lies in the region.
    if (touches_) (void)region_->touch(structure, bytes);
  }
  // False where a store needs more than the store itself: the tracker has to be told, or the heap must not change.
  [[nodiscard]] bool can_change_at_once() const {
    return !touches_ && region_->tracker() != nullptr && !region_->store().in_forked_child();
  }

  // ---- errors, and words for them
  [[nodiscard]] Status check_writable() const;
  [[nodiscard]] std::string shown() const { return "heap \"" + region_->shown_name() + "\""; }
  [[nodiscard]] Status corrupt(std::uint64_t offset, std::string_view what) const;
  [[nodiscard]] Status no_block(std::uint64_t offset, std::string_view why) const;
  [[nodiscard]] Status full(std::uint64_t bytes) const;

 private:
  Region* region_;
  std::byte* base_;
  HeapHeader* header_;
  bool touches_;
};

}  // namespace memlith::core
