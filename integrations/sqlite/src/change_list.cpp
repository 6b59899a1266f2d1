#include "change_list.hpp"

#include <algorithm>
#include <cstring>

#include "difference.hpp"

namespace memlith::sqlite {

using core::kFile;

void ChangeList::clear() {
  extents_.clear();
  sources_.clear();
}

void ChangeList::append(std::uint64_t offset, std::uint64_t bytes, const std::byte* source) {
  extents_.push_back({kFile, offset, bytes});
  sources_.push_back(source);
}

void ChangeList::add(std::uint64_t offset, std::uint64_t bytes, const std::byte* source) {
  const auto skip = [&](std::uint64_t count) {
    offset += count;
    source += count;
    bytes -= count;
  };
  if (offset < MEMLITH_SQLITE_CHANGED_BYTES) {
    if (offset < MEMLITH_SQLITE_MARK_BYTES) skip(std::min<std::uint64_t>(bytes, MEMLITH_SQLITE_MARK_BYTES - offset));
    if (offset < MEMLITH_SQLITE_TURNED_AT && bytes > 0) {
      const std::uint64_t count = std::min<std::uint64_t>(bytes, MEMLITH_SQLITE_TURNED_AT - offset);
      append(offset, count, source);
      skip(count);
    }
    if (offset == MEMLITH_SQLITE_TURNED_AT && bytes > 0) {
      const std::uint64_t count = std::min<std::uint64_t>(bytes, sizeof turned_);
      std::memcpy(turned_, source, count);
      turned_[0] ^= std::byte{MEMLITH_SQLITE_TURNED_BIT};
      append(offset, count, turned_);
      skip(count);
    }
  }
  if (bytes > 0) append(offset, bytes, source);
}

void ChangeList::add_image(const Image& image, std::uint64_t begin, std::uint64_t end) {
  image.for_each_piece(begin, end - begin, [this](const std::byte* at, std::uint64_t offset, std::uint64_t bytes) {
    add(offset, bytes, at);
  });
}

void ChangeList::add_difference(std::uint64_t offset, const std::byte* before, const std::byte* after,
                                std::uint64_t bytes) {
  for_each_difference(before, after, bytes,
                      [&](std::uint64_t begin, std::uint64_t count) { add(offset + begin, count, after + begin); });
}

}  // namespace memlith::sqlite
