// Bytes of objects that have no meaning any more, such as those of consumed entries of an application log. A checkpoint
// does not write them home. Floor: store. docs/applog.md, "Inside".
//
// They are known in memory only. Recovery, copies and archives write home whatever the log has, which does no harm.
#pragma once

#include <map>
#include <new>

#include "base/sync.hpp"
#include "base/units.hpp"
#include "store/objects.hpp"

namespace memlith::core {

// Threads: any.
class DeadBytes {
 public:
  using ByCommit = std::multimap<Lsn, Extent>;

  // From the state behind the commit that ends there on, no byte of the extent is read before a later commit has
  // written it. Where memory lacks, it is forgotten, and the bytes go home.
  void note(const Extent& extent, Lsn end) noexcept {
    const LockGuard lock(mutex_);
    try {
      if (dead_.size() >= kExtentsMax) dead_.erase(dead_.begin());
      dead_.emplace(end, extent);
    } catch (const std::bad_alloc&) {
    }
  }
  [[nodiscard]] ByCommit all() const {
    const LockGuard lock(mutex_);
    return dead_;
  }
  // The frames of these commits leave the log.
  void forget_before(Lsn tail) {
    const LockGuard lock(mutex_);
    dead_.erase(dead_.begin(), dead_.upper_bound(tail));
  }

 private:
  static constexpr std::size_t kExtentsMax = 8192;
  mutable Mutex mutex_;
  ByCommit dead_ MEMLITH_GUARDED_BY(mutex_);
};

}  // namespace memlith::core
