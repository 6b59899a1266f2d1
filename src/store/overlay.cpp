#include "store/overlay.hpp"

#include <algorithm>
#include <cstring>

namespace memlith::core {

namespace {
// The first arena is small, because most recoveries have little to replay; later ones lie in huge pages.
constexpr std::uint64_t kArenaBytes[] = {16 * kKiB, 2 * kMiB, 16 * kMiB};
alignas(kPageBytes) constexpr std::byte kZeros[kPageBytes] = {};
constexpr std::size_t kPiecesFirst = 2;  // room of a page that gets its first piece
bool is_zeros(const std::byte* data) { return data >= kZeros && data < kZeros + kPageBytes; }

}  // namespace

Result<std::byte*> Overlay::allocate(std::uint64_t bytes) {
  MEMLITH_ASSERT(bytes > 0 && bytes <= kPageBytes);
  if (bytes > arena_left_) {
    const std::uint64_t usual = kArenaBytes[std::min(arenas_.size(), std::size(kArenaBytes) - 1)];
    MEMLITH_TRY_ASSIGN(AlignedBuffer arena, AlignedBuffer::allocate(std::max(bytes, usual)));
    arena_next_ = arena.data();
    arena_left_ = arena.size();
    arenas_.push_back(std::move(arena));
  }
  MEMLITH_ASSERT(bytes <= arena_left_);
  std::byte* const result = arena_next_;
  arena_next_ += bytes;
  arena_left_ -= bytes;
  bytes_held_ += bytes;
  return result;
}

Overlay::Page& Overlay::page_of(Leaves& leaves, std::uint64_t page) {
  const std::size_t before = leaves.size();
  Leaf& leaf = leaves[page / kLeafPages];
  if (leaves.size() > before) bytes_held_ += sizeof(Leaf);
  Page& found = leaf[page % kLeafPages];
  if (found.empty()) ++pages_;  // the caller puts something in
  return found;
}

// For two more pieces: cutting may make one, and one is inserted.
void Overlay::make_room(Page& page) {
  if (page.capacity() - page.size() >= 2) return;
  const std::size_t before = page.capacity();
  page.reserve(std::max(kPiecesFirst, 2 * before));
  bytes_held_ += (page.capacity() - before) * sizeof(Fragment);
}

// Removes everything inside [begin, end); pieces that cross a border keep the part outside. There is room for one more.
void Overlay::cut_out(Page& page, std::uint32_t begin, std::uint32_t end) {
  MEMLITH_ASSERT(begin < end && end <= kPageBytes);
  MEMLITH_ASSERT(page.size() < page.capacity());
  auto first = std::partition_point(page.begin(), page.end(), [begin](const Fragment& p) { return p.end() <= begin; });
  if (first == page.end() || first->begin >= end) return;
  if (first->begin < begin && first->end() > end) {
    const Fragment rest{first->data + (end - first->begin), static_cast<std::uint16_t>(end),
                        static_cast<std::uint16_t>(first->end() - end)};
    first->bytes = static_cast<std::uint16_t>(begin - first->begin);
    page.insert(first + 1, rest);
    return;
  }
  if (first->begin < begin) {
    first->bytes = static_cast<std::uint16_t>(begin - first->begin);
    ++first;
  }
  auto last = first;
  while (last != page.end() && last->end() <= end) ++last;
  if (last != page.end() && last->begin < end) {
    last->data += end - last->begin;
    last->bytes = static_cast<std::uint16_t>(last->end() - end);
    last->begin = static_cast<std::uint16_t>(end);
  }
  page.erase(first, last);
}

Status Overlay::apply_to_page(Page& page, std::uint32_t begin, std::span<const std::byte> bytes) {
  const auto at_or_after = [begin](const Page& pieces) {
    return std::partition_point(pieces.begin(), pieces.end(), [begin](const Fragment& p) { return p.begin < begin; });
  };
  // The common case: the same bytes again.
  const auto same = at_or_after(page);
  if (same != page.end() && same->begin == begin && same->bytes == bytes.size() && !is_zeros(same->data)) {
    std::memcpy(same->data, bytes.data(), bytes.size());
    return kOk;
  }
  make_room(page);
  MEMLITH_TRY_ASSIGN(std::byte* const data, allocate(bytes.size()));
  cut_out(page, begin, begin + static_cast<std::uint32_t>(bytes.size()));
  std::memcpy(data, bytes.data(), bytes.size());
  page.insert(at_or_after(page), {data, static_cast<std::uint16_t>(begin), static_cast<std::uint16_t>(bytes.size())});
  MEMLITH_DCHECK(is_in_order(page));
  return kOk;
}

bool Overlay::is_in_order(const Page& page) {
  std::uint32_t end = 0;
  for (const Fragment& piece : page) {
    if (piece.bytes == 0 || piece.begin < end || piece.end() > kPageBytes) return false;
    end = piece.end();
  }
  return true;
}

Status Overlay::apply(ObjectId object, std::uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return kOk;
  Leaves& leaves = objects_[object];
  while (!bytes.empty()) {
    const std::uint64_t begin = offset % kPageBytes;
    const std::uint64_t count = std::min<std::uint64_t>(bytes.size(), kPageBytes - begin);
    MEMLITH_TRY(apply_to_page(page_of(leaves, offset / kPageBytes), static_cast<std::uint32_t>(begin),
                              bytes.first(count)));
    offset += count;
    bytes = bytes.subspan(count);
  }
  return kOk;
}

void Overlay::apply_zeros(ObjectId object, std::uint64_t offset, std::uint64_t bytes) {
  MEMLITH_ASSERT(offset % kPageBytes == 0 && bytes % kPageBytes == 0);
  Leaves& leaves = objects_[object];
  for (std::uint64_t page = offset / kPageBytes; page < (offset + bytes) / kPageBytes; ++page) {
    Page& pieces = page_of(leaves, page);
    make_room(pieces);
    pieces.assign(1, {const_cast<std::byte*>(kZeros), 0, kPageBytes});  // which nothing writes to: see is_zeros()
  }
}

void Overlay::drop(const Extent& extent) {
  const auto found = objects_.find(extent.object);
  if (found == objects_.end()) return;
  const std::uint64_t end = extent.offset + extent.bytes;
  for (std::uint64_t at = extent.offset; at < end; at = (at / kPageBytes + 1) * kPageBytes) {
    const auto leaf = found->second.find(at / kPageBytes / kLeafPages);
    if (leaf == found->second.end()) continue;
    Page& page = leaf->second[at / kPageBytes % kLeafPages];
    if (page.empty()) continue;
    make_room(page);
    const std::uint64_t page_begin = at / kPageBytes * kPageBytes;
    cut_out(page, static_cast<std::uint32_t>(at - page_begin),
            static_cast<std::uint32_t>(std::min(end - page_begin, kPageBytes)));
    if (page.empty()) --pages_;
  }
}

std::span<const std::byte> Overlay::page_of_zeros() { return kZeros; }

bool Overlay::is_page_of_zeros(std::span<const std::byte> bytes) {
  return bytes.data() == kZeros && bytes.size() == kPageBytes;
}

// Pieces that lie behind each other in the object and in memory are one for the visitor.
Status Overlay::for_each(ObjectId object, const Visit& visit) const {
  const auto found = objects_.find(object);
  if (found == objects_.end()) return kOk;
  std::uint64_t offset = 0;
  std::span<const std::byte> bytes;
  for (const auto& [number, leaf] : found->second) {
    for (std::uint64_t i = 0; i < kLeafPages; ++i) {
      for (const Fragment& piece : leaf[i]) {
        const std::uint64_t begin = (number * kLeafPages + i) * kPageBytes + piece.begin;
        if (!bytes.empty() && begin == offset + bytes.size() && piece.data == bytes.data() + bytes.size()) {
          bytes = {bytes.data(), bytes.size() + piece.bytes};
          continue;
        }
        if (!bytes.empty()) MEMLITH_TRY(visit(offset, bytes));
        offset = begin;
        bytes = {piece.data, piece.bytes};
      }
    }
  }
  return bytes.empty() ? kOk : visit(offset, bytes);
}

Status Overlay::copy_to(ObjectId object, std::uint64_t offset, std::span<std::byte> target) const {
  const auto found = objects_.find(object);
  if (found == objects_.end()) return kOk;
  const std::uint64_t end = offset + target.size();
  for (std::uint64_t page = offset / kPageBytes; page * kPageBytes < end; ++page) {
    const auto leaf = found->second.find(page / kLeafPages);
    if (leaf == found->second.end()) continue;
    for (const Fragment& piece : leaf->second[page % kLeafPages]) {
      const std::uint64_t at = page * kPageBytes + piece.begin;
      const std::uint64_t from = std::max(at, offset);
      const std::uint64_t to = std::min(at + piece.bytes, end);
      if (from < to) std::memcpy(target.data() + (from - offset), piece.data + (from - at), to - from);
    }
  }
  return kOk;
}

bool Overlay::has(ObjectId object, std::uint64_t page) const {
  const auto found = objects_.find(object);
  if (found == objects_.end()) return false;
  const auto leaf = found->second.find(page / kLeafPages);
  return leaf != found->second.end() && !leaf->second[page % kLeafPages].empty();
}

std::vector<ObjectId> Overlay::objects() const {
  std::vector<ObjectId> result;
  for (const auto& [object, leaves] : objects_) result.push_back(object);
  return result;
}

std::uint64_t Overlay::piece_count() const {
  std::uint64_t result = 0;
  for (const auto& [object, leaves] : objects_) {
    (void)for_each(object, [&result](std::uint64_t, std::span<const std::byte>) {
      ++result;
      return kOk;
    });
  }
  return result;
}

void Overlay::clear() {
  objects_.clear();
  arenas_.clear();
  arena_next_ = nullptr;
  arena_left_ = 0;
  pages_ = 0;
  bytes_held_ = 0;
}

}  // namespace memlith::core
