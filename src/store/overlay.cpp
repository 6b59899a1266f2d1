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

// Removes everything inside [begin, end); pieces that cross a border keep the part outside.
void Overlay::cut_out(Pieces& pieces, std::uint64_t begin, std::uint64_t end) {
  auto at = pieces.lower_bound(begin);
  if (at != pieces.begin()) {
    const auto before = std::prev(at);
    const std::uint64_t before_end = before->first + before->second.bytes;
    if (before_end > end) {
      pieces.emplace_hint(at, end, Piece{before_end - end, before->second.data + (end - before->first)});
    }
    if (before_end > begin) before->second.bytes = begin - before->first;
  }
  while (at != pieces.end() && at->first < end) {
    const std::uint64_t at_end = at->first + at->second.bytes;
    if (at_end > end) {
      const Piece rest{at_end - end, at->second.data + (end - at->first)};
      at = pieces.erase(at);
      pieces.emplace_hint(at, end, rest);
      break;
    }
    at = pieces.erase(at);
  }
}

Status Overlay::apply(ObjectId object, std::uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return kOk;
  Pieces& pieces = pieces_[object];
  // The common case: the same pages again.
  if (const auto same = pieces.find(offset); same != pieces.end() && same->second.bytes == bytes.size()) {
    if (!MEMLITH_MUTANT(first_version_wins)) std::memcpy(same->second.data, bytes.data(), bytes.size());
    return kOk;
  }
  MEMLITH_TRY_ASSIGN(std::byte* const data, allocate(bytes.size()));
  cut_out(pieces, offset, offset + bytes.size());
  std::memcpy(data, bytes.data(), bytes.size());
  pieces.emplace(offset, Piece{bytes.size(), data});
  return kOk;
}

Status Overlay::for_each(ObjectId object, const Visit& visit) const {
  const auto found = pieces_.find(object);
  if (found == pieces_.end()) return kOk;
  for (const auto& [offset, piece] : found->second) MEMLITH_TRY(visit(offset, {piece.data, piece.bytes}));
  return kOk;
}

std::vector<ObjectId> Overlay::objects() const {
  std::vector<ObjectId> result;
  for (const auto& [object, pieces] : pieces_) result.push_back(object);
  return result;
}

std::uint64_t Overlay::piece_count() const {
  std::uint64_t result = 0;
  for (const auto& [object, pieces] : pieces_) result += pieces.size();
  return result;
}

void Overlay::clear() {
  pieces_.clear();
  arenas_.clear();
  arena_next_ = nullptr;
  arena_left_ = 0;
  bytes_held_ = 0;
}

}  // namespace memlith::core
