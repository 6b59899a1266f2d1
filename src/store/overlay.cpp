#include "store/overlay.hpp"

#include <algorithm>
#include <cstring>

#include "base/mutant.hpp"

namespace memlith::core {

namespace {
// The first arena is small, because most recoveries have little to replay; later ones lie in huge pages.
constexpr std::uint64_t kArenaBytes[] = {16 * kKiB, 2 * kMiB, 16 * kMiB};
constexpr std::uint64_t kNodeBytes = 64;  // the memory of a piece besides its bytes
}  // namespace

Result<std::byte*> Overlay::allocate(std::uint64_t bytes) {
  if (bytes > arena_left_) {
    const std::uint64_t usual = kArenaBytes[std::min(arenas_.size(), std::size(kArenaBytes) - 1)];
    MEMLITH_TRY_ASSIGN(AlignedBuffer arena, AlignedBuffer::allocate(std::max(bytes, usual)));
    arena_next_ = arena.data();
    arena_left_ = arena.size();
    arenas_.push_back(std::move(arena));
  }
  std::byte* const result = arena_next_;
  arena_next_ += bytes;
  arena_left_ -= bytes;
  bytes_held_ += bytes + kNodeBytes;
  return result;
}

// Removes everything inside [begin, end); extents that cross a border keep the part outside.
void Overlay::cut_out(Extents& extents, std::uint64_t begin, std::uint64_t end) {
  auto at = extents.lower_bound(begin);
  if (at != extents.begin()) {
    const auto before = std::prev(at);
    const std::uint64_t before_end = before->first + before->second.bytes;
    if (before_end > end) {
      extents.emplace_hint(at, end, Extent{before_end - end, before->second.data + (end - before->first)});
    }
    if (before_end > begin) before->second.bytes = begin - before->first;
  }
  while (at != extents.end() && at->first < end) {
    const std::uint64_t at_end = at->first + at->second.bytes;
    if (at_end > end) {
      const Extent rest{at_end - end, at->second.data + (end - at->first)};
      at = extents.erase(at);
      extents.emplace_hint(at, end, rest);
      break;
    }
    at = extents.erase(at);
  }
}

Status Overlay::apply(ObjectId object, std::uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return kOk;
  Extents& extents = extents_[object];
  // The common case: the same pages again.
  if (const auto same = extents.find(offset); same != extents.end() && same->second.bytes == bytes.size()) {
    if (!MEMLITH_MUTANT(first_version_wins)) std::memcpy(same->second.data, bytes.data(), bytes.size());
    return kOk;
  }
  MEMLITH_TRY_ASSIGN(std::byte* const data, allocate(bytes.size()));
  cut_out(extents, offset, offset + bytes.size());
  std::memcpy(data, bytes.data(), bytes.size());
  extents.emplace(offset, Extent{bytes.size(), data});
  return kOk;
}

Status Overlay::for_each(ObjectId object, const Visit& visit) const {
  const auto found = extents_.find(object);
  if (found == extents_.end()) return kOk;
  for (const auto& [offset, piece] : found->second) MEMLITH_TRY(visit(offset, {piece.data, piece.bytes}));
  return kOk;
}

std::vector<ObjectId> Overlay::objects() const {
  std::vector<ObjectId> result;
  for (const auto& [object, extents] : extents_) result.push_back(object);
  return result;
}

std::uint64_t Overlay::extent_count() const {
  std::uint64_t result = 0;
  for (const auto& [object, extents] : extents_) result += extents.size();
  return result;
}

void Overlay::clear() {
  extents_.clear();
  arenas_.clear();
  arena_next_ = nullptr;
  arena_left_ = 0;
  bytes_held_ = 0;
}

}  // namespace memlith::core
