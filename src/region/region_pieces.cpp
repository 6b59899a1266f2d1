// The pieces that a capture takes of one region: the ranges that were stored to, and the pieces of memory or of copies
// that have to be logged. Floor: region.
#include <algorithm>

#include "base/bytes.hpp"
#include "region/participant.hpp"
#include "region/pointer_check.hpp"
#include "region/region.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kPieceBytesMax = 1 * kGiB;
constexpr std::uint64_t kBlankBytes = 64 * kKiB;  // every structure begins with bytes other than zero before that
}  // namespace

// A file's last page reaches beyond its end; those bytes are not part of the file.
void Region::cut_to_size() {
  while (!stored_.empty() && stored_.back().offset + stored_.back().bytes > size_bytes_) {
    Range& last = stored_.back();
    if (last.offset >= size_bytes_) {
      stored_.pop_back();
    } else {
      last.bytes = size_bytes_ - last.offset;
    }
  }
  MEMLITH_DCHECK(are_in_order(stored_));
}

// stored_ is sorted.
void Region::cut_to_part(Range part) {
  if (part == kWholeRegion) return;
  std::size_t kept = 0;
  for (const Range& range : stored_) {
    const std::uint64_t begin = std::max(range.offset, part.offset);
    const std::uint64_t end = std::min(range.offset + range.bytes, part.offset + part.bytes);
    if (begin < end) stored_[kept++] = {begin, end - begin};
  }
  stored_.resize(kept);
  MEMLITH_ASSERT(stored_.empty() || (lies_in(stored_.front(), part) && lies_in(stored_.back(), part)));
}

Status Region::collect(ThreadNumber thread, Range part) {
  stored_.clear();
  MEMLITH_TRY(tracker_->collect(thread, stored_));
  normalize(stored_);
  cut_to_size();
  cut_to_part(part);
  return kOk;
}

void Region::append_extents(Range part, std::vector<Extent>& extents, std::vector<const std::byte*>& sources) {
  MEMLITH_ASSERT(extents.size() == sources.size());
  pieces_.clear();
  if (twins_ != nullptr) {
    const Lsn home = store_.home_lsn();
    const auto read = [this, home](std::uint64_t page, std::span<std::byte> target) MEMLITH_REQUIRES(capture_mutex_) {
      return captured_->is_home(page, home) && store_.read_cached_home(object_, page * kPageBytes, target);
    };
    twins_->reduce(base_, stored_, read, pieces_);
  } else {
    for (const Range& range : stored_) pieces_.push_back({range, base_ + range.offset});
  }
  if (hot_ != nullptr) hot_->add_pieces(part, pieces_);
  for (const SourceExtent& piece : pieces_) {
    MEMLITH_ASSERT(piece.range.offset + piece.range.bytes <= mapped_bytes_);
    for (std::uint64_t done = 0; done < piece.range.bytes; done += kPieceBytesMax) {
      extents.push_back({object_, piece.range.offset + done, std::min(piece.range.bytes - done, kPieceBytesMax)});
      sources.push_back(piece.source + done);
    }
  }
}

void Region::append_addresses(std::vector<AddressWord>& words) const {
  for (const SourceExtent& piece : pieces_) find_addresses(*this, piece.range.offset, piece.range.bytes, words);
}

Status Region::take(ThreadNumber thread, Range part, JointFrame& frame) {
  MEMLITH_TRY(collect(thread, part));
  append_extents(part, frame.extents, frame.sources);
  if (size_changed_) frame.sizes.push_back({object_, size_bytes_});
  return kOk;
}

void Region::keep_taken(Range part, Lsn end) {
  if (end != Lsn{0}) {
    size_changed_ = false;
    note_commit(end);
    MEMLITH_ASSERT(newest_commit() >= end);
    for (const SourceExtent& piece : pieces_) {
      if (captured_ != nullptr) captured_->note(piece.range, end);
    }
  }
  MEMLITH_ASSERT(end != Lsn{0} || pieces_.empty());  // without a frame, nothing had to be logged
  accept(part);
  if (hot_ != nullptr && part == kWholeRegion) hot_->note_capture(stored_, size_bytes_, twins_.get());
}

void Region::accept(Range part) {
  for (const Range& range : stored_) note_copied(range);
  tracker_->accept_part(part);
  if (twins_ != nullptr) twins_->accept();
  if (hot_ != nullptr) hot_->accept();
}

void Region::give_back() {
  tracker_->give_back();
  if (twins_ != nullptr) twins_->give_back();
  if (hot_ != nullptr) hot_->give_back();
}

Result<std::uint64_t> Region::unpersisted() {
  if (tracker_ == nullptr) {
    return fail(Errc::read_only, Detail::object, "region \"{}\" was opened read-only", shown_name_);
  }
  MEMLITH_TRY(store_.check_process());
  const Held held(*this);
  std::vector<Extent> extents;
  std::vector<const std::byte*> sources;
  const Status collected = collect(kAllThreads, kWholeRegion);
  if (collected.ok()) append_extents(kWholeRegion, extents, sources);
  give_back();
  MEMLITH_TRY(collected);
  std::uint64_t bytes = 0;
  for (const Extent& extent : extents) bytes += extent.bytes;
  return bytes;
}

// A tracker that finds bytes pays nothing for a page.
Status Region::allow_hot_pages() {
  const TrackerKind kind = tracker_->kind();
  if (hot_ != nullptr || (kind != TrackerKind::scan && !(kind == TrackerKind::fault && process_scope_))) return kOk;
  MEMLITH_TRY_ASSIGN(hot_, HotPages::make(*tracker_, base_, reserve_bytes_));
  return kOk;
}

Result<bool> Region::is_for_making(std::string_view what, bool create, bool exclusive) const {
  const std::span<const std::byte> first(base_, std::min(size(), kBlankBytes));
  // The first bytes are left to the mark of use.
  const auto rest = first.subspan(std::min<std::size_t>(first.size(), kFileMarkBytes));
  const bool blank = (first.size() < kFileMarkBytes || is_left_to_mark(base_)) && is_zero(rest);
  if (!blank && create && exclusive) {
    return fail(Errc::exists, Detail::object, "{}: there is a region \"{}\" already", store_.path(), name_);
  }
  if (!blank || (create && !store_.read_only())) return blank;
  return fail(Errc::not_found, Detail::object,
              "{}: region \"{}\" is empty: {} was never made in it, or a crash cut the making; {}", store_.path(),
              name_, what, store_.read_only() ? "make it with the store open for writing" : "open it with `create`");
}

std::uint64_t Region::hot_pages() {
  const LockGuard lock(capture_mutex_);
  return hot_ != nullptr ? hot_->count() : 0;
}

void Region::set_guard(CaptureGuard* guard) {
  guard_ = guard;
  if (guard == nullptr || tracker_ == nullptr) return;
  const LockGuard lock(capture_mutex_);
  process_scope_ = true;
  (void)allow_hot_pages();  // without memory, no page becomes hot
}

}  // namespace memlith::core
