// State of a segment while a heap is open: which pages are free, and its slabs. Floor: heap.
//
// Derived from the segment's header when the segment is first used, thrown away when the region is rolled back, never
// stored.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/assert.hpp"
#include "base/sync.hpp"
#include "heap/format.hpp"

namespace memlith::core {

struct SlabArena;

// A run of pages with blocks of one size.
struct Slab {
  std::byte* base = nullptr;
  std::uint64_t* stored = nullptr;  // in the segment header: one bit a block that is in use
  std::uint64_t* bits = nullptr;    // the same; of a heap for thread scope a copy, which is ahead of `stored`
  std::uint32_t block_bytes = 0;
  std::uint32_t reciprocal = 0;  // 2^32 / block_bytes, rounded up
  std::uint32_t blocks = 0;
  std::uint32_t size_class = 0;
  std::uint32_t segment = 0;
  std::uint32_t first_page = 0;
  Atomic<SlabArena*> owner{
      nullptr};  // whose lock guards the bits and what follows; null while the slab is being given back
  std::uint32_t used = 0;
  std::uint32_t first_word = 0;  // no word before it has a free block
  bool listed = false;           // in the owner's list of slabs with room
  Slab* next = nullptr;
  Slab* previous = nullptr;

  // ---- of a heap for thread scope
  std::vector<std::uint64_t> copy;  // the bits, and behind them one a block that another thread is freeing
  bool changed = false;             // in the owner's list of slabs whose bits the region lacks
  Slab* next_changed = nullptr;

  [[nodiscard]] std::uint32_t words() const { return (blocks + 63) / 64; }
  [[nodiscard]] std::uint64_t& leaving_word(std::uint32_t block) { return copy[words() + block / 64]; }
  [[nodiscard]] bool is_leaving(std::uint32_t block) const {
    return !copy.empty() && (copy[words() + block / 64] >> block % 64 & 1) != 0;
  }
  [[nodiscard]] bool full() const { return used == blocks; }
  // The number of the block that begins at the address; `blocks` if none does.
  [[nodiscard]] std::uint32_t block_at(const std::byte* address) const {
    const auto offset = static_cast<std::uint64_t>(address - base);
    // Exact, because a slab has less than 2^18 bytes and a block less than 2^16.
    const auto block = static_cast<std::uint32_t>(offset * reciprocal >> 32);
    return block < blocks && std::uint64_t{block} * block_bytes == offset ? block : blocks;
  }
  [[nodiscard]] bool in_use(std::uint32_t block) const { return (bits[block / 64] >> block % 64 & 1) != 0; }
};

inline constexpr std::uint32_t kNoPage = ~0u;

// The heap's structure lock guards all of it but the pointers to slabs, which any thread reads.
class Segment {
 public:
  Segment(std::uint32_t number, SegmentHeader* header) : number_(number), header_(header) {}
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] SegmentHeader& header() { return *header_; }
  [[nodiscard]] std::uint32_t longest() const { return longest_; }
  [[nodiscard]] std::uint32_t free_pages() const {
    std::uint32_t count = 0;
    for (const std::uint64_t word : free_) count += static_cast<std::uint32_t>(std::popcount(word));
    return count;
  }
  [[nodiscard]] bool is_free(std::uint32_t page) const { return (free_[page / 64] >> page % 64 & 1) != 0; }

  // The first free run of so many pages; kNoPage.
  [[nodiscard]] std::uint32_t find(std::uint32_t pages) const;
  void take(std::uint32_t page, std::uint32_t pages) { mark(page, pages, false); }
  void give(std::uint32_t page, std::uint32_t pages) { mark(page, pages, true); }

  [[nodiscard]] Slab* slab_of(std::uint32_t page) const { return slabs_[page].load(std::memory_order_acquire); }
  void set_slab(std::uint32_t page, std::uint32_t pages, Slab* slab) {
    MEMLITH_ASSERT(page < kSegmentPages && pages <= kSegmentPages - page);
    for (std::uint32_t i = 0; i < pages; ++i) slabs_[page + i].store(slab, std::memory_order_release);
  }

 private:
  void mark(std::uint32_t page, std::uint32_t pages, bool is_free);
  // The first page from `from` on that is free, or is not; kSegmentPages.
  [[nodiscard]] std::uint32_t next(std::uint32_t from, bool is_free) const;

  std::uint32_t number_;
  SegmentHeader* header_;
  std::array<std::uint64_t, kSegmentPages / 64> free_{};
  std::uint32_t longest_ = 0;  // run of free pages
  std::array<std::atomic<Slab*>, kSegmentPages> slabs_{};
};

}  // namespace memlith::core
