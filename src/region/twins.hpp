// Twins: copies of pages as they were last captured, so that the next capture of such a page logs only what changed in it.
// For regions whose tracker knows pages and nothing finer (scan). Floor: region.
//
// A capture copies a page once, and from that copy comes what the log gets and what the next capture compares with. So the
// twin is always what replaying the log makes of the page, whatever other threads store meanwhile; a page stored to behind
// the copy counts as stored to again. (Failure-atomic msync and MemSnap log whole pages.)
//
// A bounded cache: a page found in no place of it is logged whole. Copies cost time, so those that never pay are given up: see
// `credit_`. All calls under the region's capture lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "region/tracker.hpp"

namespace memlith::core {

// Bytes to be logged, and where they are to be copied from.
struct Piece {
  Range range;
  const std::byte* source = nullptr;
};

class Twins {
 public:
  // For a region that may grow to so many bytes. Takes addresses only; memory comes with the copies.
  static Result<std::unique_ptr<Twins>> make(std::uint64_t capacity_bytes);
  ~Twins();
  Twins(const Twins&) = delete;
  Twins& operator=(const Twins&) = delete;

  // Adds to `pieces` what is to be logged of the ranges, which are sorted and were stored to since they were last captured: all of
  // them, but for bytes that are as they were captured. Sources are good until accept() or give_back(), one of which follows.
  void reduce(const std::byte* base, std::span<const Range> stored, std::vector<Piece>& pieces);
  // The pieces are in a frame.
  void accept();
  // They are not: what was captured before them still is what counts.
  void give_back();

  // Forgets every page, and gives the memory back.
  void clear();

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  struct Place {
    std::uint64_t page = kNone;
    std::uint32_t copy = 0;
  };
  struct Pending {
    std::uint64_t page = 0;
    std::uint32_t copy = 0;
  };

  explicit Twins(std::uint64_t places);

  void reduce_page(const std::byte* base, std::uint64_t page, std::vector<Piece>& pieces);
  static void add_whole(std::uint64_t offset, const std::byte* memory, std::vector<Piece>& pieces);
  void forget(std::uint64_t page);
  void vacate(Place& place);
  [[nodiscard]] Place& place_of(std::uint64_t page) { return places_[page & (places_.size() - 1)]; }
  [[nodiscard]] std::byte* copy(std::uint32_t index) const { return copies_ + std::uint64_t{index} * kPageBytes; }
  std::uint32_t take_copy();

  std::vector<Place> places_;  // a power of two of them
  std::byte* copies_ = nullptr;
  std::uint64_t copies_max_ = 0;
  std::uint32_t next_copy_ = 0;      // never used from here on
  std::vector<std::uint32_t> free_;  // used before, the last one most recently
  std::vector<Pending> pending_;     // copies made since accept()
  std::vector<Range> differences_;   // of one page
  std::int64_t credit_;              // how many pages may yet be copied with nothing to say that it will pay
};

}  // namespace memlith::core
