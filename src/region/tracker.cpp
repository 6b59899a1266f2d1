#include "region/tracker.hpp"

#include <algorithm>

namespace memlith::core {

void normalize(std::vector<Range>& ranges) {
  if (ranges.size() < 2) return;
  const auto by_offset = [](const Range& a, const Range& b) { return a.offset < b.offset; };
  if (!std::is_sorted(ranges.begin(), ranges.end(), by_offset)) std::sort(ranges.begin(), ranges.end(), by_offset);
  std::size_t last = 0;
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    const std::uint64_t last_end = ranges[last].offset + ranges[last].bytes;
    if (ranges[i].offset <= last_end) {
      ranges[last].bytes = std::max(last_end, ranges[i].offset + ranges[i].bytes) - ranges[last].offset;
    } else {
      ranges[++last] = ranges[i];
    }
  }
  ranges.resize(last + 1);
}

Result<std::unique_ptr<Tracker>> attach_tracker(TrackerKind kind, std::byte* base, std::uint64_t bytes,
                                                std::uint64_t capacity_bytes) {
  switch (kind) {
    case TrackerKind::touched: return attach_explicit_tracker();
    case TrackerKind::mprotect: return attach_mprotect_tracker(base, bytes, capacity_bytes, "asked for");
    case TrackerKind::automatic:
    case TrackerKind::scan: break;
  }
  if (!probe_scan().ok()) {
    return attach_mprotect_tracker(base, bytes, capacity_bytes, std::string(last_error_text()));
  }
  return attach_scan_tracker(base, bytes);
}

std::string describe_tracker(TrackerKind kind) {
  switch (kind) {
    case TrackerKind::touched: return "explicit: the program says what it stored; bytes";
    case TrackerKind::mprotect: return "mprotect: pages are protected and SIGSEGV is caught; whole pages";
    case TrackerKind::automatic:
    case TrackerKind::scan: break;
  }
  if (probe_scan().ok()) return "scan: userfaultfd WP_ASYNC and PAGEMAP_SCAN; whole pages";
  return "scan: by mprotect and SIGSEGV, because " + std::string(last_error_text());
}

}  // namespace memlith::core
