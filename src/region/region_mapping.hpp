// The addresses of a region in this process, and its size. Floor: region.
//
// The mapping is MAP_PRIVATE over the home file: pages come in lazily from the page cache, stores go to private copies
// and can never reach the file by themselves (invariant 4). The home file is never mapped shared and writable: the
// kernel would write stores back ahead of the log.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/host.hpp"
#include "base/sync.hpp"
#include "region/region_home.hpp"
#include "region/tracker.hpp"

namespace memlith::core {

class RegionMapping {
 public:
  // The addresses of the object are taken by this process; the mapping releases them. `most_bytes`: the size to which
  // the region may grow in any process. `anywhere`: the region lies elsewhere in each.
  RegionMapping(RegionHome& home, const ObjectInfo& info, std::uint64_t most_bytes, bool anywhere);
  ~RegionMapping();
  RegionMapping(const RegionMapping&) = delete;
  RegionMapping& operator=(const RegionMapping&) = delete;

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::uint64_t size() const { return size_bytes_.load(std::memory_order_acquire); }
  // The size, rounded up to the kernel's pages: so much is mapped.
  [[nodiscard]] std::uint64_t mapped_bytes() const { return round_up(size(), host_page_bytes()); }
  // The largest size in this process, and in any.
  [[nodiscard]] std::uint64_t reserve() const { return reserve_bytes_; }
  [[nodiscard]] std::uint64_t most() const { return most_bytes_; }
  [[nodiscard]] bool anywhere() const { return anywhere_; }
  // For messages: the region of a one-file store is known by its path.
  [[nodiscard]] const std::string& shown_name() const { return shown_name_; }
  // True until the mapping ends, which it outlives.
  [[nodiscard]] std::shared_ptr<const std::atomic<bool>> lies() const { return lies_; }

  [[nodiscard]] Result<Range> range_of(const void* address, std::uint64_t bytes) const {
    const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - base_);
    const std::uint64_t size_bytes = size();
    if (offset <= size_bytes && bytes <= size_bytes - offset) return Range{offset, bytes};
    return outside(address, bytes);
  }

  // Maps the region in its size at opening. In a read-only store the log's bytes lie over the home's then, and nothing
  // can be stored to.
  Status begin(std::uint64_t size_bytes);
  // Reads pages that may not be in memory yet, before their first use: a sector that the disk does not give back is
  // `io` here, and a signal (SIGBUS) at the use. Before Linux 5.14 it is the signal.
  [[nodiscard]] Status load(Range range) const;
  // Maps pages [begin, end) over the home file again, only to be read: without a lock and without allocating.
  Status map_to_read(std::uint64_t begin, std::uint64_t end) { return map_pages(begin, end, PROT_READ); }

  // ---- growing, by one thread at a time
  // The size of the region after a growth to that number of bytes. Errors: invalid, no_space.
  [[nodiscard]] Result<std::uint64_t> size_to_grow_to(std::uint64_t size_bytes) const;
  // Maps the pages up to that size, which the home file has; what lies behind the region's end now is zeros.
  Status extend(std::uint64_t size_bytes);
  void set_size(std::uint64_t size_bytes);

 private:
  [[nodiscard]] Status outside(const void* address, std::uint64_t bytes) const;
  Status map_pages(std::uint64_t begin, std::uint64_t end, int protection);

  RegionHome& home_;
  const std::string name_;
  const std::string shown_name_;
  std::byte* const base_;
  const std::uint64_t reserve_bytes_;
  const std::uint64_t most_bytes_;
  const bool anywhere_;
  Atomic<std::uint64_t> size_bytes_{0};
  std::shared_ptr<std::atomic<bool>> lies_ = std::make_shared<std::atomic<bool>>(true);
};

}  // namespace memlith::core
