// Which parts of home files have no disk space: they were discarded, and have given it back or may do so; or they are
// holes of a file that keeps them. Floor: store.
//
// A commit into such a part reserves the space first, so that the disk cannot be full when a checkpoint writes the part
// home. From then on a checkpoint that replays the discard overwrites the part with zeros instead.
//
// Opening a store reserves the space of all other holes, so nothing else is vacant then.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <span>

#include "base/sync.hpp"
#include "device/device.hpp"
#include "store/homes.hpp"
#include "store/objects.hpp"

namespace memlith::core {

// Threads: any. The lock is held while space is reserved or given back, not while zeros are written.
class Vacant {
 public:
  // Whole pages, which are holes or about to be discarded. If the discard fails, the next commit into them takes the
  // mark away.
  void add(const Extent& pages) MEMLITH_EXCLUDES(mutex_);
  // Reserves the space of vacant pages under the extents. Error: no_space, after which they are vacant still.
  Status fill(std::span<const Extent> extents, Homes& homes) MEMLITH_EXCLUDES(mutex_) {
    return any_.load(std::memory_order_acquire) ? fill_some(extents, homes) : kOk;
  }
  // Gives the space of those pages back that are still vacant; calls `overwrite` for the others.
  using Overwrite = std::function<Status(std::uint64_t offset, std::uint64_t bytes)>;
  Status discard(ObjectId object, Device& device, std::uint64_t offset, std::uint64_t bytes, const Overwrite& overwrite)
      MEMLITH_EXCLUDES(mutex_);

 private:
  using Parts = std::map<std::uint64_t, std::uint64_t>;  // begin and end, none overlapping

  Status fill_some(std::span<const Extent> extents, Homes& homes) MEMLITH_EXCLUDES(mutex_);
  static bool are_apart(const Parts& parts);  // for assertions
  void take_out(Parts& parts, std::uint64_t begin, std::uint64_t end) MEMLITH_REQUIRES(mutex_);

  Mutex mutex_;
  std::map<ObjectId, Parts> objects_ MEMLITH_GUARDED_BY(mutex_);
  std::atomic<bool> any_{false};  // release under the lock; set before the frame of a discard has its place
};

}  // namespace memlith::core
