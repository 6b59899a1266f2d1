// A tracker finds what was stored to a region since the last capture, and by which thread. Floor: region, which owns
// the interface.
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
#include "region/thread_check.hpp"
#include "region/thread_number.hpp"

namespace memlith::core {

enum class TrackerKind : std::uint32_t { automatic = 0, scan = 1, touched = 2, fault = 3, instrumented = 4 };

struct Range {
  std::uint64_t offset = 0;  // in the region
  std::uint64_t bytes = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

inline constexpr Range kWholeRegion{0, ~std::uint64_t{0}};

inline bool lies_in(Range inner, Range outer) {
  return inner.offset >= outer.offset && inner.offset + inner.bytes <= outer.offset + outer.bytes;
}

// For assertions: every range has bytes and ends before the next begins.
bool are_in_order(std::span<const Range> ranges);

// Sorts the ranges and joins those that overlap or touch; covers no byte that no range covered.
void normalize(std::vector<Range>& ranges);

// The memory that a tracker watches.
struct TrackedMemory {
  std::byte* base = nullptr;
  std::uint64_t bytes = 0;           // mapped, and without stores so far
  std::uint64_t capacity_bytes = 0;  // the size to which the region may grow
  // Maps pages [begin, end) of the region over the home file again, read-only, without a lock and without allocating.
  // If empty, memory that a tracker moved away from its file cannot be released.
  std::function<Status(std::uint64_t begin, std::uint64_t end)> map_home = nullptr;
  bool thread_scope = false;  // TrackerKind::automatic means a tracker that knows threads
  // Not null: pages that two threads store to are reported there, by a tracker that knows threads by page.
  const ThreadCheck* thread_check = nullptr;
  // Private pages over a file, most of which may never be used: `scan` takes no memory for those.
  bool sparse = false;
};

// All calls but touch(), prepare() and announce() under the region's capture lock.
class Tracker {
 public:
  virtual ~Tracker() = default;

  // Collects the ranges that `thread` (kAllThreads: any thread) stored to since they were last collected, and adds them
  // to `ranges`, atomically: a store is either in these ranges, and then precedes the caller's copy, or in the next
  // ones. May add a range twice. accept() or give_back() follows; give_back() also if this call failed or threw
  // std::bad_alloc. No store is forgotten.
  virtual Status collect(ThreadNumber thread, std::vector<Range>& ranges) = 0;
  // The collected ranges are in a frame now.
  void accept() { accept_part(kWholeRegion); }
  // Only the collected bytes of `part` are; the others are given back. Trackers that find pages get parts of whole
  // pages.
  virtual void accept_part(Range part) = 0;
  // The capture failed: the ranges are marked dirty again, for the threads that stored to them.
  virtual void give_back() = 0;

  // True if a rollback of `thread` will add ranges to `others`, as far as known. If so, the caller makes home complete
  // first, because that can fail.
  virtual bool rollback_needs_home(ThreadNumber) { return false; }
  // If the tracker has copies of pages as they were before the stores, it restores the pages of `thread` at once and
  // marks them clean; all or none of them. It adds to `others` the ranges that it cannot restore; these count as
  // collected by collect().
  virtual Status rollback(ThreadNumber thread, std::vector<Range>& others) { return collect(thread, others); }
  // Restores a range that rollback() added to `others`. `read` reads what was committed last, from an offset on.
  // `at_home`: the home file has the same, so pages may be dropped instead.
  using ReadHome = std::function<Status(std::uint64_t offset, std::span<std::byte> target)>;
  virtual Status restore(Range range, const ReadHome& read, bool at_home) = 0;

  // Pages that hold nothing any more are given to `thread`: what was stored to them counts as that thread's. No capture
  // is under way. Any thread.
  virtual void give_pages(Range /*pages*/, ThreadNumber /*thread*/) {}
  // A capture had these bytes although its thread did not store to them; they are as they were captured.
  virtual void note_captured(Range /*range*/) {}

