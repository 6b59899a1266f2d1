// Tells when faults would have found the stores to a region at a lower price than scans did: a region that was opened
// with `auto` while it was small has grown, and little of it is stored to. Floor: region.
//
// A scan looks at every page. A fault costs more than a scan for a page that is stored to, and nothing for the others.
// The excess of scans is added up, and the tracker is changed when the sum would have paid for the change: all of it
// costs at most twice as much as it would have cost to know.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/units.hpp"

namespace memlith::core {

// Measured on Linux 6.18 on virtualized x86-64. Tests have others.
struct TrackerCosts {
  // Up to this size, a scan costs no more than a dozen faults, and system calls may store to the region.
  std::uint64_t scan_bytes_max = 128 * kMiB;
  std::int64_t scan_ns_per_two_pages = 3;
  std::int64_t fault_ns = 5000;  // more than a page costs the scan that finds it
  std::int64_t change_ns = 100000;
  std::int64_t change_ns_per_page = 200;
};

class TrackerChoice {
 public:
  explicit TrackerChoice(const TrackerCosts& costs) : costs_(costs) {}

  // A capture scanned so many bytes and found so many pages stored to. True: faults are cheaper from now on.
  bool note_scan(std::uint64_t bytes, std::uint64_t stored_pages) {
    if (bytes <= costs_.scan_bytes_max) return false;
    const auto pages = static_cast<std::int64_t>(bytes / kPageBytes);
    const std::int64_t change_ns = costs_.change_ns + pages * costs_.change_ns_per_page;
    excess_ns_ += pages * costs_.scan_ns_per_two_pages / 2 - static_cast<std::int64_t>(stored_pages) * costs_.fault_ns;
    excess_ns_ = std::max(excess_ns_, -change_ns);
    return excess_ns_ >= change_ns;
  }

 private:
  TrackerCosts costs_;
  std::int64_t excess_ns_ = 0;
};

}  // namespace memlith::core
