// The home of a region: the bytes of its object in the store's data files, and up to where the log may have newer ones.
// Floor: region.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/sync.hpp"
#include "region/tracker.hpp"
#include "store/store.hpp"

namespace memlith::core {

// All calls by any thread, but begin().
class RegionHome {
 public:
  RegionHome(Store& store, ObjectId object) : store_(store), object_(object) {}

  [[nodiscard]] Store& store() const { return store_; }
  [[nodiscard]] ObjectId object() const { return object_; }

  // The region is opened for writing: brings home the bytes of the region that are in the log only.
  Status begin();

  // The end of the newest commit with bytes of the region.
  [[nodiscard]] Lsn newest_commit() const { return Lsn{committed_lsn_->load()}; }
  void note_commit(Lsn end);
  // Brings home everything that was committed.
  Status complete() const;

  Status read(std::uint64_t offset, std::span<std::byte> target) const {
    return store_.read_home_into(object_, offset, target);
  }
  [[nodiscard]] Tracker::ReadHome reader() const {
    return [this](std::uint64_t offset, std::span<std::byte> target) { return read(offset, target); };
  }

 private:
  Store& store_;
  const ObjectId object_;
  std::shared_ptr<Atomic<std::uint64_t>> committed_lsn_;  // owned by the store, the next opening reads it
};

}  // namespace memlith::core
