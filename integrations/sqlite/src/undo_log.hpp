// The bytes that a transaction overwrote, for its rollback, and for its commit to know what changed. Part of the SQLite
// plugin.
//
// A store is compared with the bytes that it overwrites: only bytes that differ are stored and kept here, so the commit
// need not compare pages again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image.hpp"

namespace memlith::sqlite {

// Threads: the holder of SQLite's EXCLUSIVE lock.
class UndoLog {
 public:
  struct Change {
    std::uint64_t offset;
    std::uint64_t bytes;
    std::size_t kept;  // where the old bytes lie
  };

  explicit UndoLog(std::uint64_t merge_bytes = kMergeBytes) : merge_bytes_(merge_bytes), limit_bytes_(merge_bytes) {}

  [[nodiscard]] bool empty() const { return changes_.empty(); }

  // Stores into the image, within the last committed size. Throws std::bad_alloc; bytes that were overwritten until
  // then are kept.
  void write(Image& image, std::uint64_t offset, const std::byte* source, std::uint64_t bytes);
  void zero(Image& image, std::uint64_t offset, std::uint64_t bytes);

  // The runs in which the image differs from the last commit, or was zeroed, in order and apart from each other. Valid
  // until the next call.
  const std::vector<Change>& merge(const Image& image);

  // Restores the image to the last commit.
  void roll_back(Image& image);
  // The image is what is committed.
  void clear();

 private:
  static constexpr std::uint64_t kMergeBytes = 16 * core::kMiB;
  static constexpr std::size_t kSpareBytesMax = 4 * core::kMiB;  // that stay allocated between transactions

  void keep(std::uint64_t offset, const std::byte* old, std::uint64_t bytes);
  void rebuild(const Image& image);  // changes nothing if memory runs out
  void limit(const Image& image);

  std::uint64_t merge_bytes_;
  std::uint64_t limit_bytes_;    // of old bytes, before what was overwritten again is merged
  std::vector<Change> changes_;  // in the order of the stores, or merged
  std::vector<std::byte> old_;
};

}  // namespace memlith::sqlite
