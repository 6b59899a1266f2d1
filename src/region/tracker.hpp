// Trackers answer: what was stored to since the last capture? Floor: region, which owns the interface.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "base/units.hpp"

namespace memlith::core {

enum class TrackerKind : std::uint32_t { automatic = 0, scan = 1, touched = 2, mprotect = 3 };

struct Range {
  std::uint64_t offset = 0;  // in the region
  std::uint64_t bytes = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

// Sorts, and joins what overlaps or touches; never covers a byte that no range covered.
void normalize(std::vector<Range>& ranges);

class Tracker {
 public:
  virtual ~Tracker() = default;

  // Adds every range stored to since the last collect and starts over, atomically: a store lands either in this
  // collect's ranges, and then before the caller copies them, or in the next. May add a range twice.
  virtual Status collect(std::vector<Range>& ranges) = 0;

  // The region's memory now ends at `bytes`, a multiple of the page size; the new pages are mapped already.
  virtual Status grow(std::uint64_t bytes) = 0;

  // Only the explicit tracker cares. Any thread.
  virtual void touch(Range) {}

  [[nodiscard]] virtual TrackerKind kind() const = 0;
  [[nodiscard]] virtual std::string describe() const = 0;
};

// Attaches to [base, base + bytes), which is mapped and not stored to yet; capacity_bytes is what it may grow to.
Result<std::unique_ptr<Tracker>> attach_tracker(TrackerKind kind, std::byte* base, std::uint64_t bytes,
                                                std::uint64_t capacity_bytes);

// One line: how a tracker of this kind would work on this kernel.
std::string describe_tracker(TrackerKind kind);

// The makers, one a file in trackers/.
Result<std::unique_ptr<Tracker>> attach_scan_tracker(std::byte* base, std::uint64_t bytes);
Result<std::unique_ptr<Tracker>> attach_mprotect_tracker(std::byte* base, std::uint64_t bytes,
                                                         std::uint64_t capacity_bytes, std::string reason);
std::unique_ptr<Tracker> attach_explicit_tracker();
// Ok where the kernel has what the scan tracker needs; else why not.
Status probe_scan();

}  // namespace memlith::core
