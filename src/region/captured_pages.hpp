// Up to where the log must be home for the home of a page to have what was captured of it last. For regions whose
// tracker finds pages and not bytes (scan). Floor: region.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <memory>

#include "base/units.hpp"
#include "region/mapped_array.hpp"
#include "region/tracker.hpp"

namespace memlith::core {

// All calls under the region's capture lock.
class CapturedPages {
 public:
  // For a region that may grow to `capacity_bytes`, of which everything is home. Memory is allocated for the parts of
  // the region that are captured.
  static Result<std::unique_ptr<CapturedPages>> make(std::uint64_t capacity_bytes) {
    auto made = std::unique_ptr<CapturedPages>(new CapturedPages(capacity_bytes / kPageBytes + 1));
    MEMLITH_TRY(map_array(made->ends_, made->pages_));
    return made;
  }
  ~CapturedPages() { unmap_array(ends_, pages_); }
  CapturedPages(const CapturedPages&) = delete;
  CapturedPages& operator=(const CapturedPages&) = delete;

  // A frame that ends there has bytes of the range.
  void note(Range range, Lsn end) {
    const std::uint64_t beyond = round_up(range.offset + range.bytes, kPageBytes) / kPageBytes;
    MEMLITH_ASSERT(beyond <= pages_);
    for (std::uint64_t page = range.offset / kPageBytes; page < beyond; ++page) {
      MEMLITH_ASSERT(ends_[page] <= end);  // captures go to the log in their order
      ends_[page] = end;
    }
  }
  // Everything is home.
  void clear() { (void)::madvise(ends_, pages_ * sizeof(Lsn), MADV_DONTNEED); }
  // True if the page's home is complete, if everything before `home` is home.
  [[nodiscard]] bool is_home(std::uint64_t page, Lsn home) const {
    MEMLITH_DCHECK(page < pages_);
    return ends_[page] <= home;
  }

 private:
  explicit CapturedPages(std::uint64_t pages) : pages_(pages) {}

  Lsn* ends_ = nullptr;
  std::uint64_t pages_;
};

}  // namespace memlith::core
