// A disk with a volatile write cache, as a power cut finds it: what was written and not flushed lies in memory, and a
// cut keeps an arbitrary part of it. Used by power-disk, which serves it to a real kernel.
//
// The image file changes in cut() and finish() only. If the process is killed before that, the image is as the disk's
// last cut left it, so that a failed recovery can be repeated from the same bytes. Threads: one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace memlith::power {

constexpr std::uint64_t kSectorBytes = 512;

struct DiskRules {
  // Bytes that are kept or lost as one: 512, or 4096 for a disk with such sectors.
  std::uint64_t atom_bytes = kSectorBytes;
  // Writes that begin with one of these are torn at 512 bytes all the same.
  std::vector<std::string> torn_prefixes;
  // Ranges [begin, end), multiples of 4096, where a block of 4096 bytes is kept or lost as one: see docs/testing.md.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> whole_blocks;
  // A disk that acknowledges a flush and does nothing. It breaks the first assumption of docs/guarantees.md.
  bool lies = false;
};

struct CutResult {
  std::string style;           // how what was kept was chosen
  std::uint64_t requests = 0;  // writes under way or acknowledged but not flushed
  std::uint64_t kept = 0;      // sectors of them, counting a sector once for each write
  std::uint64_t dropped = 0;
};

class LossyDisk {
 public:
  // `image` is open for reading and writing and stays the caller's. `bytes` is a multiple of 4096.
  LossyDisk(int image, std::uint64_t bytes, DiskRules rules);

  [[nodiscard]] std::uint64_t size() const { return bytes_; }
  [[nodiscard]] std::uint64_t writes() const { return request_; }
  [[nodiscard]] std::uint64_t flushes() const { return flushes_; }
  [[nodiscard]] std::uint64_t forced() const { return forced_; }  // writes that were durable by themselves

  // False if the range is not made of sectors of this disk. Reads see every write.
  [[nodiscard]] bool valid(std::uint64_t offset, std::uint64_t bytes) const;
  void read(std::uint64_t offset, std::span<std::byte> target) const;
  void write(std::uint64_t offset, std::span<const std::byte> source, bool durable);
  void flush();

  // The power goes: puts onto the image what was flushed, and of the rest what `seed` says.
  CutResult cut(std::uint64_t seed);
  // The same, and of the rest nothing is kept.
  CutResult lose();
  // An orderly end: everything goes onto the image.
  void finish();

 private:
  using Sector = std::array<std::byte, kSectorBytes>;
  struct Pending {
    std::uint64_t request;
    bool torn;  // may be torn at any sector
    Sector bytes;
  };

  [[nodiscard]] bool begins_torn(std::span<const std::byte> source) const;
  [[nodiscard]] std::uint64_t atom_of(std::uint64_t sector, bool torn) const;
  void write_image() const;

  int image_;
  std::uint64_t bytes_;
  DiskRules rules_;
  std::uint64_t request_ = 0;
  std::uint64_t flushes_ = 0;
  std::uint64_t forced_ = 0;
  std::unordered_map<std::uint64_t, Sector> durable_;                // by sector; newer than the image
  std::unordered_map<std::uint64_t, std::vector<Pending>> pending_;  // newer than durable_, oldest first
};

}  // namespace memlith::power
