// Twins: copies of pages as they were last captured, so that the next capture of such a page logs only what changed in
// it. For regions whose tracker finds pages and not bytes (scan). Floor: region.
//
// A capture copies a page once. That copy is the source of what is logged and the twin of the next capture, so the twin
// always equals the result of replaying the log, whatever other threads store meanwhile; a page that is stored to after
// the copy is dirty again. (Failure-atomic msync and MemSnap log whole pages.)
//
// The twins are a bounded cache. A page without a twin is compared with its home if that is what was captured last and
// is in memory; otherwise the page is logged completely. Copies cost time, so copying stops if it does not pay: see
// `credit_`. All calls under the region's capture lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "region/tracker.hpp"

namespace memlith::core {

// Bytes that have to be logged, and their source.
struct SourceExtent {
  Range range;
  const std::byte* source = nullptr;
};

// Reads a page as it was captured last. False: that would take time, or is nowhere.
using ReadTwin = std::function<bool(std::uint64_t page, std::span<std::byte> target)>;

class Twins {
 public:
  // For a region that may grow to `capacity_bytes`. Reserves addresses only; memory is allocated with the copies.
  static Result<std::unique_ptr<Twins>> make(std::uint64_t capacity_bytes);
  ~Twins();
  Twins(const Twins&) = delete;
  Twins& operator=(const Twins&) = delete;

  // Adds to `pieces` the parts of `stored` that have to be logged: everything except bytes that equal their twins. The
  // ranges are sorted and were stored to since their last capture. The sources stay valid until accept() or
  // give_back(), one of which follows.
  void reduce(const std::byte* base, std::span<const Range> stored, const ReadTwin& read,
              std::vector<SourceExtent>& pieces);
  // The pieces are in a frame.
  void accept();
  // The capture failed: the twins before it count again.
  void give_back();

  // The page as it was last captured, or null if there is no copy of it. Valid until the next call.
  [[nodiscard]] const std::byte* find(std::uint64_t page) const;
  // Forgets the pages of the range.
  void forget(Range range);
  // Forgets every page and releases the memory.
  void clear();

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t page = kNone;
    std::uint32_t copy = 0;
  };
  struct PendingCopy {
    std::uint64_t page = 0;
    std::uint32_t copy = 0;
  };

  explicit Twins(std::uint64_t slots);

  void reduce_page(const std::byte* base, std::uint64_t page, const ReadTwin& read, std::vector<SourceExtent>& pieces);
  static void add_whole(std::uint64_t offset, const std::byte* memory, std::vector<SourceExtent>& pieces);
  void forget(std::uint64_t page);
  void vacate(Slot& slot);
  // Every copy is the twin of one page, or belongs to the capture that is under way, or is free.
  [[nodiscard]] bool state_holds() const;
  [[nodiscard]] Slot& slot_of(std::uint64_t page) { return slots_[page & (slots_.size() - 1)]; }
  [[nodiscard]] const Slot& slot_of(std::uint64_t page) const { return slots_[page & (slots_.size() - 1)]; }
  [[nodiscard]] std::byte* copy(std::uint32_t index) const { return copies_ + std::uint64_t{index} * kPageBytes; }
  std::uint32_t take_copy();

  std::vector<Slot> slots_;      // a power of two of them
  std::byte* copies_ = nullptr;  // one more than copies_max_: a page that was read
  std::uint64_t copies_max_ = 0;
  std::uint32_t next_copy_ = 0;       // copies from here on were never used
  std::vector<std::uint32_t> free_;   // released copies, the last one most recently
  std::vector<PendingCopy> pending_;  // copies made since accept()
  std::vector<Range> differences_;    // of one page
  mutable std::vector<bool> seen_;    // of state_holds(), which allocates nothing
  std::int64_t credit_;               // how many pages may still be copied before a copy has to pay
};

}  // namespace memlith::core
