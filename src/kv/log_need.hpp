// How much log a transaction may need. Floor: kv.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "kv/locks.hpp"
#include "kv/tree.hpp"

namespace memlith::core::kv {

// A sum over the writes of a transaction.
struct LogNeed {
  std::uint64_t writes = 0;          // those that may lay out pages anew
  std::uint64_t cell_bytes = 0;      // of these
  std::uint64_t overflow_pages = 0;  // of these
  std::uint64_t in_place_writes = 0;
  std::uint64_t in_place_bytes = 0;
  std::uint64_t ranges = 0;  // whose records go; the commit reckons anew with the pages that are there

  // With what changes in the list of free runs, and the heads of the pieces that differ from an old value.
  static constexpr std::uint64_t kRunPageBytes = kPageBytes + 512;

  static LogNeed of_ranges(std::uint64_t count) {
    LogNeed need;
    need.ranges = count;
    return need;
  }
  static LogNeed of(std::string_view key, const Pending& pending) {
    LogNeed need;
    if (pending.kind == Pending::Kind::none) return need;
    if (pending.in_place) {
      need.in_place_writes = 1;
      need.in_place_bytes = pending.value.size();
      return need;
    }
    const Write write{key, pending.value, pending.kind == Pending::Kind::remove};
    need.writes = 1;
    need.overflow_pages = TreeWriter::overflow_pages_of(write);
    need.cell_bytes = TreeWriter::cell_bytes_of(write) + kSlotBytes;
    return need;
  }
  LogNeed& operator+=(const LogNeed& other) { return add(other, 1); }
  LogNeed& operator-=(const LogNeed& other) {
    MEMLITH_ASSERT(other.writes <= writes && other.cell_bytes <= cell_bytes && other.overflow_pages <= overflow_pages);
    MEMLITH_ASSERT(other.in_place_writes <= in_place_writes && other.in_place_bytes <= in_place_bytes);
    MEMLITH_ASSERT(other.ranges <= ranges);
    return add(other, ~std::uint64_t{0});
  }

  // In a kv store of so many pages.
  [[nodiscard]] std::uint64_t log_bytes(std::uint64_t pages) const {
    const std::uint64_t laid_out = std::min(2 * writes, pages) + cell_bytes / kKiB + 6;
    return laid_out * (kPageBytes + 64) + overflow_pages * kRunPageBytes + 2 * cell_bytes + 128 * writes +
           in_place_bytes + 32 * in_place_writes + 2 * kPageBytes * ranges;
  }
  // How much memory the pages and the log of the writes will take, as far as it is known without the pages: those that
  // are split are not full.
  [[nodiscard]] std::uint64_t memory_bytes() const {
    return cell_bytes * 5 / 2 + 128 * writes + 2 * overflow_pages * kRunPageBytes + 2 * in_place_bytes +
           64 * in_place_writes;
  }

 private:
  LogNeed& add(const LogNeed& other, std::uint64_t factor) {
    writes += factor * other.writes;
    cell_bytes += factor * other.cell_bytes;
    overflow_pages += factor * other.overflow_pages;
    in_place_writes += factor * other.in_place_writes;
    in_place_bytes += factor * other.in_place_bytes;
    ranges += factor * other.ranges;
    return *this;
  }
};

}  // namespace memlith::core::kv
