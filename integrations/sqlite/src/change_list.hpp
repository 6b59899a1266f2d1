// The bytes of one commit: where they belong in the home file, and where they lie in memory. Part of the SQLite plugin.
//
// As long as a database is open, the first bytes of its home file are the mark, and one bit of the change counter is
// inverted (database.hpp). A list therefore leaves the bytes of the mark out, and has a copy of the bytes around the
// counter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "image.hpp"
#include "memlith/sqlite_file.h"
#include "store/store.hpp"

namespace memlith::sqlite {

class ChangeList {
 public:
  void clear();
  [[nodiscard]] bool empty() const { return extents_.empty(); }
  [[nodiscard]] std::span<const core::Extent> extents() const { return extents_; }
  // For each extent: the address of its bytes.
  [[nodiscard]] std::span<const std::byte* const> sources() const { return sources_; }

  // The sources have to stay as they are until the commit has returned.
  void add(std::uint64_t offset, std::uint64_t bytes, const std::byte* source);
  void add_image(const Image& image, std::uint64_t begin, std::uint64_t end);
  // The bytes of `after` that differ from those of `before`.
  void add_difference(std::uint64_t offset, const std::byte* before, const std::byte* after, std::uint64_t bytes);

 private:
  void append(std::uint64_t offset, std::uint64_t bytes, const std::byte* source);

  std::vector<core::Extent> extents_;
  std::vector<const std::byte*> sources_;
  std::byte turned_[MEMLITH_SQLITE_CHANGED_BYTES - MEMLITH_SQLITE_TURNED_AT];  // what goes home from TURNED_AT on
};

}  // namespace memlith::sqlite
