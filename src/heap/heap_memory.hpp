// The region of a heap, as each part of the heap sees it. Floor: heap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.hpp"
#include "base/sync.hpp"
#include "heap/format.hpp"
#include "region/region.hpp"

namespace memlith::core {

// The stores to the structures of a heap for thread scope that no capture has yet, whichever thread made them. Each
// capture takes all of them. All calls by any thread; those about captures with all locks of the heap.
class SharedStores {
 public:
  void note(Range range) {
    const LockGuard lock(mutex_);
    ranges_.push_back(range);
  }
  // The pages are a thread's from now on. Of structures that lay there nothing is left to capture.
  void hand_over(Range pages);
  // For a capture; with `handed`, for a rollback.
  void add_to(std::vector<Range>& ranges, bool handed);

  // ---- a capture: it keeps what it stores over, to put it back if there is no frame
  void begin() { under_way_ = true; }
  void storing_over(void* place, std::uint64_t bytes) {
    MEMLITH_ASSERT(bytes <= sizeof(std::uint64_t));
    if (!under_way_) return;
    Old& old = old_.emplace_back(Old{place, bytes, 0});
    std::memcpy(&old.value, place, bytes);
  }
  void captured() {
    old_.clear();
    under_way_ = false;
    forget();
  }
  void put_back() {
    for (; !old_.empty(); old_.pop_back()) std::memcpy(old_.back().place, &old_.back().value, old_.back().bytes);
    under_way_ = false;
  }
  // The memory is that of another moment, or all of it was captured.
  void forget() {
    const LockGuard lock(mutex_);
    ranges_.clear();
    handed_.clear();
  }

 private:
  struct Old {
    void* place;
    std::uint64_t bytes;
    std::uint64_t value;
  };
  Mutex mutex_;
  std::vector<Range> ranges_ MEMLITH_GUARDED_BY(mutex_);
  std::vector<Range> handed_ MEMLITH_GUARDED_BY(mutex_);  // that lay on pages that were handed over since
  bool under_way_ = false;  // this and what follows: by the thread that has all locks of the heap
  std::vector<Old> old_;
};

// Constant while the heap is open, and small: each part has a copy.
class HeapMemory {
 public:
  // `shared`: the heap is for thread scope.
  explicit HeapMemory(Region& region, SharedStores* shared);

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

  // True if each thread persists by itself: what it allocates and frees goes into the region with its captures.
  [[nodiscard]] bool by_thread() const { return shared_ != nullptr; }

  // The tracker knows threads by page, so that no page may have blocks that two threads store to.
  [[nodiscard]] bool parts_pages() const { return region_->tracker()->kind() == TrackerKind::fault; }
  // Whole pages are handed out to the calling thread.
  void give_pages(Range pages) const {
    shared_->hand_over(pages);
    region_->give_pages(pages);
  }
  // Stores to a word of a structure.
  template <class T>
  void put(T& word, T value) const {
    if (shared_ != nullptr) shared_->storing_over(&word, sizeof word);
    word = value;
    wrote(&word, sizeof word);
  }
  // Tells the tracker of stores to a structure, if the tracker has to be told, and the next capture of any thread.
  void wrote(const void* structure, std::uint64_t bytes) const {
    MEMLITH_ASSERT(offset_of(structure) < region_->size() && bytes <= region_->size() - offset_of(structure));
    if (shared_ != nullptr) shared_->note({offset_of(structure), bytes});
    // Cannot fail: the structure lies in the region.
    if (touches_) (void)region_->touch(structure, bytes);
  }
  // The caller of the allocator is about to store to these pages, in order, as far as is known.
  void announce(const std::byte* block, std::uint64_t pages) const {
    const Range range{offset_of(block), std::min(pages, kAnnouncedPagesMax) * kPageBytes};
    region_->announce({&range, 1});
  }
  // False where a store needs more than the store itself: the tracker has to be told, or the heap must not change.
  [[nodiscard]] bool can_change_at_once() const {
    return (!touches_ || by_thread()) && region_->tracker() != nullptr && !region_->store().in_forked_child();
  }

  // ---- errors, and words for them
  [[nodiscard]] Status check_writable() const;
  [[nodiscard]] std::string shown() const { return "heap \"" + region_->shown_name() + "\""; }
  [[nodiscard]] Status corrupt(std::uint64_t offset, std::string_view what) const;
  [[nodiscard]] Status no_block(std::uint64_t offset, std::string_view why) const;
  [[nodiscard]] Status full(std::uint64_t bytes) const;

 private:
  static constexpr std::uint64_t kAnnouncedPagesMax = 64;

  Region* region_;
  std::byte* base_;
  HeapHeader* header_;
  bool touches_;
  SharedStores* shared_;
};

}  // namespace memlith::core
