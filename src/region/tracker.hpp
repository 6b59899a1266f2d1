// Trackers answer: what was stored to since the last capture, and by whom? Floor: region, which owns the interface.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "base/units.hpp"
#include "region/thread_number.hpp"

namespace memlith::core {

enum class TrackerKind : std::uint32_t { automatic = 0, scan = 1, touched = 2, fault = 3 };

struct Range {
  std::uint64_t offset = 0;  // in the region
  std::uint64_t bytes = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

// Sorts, and joins what overlaps or touches; never covers a byte that no range covered.
void normalize(std::vector<Range>& ranges);

// The memory that a tracker watches.
struct TrackedMemory {
  std::byte* base = nullptr;
  std::uint64_t bytes = 0;           // mapped, and not stored to yet
  std::uint64_t capacity_bytes = 0;  // what it may grow to
  // Maps pages [begin, end) of the region over home again, read-only, without a lock and without allocating. Where it is empty,
  // memory that a tracker moved away from its file cannot be given back.
  std::function<Status(std::uint64_t begin, std::uint64_t end)> map_home = nullptr;
};

// All calls but touch() and prepare() under the region's capture lock.
class Tracker {
 public:
  virtual ~Tracker() = default;

  // Takes what `thread` stored to since it was last taken (kAllThreads: what anybody did) and adds it to `ranges`, atomically:
  // a store lands either in these ranges, and then before the caller copies them, or in the next. May add a range twice.
  // Followed by accept() or give_back(), the latter also when it failed or threw std::bad_alloc: no store is forgotten.
  virtual Status collect(ThreadNumber thread, std::vector<Range>& ranges) = 0;
  // What was taken is in a frame now.
  virtual void accept() = 0;
  // It is not, and counts as stored to again, by whom it was.
  virtual void give_back() = 0;

  // Whether a rollback of `thread` is known to add something to `others`. What can fail in having home ready is then done first.
  virtual bool rollback_needs_home(ThreadNumber) { return false; }
  // Where the tracker keeps pages as they were before they were stored to, it puts those of `thread` back at once, and
  // forgets that they were stored to; all or none of them. It adds to `others` what it cannot put back; that counts as taken by
  // collect().
  virtual Status rollback(ThreadNumber thread, std::vector<Range>& others) { return collect(thread, others); }
  // Has the range, which rollback() added to `others`, hold what home holds. `read` reads that from an offset on.
  using ReadHome = std::function<Status(std::uint64_t offset, std::span<std::byte> target)>;
  virtual Status restore(Range range, const ReadHome& read) = 0;

  // The region's memory now ends at `bytes`, a multiple of the page size; the new pages are mapped already.
  virtual Status grow(std::uint64_t bytes) = 0;

  // The calling thread stored to the range. Only the explicit tracker cares. Any thread.
  virtual void touch(Range) {}
  // The calling thread is about to have the kernel store to the range (read(2)). Any thread.
  virtual Status prepare(Range) { return kOk; }

  // Drops clean pages from the mapping, so that they cost no memory until they are used again. Everything captured must be
  // home. Where releases_any_time(), other threads may go on storing; else every store must have been told of.
  virtual Status release_clean() = 0;
  [[nodiscard]] virtual bool releases_any_time() const { return true; }

  // Pages taken, each as often as it was, since memory was last given back; whether anything in them was logged or not, they
  // stand in memory. Of trackers that release at any time. Any thread.
  [[nodiscard]] std::uint64_t pages_taken() const { return pages_taken_.load(std::memory_order_relaxed); }

  [[nodiscard]] virtual bool knows_threads() const = 0;
  [[nodiscard]] virtual TrackerKind kind() const = 0;
  [[nodiscard]] virtual std::string describe() const = 0;

 protected:
  std::atomic<std::uint64_t> pages_taken_{0};
};

Result<std::unique_ptr<Tracker>> attach_tracker(TrackerKind kind, const TrackedMemory& memory);

// One line: how a tracker of this kind would work on this kernel.
std::string describe_tracker(TrackerKind kind);

// The makers, one a file in trackers/.
Result<std::unique_ptr<Tracker>> attach_scan_tracker(const TrackedMemory& memory, std::string reason);
Result<std::unique_ptr<Tracker>> attach_fault_tracker(const TrackedMemory& memory, std::string reason);
std::unique_ptr<Tracker> attach_explicit_tracker(const TrackedMemory& memory);
// Ok where the kernel has what the scan tracker needs; else why not.
Status probe_scan();

}  // namespace memlith::core
