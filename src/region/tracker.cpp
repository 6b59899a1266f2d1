#include "region/tracker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "base/sync.hpp"
#include "region/tracker_choice.hpp"
#include "region/trackers/fault_handler.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kScanBytesMax = TrackerCosts{}.scan_bytes_max;

// Initial-exec: the variable is reached without a call, which could allocate inside the signal handler.
[[gnu::tls_model("initial-exec")]] thread_local ThreadNumber t_number = 0;
std::atomic<ThreadNumber> g_numbers{0};

}  // namespace

ThreadNumber this_thread_number() {
  if (t_number == 0) t_number = g_numbers.fetch_add(1, std::memory_order_relaxed) + 1;
  return t_number;
}

bool are_in_order(std::span<const Range> ranges) {
  std::uint64_t end = 0;
  for (const Range& range : ranges) {
    if (range.bytes == 0 || range.offset < end) return false;
    end = range.offset + range.bytes;
  }
  return true;
}

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
  MEMLITH_DCHECK(are_in_order(ranges));
}

Result<std::unique_ptr<Tracker>> attach_tracker(TrackerKind kind, const TrackedMemory& memory) {
  MEMLITH_ASSERT(memory.bytes <= memory.capacity_bytes && memory.bytes % kPageBytes == 0);
  MEMLITH_ASSERT(memory.capacity_bytes % kPageBytes == 0);
  order_forks_before_handler();
  switch (kind) {
    case TrackerKind::touched: return attach_explicit_tracker(memory);
    case TrackerKind::fault: return attach_fault_tracker(memory, "asked for");
    case TrackerKind::instrumented: return attach_instrumented_tracker(memory);
    case TrackerKind::automatic:
    case TrackerKind::scan: break;
  }
  MEMLITH_ASSERT(kind == TrackerKind::automatic || !memory.thread_scope);
  if (memory.thread_scope) return attach_fault_tracker(memory, "chosen: threads persist their own stores");
  if (kind == TrackerKind::automatic && memory.bytes > kScanBytesMax) {
    return attach_fault_tracker(memory, fmt::format("chosen: scanning more than {} MiB would cost more than faults",
                                                    kScanBytesMax / kMiB));
  }
  if (!probe_scan().ok()) return attach_fault_tracker(memory, std::string(last_error_text()));
  return attach_scan_tracker(memory, kind == TrackerKind::automatic ? "chosen: a small region is scanned quickly" : "");
}

std::string describe_tracker(TrackerKind kind) {
  switch (kind) {
    case TrackerKind::touched: return "explicit: the program says what it stored; bytes; tells threads apart";
    case TrackerKind::fault:
      return "fault: pages are protected, stores to them caught; bytes, by comparing; tells threads apart";
    case TrackerKind::instrumented:
      return "instrumented: the compiler says what was stored, in programs built with memlith-g++ or memlith-c++; "
             "bytes; tells threads apart";
    case TrackerKind::automatic:
      return fmt::format(
          "auto: scan for regions of up to {} MiB; fault for larger ones, also for those that have grown and of which "
          "little is stored to, and where threads persist their own stores",
          kScanBytesMax / kMiB);
    case TrackerKind::scan: break;
  }
  if (probe_scan().ok()) return "scan: userfaultfd WP_ASYNC and PAGEMAP_SCAN; bytes, by comparing; all threads";
  return "scan: by faults, because " + std::string(last_error_text());
}

}  // namespace memlith::core
