// A snapshot: a read-only view of regions as one durable commit left them. Floor: region.
//
// A region's mapping is private, but a page that this process has not stored to belongs to the page cache, also in a
// forked child: a checkpoint of the parent changes it there. A snapshot is mapped from copies that are never written.
//
// A snapshot does not access the store after its creation, so a forked child may use it, and it outlives the store.
// Threads: any number may read; place() and the destructor are for one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "region/region.hpp"

namespace memlith::core {

class Snapshot {
 public:
  // Reads one store. Errors: those of Store::copy_homes(), and no_memory.
  static Result<std::unique_ptr<Snapshot>> make(std::span<Region* const> regions);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // The view of region number `index`; null if there is no such number, or the region had no bytes.
  [[nodiscard]] const std::byte* address(std::uint64_t index) const;
  [[nodiscard]] std::uint64_t size(std::uint64_t index) const;
  [[nodiscard]] Lsn lsn() const { return lsn_; }

  // In a forked child: maps the views over the regions' own addresses, so that pointers in the regions point into the
  // snapshot. Later stores there belong to the child and change neither store nor snapshot. Allocates nothing and takes
  // no lock. Errors: invalid (not in a forked child); address_taken (the region was closed before the fork, and the
  // addresses are in use).
  Status place();
  // Where region number `index` lies, or lay; null if there is no such number.
  [[nodiscard]] const std::byte* place_of(std::uint64_t index) const {
    return index < views_.size() ? views_[index].region_base : nullptr;
  }

 private:
  struct View {
    Descriptor memory;
    std::byte* base = nullptr;
    std::uint64_t size_bytes = 0;
    std::byte* region_base = nullptr;
    std::shared_ptr<const std::atomic<bool>> region_lies;
    bool placed = false;
  };
  Snapshot() = default;

  std::vector<View> views_;
  Lsn lsn_;
  std::uint64_t process_mark_ = 0;  // of the process that made the snapshot
};

}  // namespace memlith::core
