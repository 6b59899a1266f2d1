// Giving memory of the ring back, for a store with a limit. Floor: applog.
#include <algorithm>

#include "applog/applog.hpp"

namespace memlith::core::applog {

namespace {
// Pages of the region that hold bytes between two positions: two runs at most.
struct Pages {
  void add(std::uint64_t offset, std::uint64_t bytes) {
    MEMLITH_ASSERT(count < std::size(runs));
    if (bytes > 0) runs[count++] = {offset / kPageBytes, (offset + bytes - 1) / kPageBytes};
  }
  [[nodiscard]] bool has(std::uint64_t page) const {
    return std::any_of(runs, runs + count, [page](const auto& run) { return run.first <= page && page <= run.second; });
  }
  std::pair<std::uint64_t, std::uint64_t> runs[2];
  std::size_t count = 0;
};
}  // namespace

// ORDER home-before-release: what is in the redo log when the release begins is home when pages are dropped. What is
// appended from there on, and the end mark, stay in memory; so does what takes the place of entries that were cut off
// meanwhile. Bytes that were consumed are of no account. [test AppLogRelease.KeepsWhatIsChangedMeanwhile]
Status AppLog::release_for_limit(Region& region) {
  if (read_only()) return kOk;
  Shape before{};
  {
    const LockGuard lock(mutex_);
    before = ring_.shape();
    lowest_handed_ = handed_;
  }
  MEMLITH_TRY(region.store().write_home(region.newest_commit()));
  const std::uint64_t end = (kRingOffset + before.capacity) / kPageBytes;
  for (std::uint64_t next = kRingOffset / kPageBytes; next < end;) {
    const LockGuard lock(mutex_);
    const Shape& shape = ring_.shape();
    MEMLITH_ASSERT(lowest_handed_ <= handed_);
    const std::uint64_t kept = appended_ + sizeof(EntryHeader) - lowest_handed_;
    if (shape.base != before.base || shape.capacity != before.capacity || kept >= shape.capacity) return kOk;
    Pages pages;
    ring_.for_each_run(lowest_handed_, kept, [&](std::uint64_t offset, std::uint64_t run) { pages.add(offset, run); });
    MEMLITH_TRY_ASSIGN(next, region.release_copies(next, end, [&](std::uint64_t page) { return !pages.has(page); }));
  }
  return kOk;
}

}  // namespace memlith::core::applog