  // The region's memory now ends at `bytes`, a multiple of the page size. The new pages are mapped already.
  virtual Status grow(std::uint64_t bytes) = 0;

  // The calling thread stored to the range. Only the explicit and the instrumented tracker use this. Any thread.
  virtual void touch(Range) {}
  // The kernel is about to store to the range for the calling thread (read(2)). Any thread.
  virtual Status prepare(Range) { return kOk; }

  // The program is about to store to these ranges, which are not empty: they are made ready for it, all at once. A
  // hint: a store that was not announced is found as well, and a store need not follow. Any thread.
  virtual void announce(std::span<const Range>) {}

  // No capture asks from now on which thread stored where. While no other thread uses the region.
  virtual void forget_threads() {}

  // The page, which was collected and accepted, stays writable, and stores to it are not found any more, until
  // track_again(). `twin` has room for a page, and holds the page as it was captured last if the result is with_twin.
  // Refused where the kernel's pages are larger: the page's neighbours would stay writable with it.
  enum class LeftOpen : std::uint8_t { refused, without_twin, with_twin };
  virtual LeftOpen leave_open(std::uint64_t /*page*/, std::byte* /*twin*/) { return LeftOpen::refused; }
  // Stores to the page are found again. Bytes that differ from `twin`, the page as it was captured last, count as
  // stored to, by an unknown thread; all bytes if it is null. On failure the page is still left open.
  virtual Status track_again(std::uint64_t /*page*/, const std::byte* /*twin*/) { return kOk; }

  // Drops clean pages from the mapping, so that they take no memory until they are used again. Everything captured must
  // be home. If releases_any_time(), other threads may store meanwhile; otherwise every change must have been touched.
  virtual Status release_clean() = 0;
  [[nodiscard]] virtual bool releases_any_time() const { return true; }

  // How many pages were collected since the last release, each counted every time: they take memory, whether bytes of
  // them were logged or not. For trackers that release at any time. Any thread.
  [[nodiscard]] std::uint64_t pages_taken() const { return pages_taken_.load(std::memory_order_relaxed); }

  // How many bytes the last collect() had to look at, however little was stored to.
  [[nodiscard]] virtual std::uint64_t scanned_bytes() const { return 0; }

  [[nodiscard]] virtual bool knows_threads() const = 0;
  [[nodiscard]] virtual TrackerKind kind() const = 0;
  [[nodiscard]] virtual std::string describe() const = 0;

 protected:
  std::atomic<std::uint64_t> pages_taken_{0};
};

Result<std::unique_ptr<Tracker>> attach_tracker(TrackerKind kind, const TrackedMemory& memory);

// One line: how a tracker of this kind would work on this kernel.
std::string describe_tracker(TrackerKind kind);

// The constructors, one per file in trackers/.
Result<std::unique_ptr<Tracker>> attach_scan_tracker(const TrackedMemory& memory, std::string reason);
Result<std::unique_ptr<Tracker>> attach_fault_tracker(const TrackedMemory& memory, std::string reason);
// A fault tracker that takes the place of a scan tracker between two captures, under the region's capture lock, while
// no page is left open; other threads store. No store is lost: what `scan` has not collected counts as stored to.
// `twin_of`: the page as it was captured last, or null. The new tracker knows no threads either. `scan` stays, and does
// nothing, until no thread uses it any more. On failure `scan` goes on.
using TwinOf = std::function<const std::byte*(std::uint64_t page)>;
Result<std::unique_ptr<Tracker>> replace_scan_tracker(Tracker& scan, const TrackedMemory& memory, std::string reason,
                                                      const TwinOf& twin_of);
std::unique_ptr<Tracker> attach_explicit_tracker(const TrackedMemory& memory);
Result<std::unique_ptr<Tracker>> attach_instrumented_tracker(const TrackedMemory& memory);
// Ok if the kernel has what the scan tracker needs; otherwise the reason.
Status probe_scan();

}  // namespace memlith::core
