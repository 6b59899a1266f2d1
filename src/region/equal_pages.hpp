// Releases pages of a region that are as they are at home, whatever the tracker knows of them. Floor: region.
//
// Between a store and its touch, only the storing thread knows of the store. So the pages themselves decide: they are
// read-only while they are compared with home and dropped, and stores to them wait in the fault handler.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "region/copied_pages.hpp"
#include "region/tracker.hpp"
#include "region/trackers/fault_handler.hpp"

namespace memlith::core {

class EqualPages {
 public:
  explicit EqualPages(std::byte* base) : base_(base) {}
  ~EqualPages();
  EqualPages(const EqualPages&) = delete;
  EqualPages& operator=(const EqualPages&) = delete;

  // From the `copied` pages of the region, which has `mapped_bytes` in memory and `home_bytes` at home, drops those
  // that equal home, and takes them out of `copied`. Everything captured is home, and no thread captures meanwhile.
  // Other threads may store: never in a system call, which may fail with EFAULT, nor with SIGSEGV blocked.
  Status release(std::uint64_t mapped_bytes, std::uint64_t home_bytes, CopiedPages& copied,
                 const Tracker::ReadHome& read);

 private:
  Status release_piece(std::uint64_t first, std::uint64_t end, CopiedPages& copied, const Tracker::ReadHome& read);
  Status drop_equal(std::uint64_t first, std::uint64_t end);

  std::byte* const base_;
  FaultRegion* waiting_room_ = nullptr;  // claimed by the first release
  std::vector<std::byte> home_;          // of one piece
  std::vector<iovec> dropped_;           // of one piece; allocated beforehand, because the region may be a heap's
  std::vector<bool> wanted_;             // pages of the piece that are copies; after drop_equal(), that were dropped
};

}  // namespace memlith::core
