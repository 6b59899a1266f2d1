// The database in memory: a private mapping of its home file, in segments that never move. Part of the SQLite plugin.
//
// Pages are loaded from the page cache at the first access; stores go to private copies and never reach the file. The
// mapping consists of segments, so that it grows without a limit and a pointer returned by xFetch stays valid as long
// as the database is open.
//
// INVARIANT: a page that is not a private copy shows what replay wrote home. Therefore a page whose committed state
// differs from what memory shows (in WAL mode readers of older snapshots read memory) must be made private with own()
// before that commit can reach home.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "base/units.hpp"

namespace memlith::sqlite {

inline constexpr std::uint64_t kSegmentBytes = 256 * core::kMiB;

// Threads: reading and fetching by any number, next to one that covers more; writing, owning and releasing as SQLite's
// locks have it.
class Image {
 public:
  explicit Image(int descriptor) : descriptor_(descriptor) {}  // the descriptor outlives the image
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  // Makes the first `bytes` addressable. The home must be that long before they are touched.
  core::Status cover(std::uint64_t bytes);
  // Loads what was not loaded yet, before it is used: a sector that the disk cannot read is an error here, and would be
  // a signal (SIGBUS) at the access. Before Linux 5.14 it is the signal.
  [[nodiscard]] core::Status load(std::uint64_t offset, std::uint64_t bytes) const;

  // Within what is covered.
  void read(std::uint64_t offset, void* target, std::uint64_t bytes) const;
  void write(std::uint64_t offset, const void* source, std::uint64_t bytes);
  void zero(std::uint64_t offset, std::uint64_t bytes);
  // The address of the bytes; null if they lie in two segments.
  [[nodiscard]] std::byte* find(std::uint64_t offset, std::uint64_t bytes) const;
  // Calls use(address, offset, bytes) for each contiguous part of a range.
  template <class Use>
  void for_each_piece(std::uint64_t offset, std::uint64_t bytes, Use use) const {
    while (bytes > 0) {
      const std::uint64_t inside = offset % kSegmentBytes;
      const std::uint64_t step = bytes < kSegmentBytes - inside ? bytes : kSegmentBytes - inside;
      use(segment(offset / kSegmentBytes) + inside, offset, step);
      offset += step;
      bytes -= step;
    }
  }

  // Makes the pages of the range private copies of what they show.
  core::Status own(std::uint64_t offset, std::uint64_t bytes);
  // The file was cut to so many bytes: what lies beyond was private copies, and is not any more.
  void note_cut(std::uint64_t bytes);
  // Releases private copies, except the first page; the home file must hold the same bytes.
  core::Status release();

 private:
  static constexpr std::uint64_t kSegmentPages = kSegmentBytes / core::kPageBytes;
  struct Segment {
    std::byte* memory;
    std::array<std::atomic<std::uint64_t>, kSegmentPages / 64> loaded;  // a bit a page; independent of all else
  };
  using Table = std::array<std::atomic<Segment*>, 1024>;
  [[nodiscard]] Segment& whole_segment(std::uint64_t index) const {
    // Acquire; pairs with the stores in cover().
    return *(*tables_[index / 1024].load(std::memory_order_acquire))[index % 1024].load(std::memory_order_acquire);
  }
  [[nodiscard]] std::byte* segment(std::uint64_t index) const { return whole_segment(index).memory; }
  static bool load_page(Segment& segment, std::uint64_t page);  // else with errno

  int descriptor_;
  std::uint64_t segments_ = 0;                      // of the one that covers
  std::array<std::atomic<Table*>, 1024> tables_{};  // 256 TiB
  std::vector<std::uint64_t> owned_;                // a bit a page; only saves system calls
};

}  // namespace memlith::sqlite
