#include "region/region_capture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "region/drop_pages.hpp"
#include "region/region.hpp"

namespace memlith::core {

namespace {
constexpr std::uint64_t kPieceBytesMax = 1 * kGiB;
constexpr std::uint64_t kReadBackBytesMax = 1 * kMiB;  // without a checkpoint
}  // namespace

TrackedMemory RegionCapture::tracked_memory() {
  const auto map_home = [this](std::uint64_t begin, std::uint64_t end) { return mapping_.map_to_read(begin, end); };
  return {.base = mapping_.base(),
          .bytes = mapping_.mapped_bytes(),
          .capacity_bytes = round_up(mapping_.reserve(), host_page_bytes()),
          .map_home = map_home};
}

Status RegionCapture::begin(const RegionOptions& options) {
  MEMLITH_ASSERT(tracker() == nullptr);
  const std::uint64_t reserve = mapping_.reserve();
  if (!options.process_scope && ThreadCheck::is_wanted()) {
    thread_check_ = std::make_unique<ThreadCheck>(home_.store().path(), mapping_.shown_name());
  }
  TrackedMemory memory = tracked_memory();
  memory.thread_scope = options.thread_scope;
  memory.thread_check = thread_check_.get();
  MEMLITH_TRY_ASSIGN(first_tracker_, attach_tracker(options.tracker, memory));
  tracker_.store(first_tracker_.get(), std::memory_order_release);
  if (tracker()->kind() == TrackerKind::scan) {
    if (options.tracker == TrackerKind::automatic) choice_.emplace(options.tracker_costs);
    MEMLITH_TRY_ASSIGN(twins_, Twins::make(reserve));
    MEMLITH_TRY_ASSIGN(captured_, CapturedPages::make(reserve));
  }
  if (options.limited != Limited::never && !tracker()->releases_any_time()) {
    MEMLITH_TRY_ASSIGN(copied_, CopiedPages::make(reserve));
    equal_ = std::make_unique<EqualPages>(mapping_.base());
  }
  return allow_hot_pages(options.process_scope);
}

// A tracker that finds bytes pays nothing for a page.
Status RegionCapture::allow_hot_pages(bool process_scope) {
  MEMLITH_ASSERT(tracker() != nullptr);
  const TrackerKind kind = tracker()->kind();
  MEMLITH_ASSERT((copied_ == nullptr) == (equal_ == nullptr));
  if (process_scope) tracker()->forget_threads();
  const bool known = kind == TrackerKind::fault && tracker()->knows_threads();
  if (hot_ != nullptr || known || (kind != TrackerKind::scan && kind != TrackerKind::fault)) return kOk;
  MEMLITH_TRY_ASSIGN(hot_, HotPages::make(*tracker(), mapping_.base(), mapping_.reserve()));
  return kOk;
}

// Between two captures. The new tracker has the twins of the pages that it finds stored to. If the change fails, the
// first tracker stays for good.
void RegionCapture::change_tracker() {
  MEMLITH_ASSERT(second_tracker_ == nullptr && tracker()->kind() == TrackerKind::scan);
  choice_.reset();
  if (hot_ != nullptr && !hot_->cool(kWholeRegion).ok()) return;
  const auto twin_of = [this](std::uint64_t page) MEMLITH_REQUIRES(mutex) { return twins_->find(page); };
  auto second = replace_scan_tracker(*tracker(), tracked_memory(),
                                     fmt::format("chosen at {} MiB: the region had grown, and scanning all of it would "
                                                 "cost more than faults",
                                                 mapping_.size() / kMiB),
                                     twin_of);
  if (!second.ok()) return;
  second_tracker_ = std::move(*second);
  tracker_.store(second_tracker_.get(), std::memory_order_release);
  hot_.reset();
  twins_.reset();
  captured_.reset();
  (void)allow_hot_pages(true);  // without memory, no page becomes hot
}

// ---- a capture -------------------------------------------------------------------------------------------------

// A file's last page reaches beyond its end; those bytes are not part of the file.
void RegionCapture::cut_to_size() {
  const std::uint64_t size = mapping_.size();
  while (!stored_.empty() && stored_.back().offset + stored_.back().bytes > size) {
    Range& last = stored_.back();
    if (last.offset >= size) {
      stored_.pop_back();
    } else {
      last.bytes = size - last.offset;
    }
  }
  MEMLITH_DCHECK(are_in_order(stored_));
}

// stored_ is sorted.
void RegionCapture::cut_to_part(Range part) {
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

Status RegionCapture::collect(ThreadNumber thread, Range part, std::span<const Range> shared) {
  stored_.clear();
  MEMLITH_TRY(tracker()->collect(thread, stored_));
  stored_.insert(stored_.end(), shared.begin(), shared.end());
  normalize(stored_);
  cut_to_size();
  cut_to_part(part);
  MEMLITH_ASSERT(stored_.empty() || stored_.back().offset + stored_.back().bytes <= mapping_.size());
  return kOk;
}

void RegionCapture::find_pieces(Range part) {
  MEMLITH_ASSERT((twins_ == nullptr) == (captured_ == nullptr));
  pieces_.clear();
  if (twins_ != nullptr) {
    // With two words, so that the function allocates nothing.
    const auto read = [this, home = home_.store().home_lsn()](std::uint64_t page, std::span<std::byte> target)
                          MEMLITH_REQUIRES(mutex) {
                            return captured_->is_home(page, home) &&
                                   home_.store().read_cached_home(home_.object(), page * kPageBytes, target);
                          };
    twins_->reduce(mapping_.base(), stored_, read, pieces_);
  } else {
    for (const Range& range : stored_) pieces_.push_back({range, mapping_.base() + range.offset});
  }
  if (hot_ != nullptr) hot_->add_pieces(part, pieces_);
}

Status RegionCapture::take(ThreadNumber thread, Range part, std::span<const Range> shared, JointFrame& frame) {
  MEMLITH_ASSERT(frame.extents.size() == frame.sources.size());
  shared_.assign(shared.begin(), shared.end());
  if (std::exchange(change_is_due_, false)) change_tracker();
  MEMLITH_TRY(collect(thread, part, shared_));
  find_pieces(part);
  const std::uint64_t mapped = mapping_.mapped_bytes();
  for (const SourceExtent& piece : pieces_) {
    MEMLITH_ASSERT(piece.range.offset + piece.range.bytes <= mapped);
    MEMLITH_ASSERT(piece.range.bytes > 0 && piece.source != nullptr);
    for (std::uint64_t done = 0; done < piece.range.bytes; done += kPieceBytesMax) {
      frame.extents.push_back({home_.object(), piece.range.offset + done,
                               std::min(piece.range.bytes - done, kPieceBytesMax)});
      frame.sources.push_back(piece.source + done);
    }
  }
  return kOk;
}

void RegionCapture::keep(Range part, Lsn end) {
  MEMLITH_ASSERT(end != Lsn{0} || pieces_.empty());  // without a frame, nothing had to be logged
  if (end != Lsn{0} && captured_ != nullptr) {
    for (const SourceExtent& piece : pieces_) captured_->note(piece.range, end);
  }
  accept(part);
  for (const Range& range : shared_) tracker()->note_captured(range);
  if (choice_.has_value()) {
    std::uint64_t stored_pages = 0;
    for (const Range& range : stored_) stored_pages += range.bytes / kPageBytes;
    change_is_due_ = choice_->note_scan(tracker()->scanned_bytes(), stored_pages);
  }
  if (hot_ != nullptr && part == kWholeRegion) hot_->note_capture(stored_, mapping_.size(), twins_.get());
}

void RegionCapture::accept(Range part) {
  for (const Range& range : stored_) note_copied(range);
  tracker()->accept_part(part);
  if (twins_ != nullptr) twins_->accept();
  if (hot_ != nullptr) hot_->accept();
}

void RegionCapture::give_back() {
  MEMLITH_ASSERT(tracker() != nullptr);
  tracker()->give_back();
  if (twins_ != nullptr) twins_->give_back();
  if (hot_ != nullptr) hot_->give_back();
}

Result<std::uint64_t> RegionCapture::bytes_due(Range but) {
  const Status collected = collect(kAllThreads, kWholeRegion);
  if (collected.ok()) find_pieces(kWholeRegion);
  give_back();
  MEMLITH_TRY(collected);
  std::uint64_t bytes = 0;
  for (const SourceExtent& piece : pieces_) {
    const std::uint64_t begin = std::max(piece.range.offset, but.offset);
    const std::uint64_t end = std::min(piece.range.offset + piece.range.bytes, but.offset + but.bytes);
    bytes += piece.range.bytes - (begin < end ? end - begin : 0);
  }
  return bytes;
}

bool RegionCapture::has_nothing_of(ThreadNumber thread) {
  const bool nothing = collect(thread, kWholeRegion).ok() && stored_.empty();
  if (nothing) {
    tracker()->accept();  // pages that were stored to and did not change are clean
  } else {
    tracker()->give_back();
  }
  return nothing;
}

void RegionCapture::leave_out_of_check(std::function<bool(std::uint64_t page)> but) {
  if (thread_check_ != nullptr) thread_check_->leave_out(std::move(but));
}

// ---- rollback --------------------------------------------------------------------------------------------------

Status RegionCapture::roll_back(ThreadNumber thread, std::span<const Range> shared) {
  MEMLITH_ASSERT(tracker() != nullptr);
  stored_.clear();
  struct GiveBack {
    Tracker* tracker;
    ~GiveBack() {
      if (tracker != nullptr) tracker->give_back();
    }
  } taken{tracker()};
  if (hot_ != nullptr) MEMLITH_TRY(hot_->cool(kWholeRegion));
  if (tracker()->rollback_needs_home(thread)) MEMLITH_TRY(home_.complete());
  MEMLITH_TRY(tracker()->rollback(thread, stored_));
  for (const Range& range : shared) {  // a tracker of pages restores whole ones
    const std::uint64_t begin = round_down(range.offset, kPageBytes);
    stored_.push_back({begin, round_up(range.offset + range.bytes, kPageBytes) - begin});
  }
  normalize(stored_);
  cut_to_size();
  if (!stored_.empty()) MEMLITH_TRY(restore_stored());
  taken.tracker->accept();
  taken.tracker = nullptr;
  return kOk;
}

// A few bytes are read: from home, and from the log what is not home yet. For many, a checkpoint brings all of it home,
// and the pages need not be read.
Status RegionCapture::restore_stored() {
  std::uint64_t bytes = 0;
  for (const Range& range : stored_) bytes += range.bytes;
  MEMLITH_ASSERT(bytes <= mapping_.size());
  MEMLITH_ASSERT(are_in_order(stored_));  // no byte is read twice
  const bool many = bytes > kReadBackBytesMax;
  Overlay in_log;
  if (many) {
    MEMLITH_TRY(home_.complete());
  } else {
    std::vector<Extent> wanted;
    for (const Range& range : stored_) wanted.push_back({home_.object(), range.offset, range.bytes});
    MEMLITH_TRY(home_.store().read_log(wanted, home_.newest_commit(), in_log));
  }
  const auto read = [&](std::uint64_t offset, std::span<std::byte> target) -> Status {
    MEMLITH_TRY(home_.read(offset, target));
    return in_log.copy_to(home_.object(), offset, target);
  };
  for (const Range& range : stored_) {
    MEMLITH_TRY(tracker()->restore(range, read, many));
    if (!many) note_copied(range);
  }
  return kOk;
}

// ---- discard ---------------------------------------------------------------------------------------------------

// A commit of its own, whose frame says which pages and holds none of their bytes. Memory is restored from home, so a
// checkpoint follows the commit.
Status RegionCapture::discard(Range part) {
  MEMLITH_ASSERT(part.offset % kPageBytes == 0 && part.bytes % kPageBytes == 0);
  MEMLITH_ASSERT(part.bytes > 0 && tracker() != nullptr);
  MEMLITH_ASSERT(part.offset + part.bytes <= mapping_.mapped_bytes());
  if (hot_ != nullptr) MEMLITH_TRY(hot_->cool(part));
  const Status collected = collect(kAllThreads, part);
  const Result<Lsn> end = collected.ok() ? home_.store().discard({home_.object(), part.offset, part.bytes}) : collected;
  if (!end.ok()) {
    give_back();
    return end.error();
  }
  home_.note_commit(*end);
  if (twins_ != nullptr) twins_->forget(part);
  if (captured_ != nullptr) captured_->note(part, *end);
  Status status = home_.store().bring_home(*end);
  if (status.ok()) status = tracker()->restore(part, home_.reader(), true);
  accept(part);
  // Memory must not show what the log does not have. These stores count as the program's own.
  if (!status.ok()) std::memset(mapping_.base() + part.offset, 0, part.bytes);
  return status;
}

// ---- releases of memory ----------------------------------------------------------------------------------------

std::uint64_t RegionCapture::copied_pages() const {
  if (copied_ != nullptr) return copied_->count();
  return tracker() != nullptr && tracker()->releases_any_time() ? tracker()->pages_taken() : 0;
}

Status RegionCapture::release_clean() {
  MEMLITH_ASSERT(tracker() != nullptr);
  if (hot_ != nullptr) MEMLITH_TRY(hot_->cool(kWholeRegion));
  if (twins_ != nullptr) twins_->clear();
  return tracker()->release_clean();
}

Status RegionCapture::release_equal() {
  MEMLITH_ASSERT(compares_with_home());
  return equal_->release(mapping_.mapped_bytes(), mapping_.size(), *copied_, home_.reader());
}

Result<std::uint64_t> RegionCapture::release_copies(std::uint64_t first, std::uint64_t end,
                                                    const std::function<bool(std::uint64_t page)>& is_home) {
  end = std::min(end, first + kLookedAtOnce);
  if (copied_ == nullptr) return end;
  const std::uint64_t host_pages = host_page_bytes() / kPageBytes;
  std::uint64_t count = 0;
  std::vector<iovec> dropped;
  for (std::uint64_t next = first; first < end && count < kReleasedAtOnce; first = std::max(next, first + 1)) {
    const std::uint64_t most = first + kReleasedAtOnce - count;
    for (next = first; next < end && (next < most || next % host_pages != 0); ++next) {
      if (!copied_->has(next) || !is_home(next)) break;
    }
    const Range home = host_pages_in({first * kPageBytes, (next - first) * kPageBytes});
    if (home.bytes == 0) continue;
    MEMLITH_ASSERT(first * kPageBytes <= home.offset && home.offset + home.bytes <= next * kPageBytes);
    dropped.push_back({mapping_.base() + home.offset, home.bytes});
    count += home.bytes / kPageBytes;
  }
  if (!drop_pages(dropped)) {
    return fail_errno(errno, Detail::tracker, "cannot drop {} pages of the region", count);
  }
  for (const iovec& each : dropped) {
    const auto begin = static_cast<std::uint64_t>(static_cast<std::byte*>(each.iov_base) - mapping_.base());
    for (std::uint64_t at = begin; at < begin + each.iov_len; at += kPageBytes) copied_->forget(at / kPageBytes);
  }
  return first;
}

}  // namespace memlith::core
