// Which pages of a region were captured since they were last released, and so are private copies in memory. For regions
// whose tracker cannot tell which pages are clean (explicit, instrumented). Floor: region.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

#include "base/host.hpp"
#include "region/mapped_array.hpp"
#include "region/tracker.hpp"

namespace memlith::core {

// Any thread may call note() and count(); the others are for one thread, while no other thread calls note().
class CopiedPages {
 public:
  // For a region that may grow to `capacity_bytes`. Memory is allocated for the parts of the region that are noted.
  static Result<std::unique_ptr<CopiedPages>> make(std::uint64_t capacity_bytes) {
    auto made = std::unique_ptr<CopiedPages>(new CopiedPages(capacity_bytes / kPageBytes / kBits + 1));
    MEMLITH_TRY(map_array(made->words_, made->count_of_words_));
    return made;
  }
  ~CopiedPages() { unmap_array(words_, count_of_words_); }
  CopiedPages(const CopiedPages&) = delete;
  CopiedPages& operator=(const CopiedPages&) = delete;

  // The kernel copies its pages, which may be larger.
  void note(Range range) {
    const std::uint64_t end = round_up(range.offset + range.bytes, host_page_bytes()) / kPageBytes;
    MEMLITH_ASSERT(end <= count_of_words_ * kBits);
    for (std::uint64_t page = round_down(range.offset, host_page_bytes()) / kPageBytes; page < end; ++page) {
      std::atomic_ref<std::uint64_t> word(words_[page / kBits]);
      const std::uint64_t bit = std::uint64_t{1} << page % kBits;
      if ((word.load(std::memory_order_relaxed) & bit) != 0) continue;
      if ((word.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) count_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  [[nodiscard]] std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }

  [[nodiscard]] bool has(std::uint64_t page) const { return ((words_[page / kBits] >> (page % kBits)) & 1) != 0; }
  void forget(std::uint64_t page) {
    MEMLITH_DCHECK(page < count_of_words_ * kBits);
    if (!has(page)) return;
    words_[page / kBits] &= ~(std::uint64_t{1} << page % kBits);
    const std::uint64_t before = count_.fetch_sub(1, std::memory_order_relaxed);
    MEMLITH_ASSERT(before > 0);
  }

 private:
  static constexpr std::uint64_t kBits = 64;
  explicit CopiedPages(std::uint64_t words) : count_of_words_(words) {}

  std::uint64_t* words_ = nullptr;
  std::uint64_t count_of_words_;
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace memlith::core
