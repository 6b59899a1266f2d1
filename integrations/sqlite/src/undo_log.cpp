#include "undo_log.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "difference.hpp"

namespace memlith::sqlite {

namespace {

bool in_order(const std::vector<UndoLog::Change>& changes) {
  std::uint64_t end = 0;
  for (const UndoLog::Change& change : changes) {
    if (change.offset < end) return false;
    end = change.offset + change.bytes;
  }
  return true;
}

}  // namespace

void UndoLog::keep(std::uint64_t offset, const std::byte* old, std::uint64_t bytes) {
  const std::size_t kept = old_.size();
  old_.insert(old_.end(), old, old + bytes);
  changes_.push_back({offset, bytes, kept});
}

void UndoLog::write(Image& image, std::uint64_t offset, const std::byte* source, std::uint64_t bytes) {
  image.for_each_piece(offset, bytes, [&](std::byte* at, std::uint64_t here, std::uint64_t step) {
    for_each_difference(at, source, step, [&](std::uint64_t begin, std::uint64_t count) {
      keep(here + begin, at + begin, count);
      std::memcpy(at + begin, source + begin, count);
    });
    source += step;
  });
  limit(image);
}

void UndoLog::zero(Image& image, std::uint64_t offset, std::uint64_t bytes) {
  image.for_each_piece(offset, bytes, [&](std::byte* at, std::uint64_t here, std::uint64_t step) {
    keep(here, at, step);
    std::memset(at, 0, step);
  });
  limit(image);
}

// A transaction that spills the same pages repeatedly keeps at most twice the bytes that changed in the image.
void UndoLog::limit(const Image& image) {
  if (old_.size() <= limit_bytes_) return;
  rebuild(image);
  limit_bytes_ = std::max(merge_bytes_, 2 * static_cast<std::uint64_t>(old_.size()));
}

const std::vector<UndoLog::Change>& UndoLog::merge(const Image& image) {
  if (!in_order(changes_)) rebuild(image);
  return changes_;
}

void UndoLog::rebuild(const Image& image) {
  std::vector<Change> changes = changes_;
  std::sort(changes.begin(), changes.end(),
            [](const Change& one, const Change& other) { return one.offset < other.offset; });
  UndoLog merged;
  std::vector<std::byte> before;
  std::vector<Change> group;
  for (auto first = changes.begin(); first != changes.end();) {
    std::uint64_t end = first->offset + first->bytes;
    auto last = first + 1;
    for (; last != changes.end() && last->offset < end; ++last) end = std::max(end, last->offset + last->bytes);
    // Lies in one piece of the image, because each of its changes does and each overlaps one before it.
    const std::byte* const after = image.find(first->offset, end - first->offset);
    before.assign(after, after + (end - first->offset));
    // The oldest bytes count, so they are applied last; `kept` is in order of time.
    group.assign(first, last);
    std::sort(group.begin(), group.end(), [](const Change& one, const Change& other) { return one.kept > other.kept; });
    for (const Change& change : group) {
      std::memcpy(before.data() + (change.offset - first->offset), old_.data() + change.kept, change.bytes);
    }
    for_each_difference(before.data(), after, before.size(), [&](std::uint64_t begin, std::uint64_t count) {
      merged.keep(first->offset + begin, before.data() + begin, count);
    });
    first = last;
  }
  changes_ = std::move(merged.changes_);
  old_ = std::move(merged.old_);
}

void UndoLog::roll_back(Image& image) {
  for (auto change = changes_.rbegin(); change != changes_.rend(); ++change) {
    image.write(change->offset, old_.data() + change->kept, change->bytes);
  }
  clear();
}

void UndoLog::clear() {
  changes_.clear();
  old_.clear();
  limit_bytes_ = merge_bytes_;
  if (old_.capacity() > kSpareBytesMax) old_ = {};
  if (changes_.capacity() * sizeof(Change) > kSpareBytesMax) changes_ = {};
}

}  // namespace memlith::sqlite
