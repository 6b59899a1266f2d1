// The fault tracker: what a capture and a rollback do. Floor: region.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "region/drop_pages.hpp"
#include "region/page_difference.hpp"
#include "region/trackers/fault.hpp"
#include "region/trackers/store_steps.hpp"

namespace memlith::core {

namespace {

constexpr std::uint32_t kTwinsKept = 16384;  // twins beyond this number release their memory when none is in use
// A run of at most this many clean pages in adopted chunks is protected again rather than skipped: 0.1 us per page
// against 1.2 us per call.
constexpr std::uint64_t kGapPages = 12;

}  // namespace

bool FaultTracker::is_of(ThreadNumber thread, std::uint32_t page) const {
  return thread == kAllThreads || pages_.marks[page].thread == thread;
}

Status FaultTracker::collect(ThreadNumber thread, std::vector<Range>& ranges) {
  if (thread != kAllThreads && thread_check_ != nullptr) report_shared_pages();
  {
    std::optional<FaultHold> hold;
    hold_with_room(hold, ranges);
    MEMLITH_TRY(pick(thread));
    MEMLITH_TRY(seal());
  }
  for (Taken& each : taken_) {
    const std::uint64_t offset = std::uint64_t{each.page} * kPageBytes;
    const std::size_t before = ranges.size();
    if (each.mark.twin == 0) {
      ranges.push_back({offset, kPageBytes});
    } else {
      add_difference(pages_.base + offset, twin(each.mark), offset, Exactness::words, ranges);
    }
    each.changed = ranges.size() > before;
  }
  return kOk;
}

void FaultTracker::accept_part(Range part) {
  if (taken_.empty()) return;
  const FaultHold hold(*region_);
  note_stored();
  for (const Taken& each : taken_) {
    if (!lies_in({std::uint64_t{each.page} * kPageBytes, kPageBytes}, part)) {
      mark_again(each);
      continue;
    }
    free_twin(each.mark);
    PageMark& mark = pages_.marks[each.page];
    if (mark.thread == 0) mark.twin = 0;
  }
  taken_.clear();
  if (pages_.free_count != pages_.next_twin || pages_.next_twin <= kTwinsKept) return;
  (void)::madvise(pages_.twins, pages_.next_twin * kPageBytes, MADV_DONTNEED);
  pages_.free_count = pages_.next_twin = 0;
}

// Pages that were opened in vain do not count.
void FaultTracker::note_stored() {
  for (std::size_t i = 0, next = 0; i < taken_.size(); i = next) {
    const std::uint64_t chunk = taken_[i].page / kChunkPages;
    std::uint8_t changed = 0;
    for (next = i; next < taken_.size() && taken_[next].page / kChunkPages == chunk; ++next) {
      if (taken_[next].changed) ++changed;
    }
    pages_.stored[chunk] = changed;
  }
}

void FaultTracker::give_back() {
  const FaultHold hold(*region_);
  for (const Taken& each : taken_) mark_again(each);
  taken_.clear();
}

bool FaultTracker::rollback_needs_home(ThreadNumber thread) {
  const FaultHold hold(*region_);
  return std::any_of(pages_.dirty, pages_.dirty + pages_.dirty_count, [this, thread](std::uint32_t page) {
    return is_of(thread, page) && pages_.marks[page].twin == 0;
  });
}

// Everything that may fail comes before the first page is restored.
Status FaultTracker::rollback(ThreadNumber thread, std::vector<Range>& others) {
  if (thread != kAllThreads && thread_check_ != nullptr) report_shared_pages();
  std::optional<FaultHold> hold;
  hold_with_room(hold, others);
  MEMLITH_TRY(pick(thread));
  // A page that the kernel refused before is only marked.
  for (std::size_t i = 0, next = 0; i < taken_.size(); i = next) {
    for (next = i + 1; next < taken_.size() && taken_[next].page == taken_[next - 1].page + 1;) ++next;
    mark_neighbours(pages_, taken_[i].page, taken_[next - 1].page + 1, this_thread_number());
    if (set_writable(pages_, taken_[i].page, taken_[next - 1].page + 1, true)) continue;
    const Status status = fail_errno(errno, Detail::tracker, "cannot roll pages back (see vm.max_map_count)");
    unpick();
    return status;
  }
  for (const Taken& each : taken_) {
    const std::uint64_t offset = std::uint64_t{each.page} * kPageBytes;
    if (each.mark.twin == 0) {
      others.push_back({offset, kPageBytes});
    } else {
      std::memcpy(pages_.base + offset, twin(each.mark), kPageBytes);
    }
  }
  // If the kernel refuses, the pages count as dirty, without a difference from their twins.
  if (!seal().ok()) return kOk;
  std::erase_if(taken_, [this](const Taken& each) {
    if (each.mark.twin == 0) return false;
    pages_.marks[each.page] = {};
    free_twin(each.mark);
    return true;
  });
  return kOk;
}

Status FaultTracker::restore(Range range, const ReadHome& read, bool at_home) {
  const std::uint64_t end = (range.offset + range.bytes + kPageBytes - 1) / kPageBytes;
  for (std::uint64_t first = range.offset / kPageBytes, next = 0; first < end; first = next) {
    next = std::min((first / kChunkPages + 1) * kChunkPages, end);
    std::byte* const place = pages_.base + first * kPageBytes;
    if (const FaultHold hold(*region_);
        at_home && !pages_.anonymous(first) && drop_pages(place, (next - first) * kPageBytes)) {
      continue;
    }
    for (std::uint64_t page = first, rest = 0; page < next; page = rest) {
      rest = std::min(round_down(page, pages_.unit) + pages_.unit, next);
      MEMLITH_TRY(restore_pages(page, rest, range, read));
    }
  }
  return kOk;
}

// The part of the pages, which are of one unit, that lies in `range`.
Status FaultTracker::restore_pages(std::uint64_t first, std::uint64_t end, Range range, const ReadHome& read) {
  const std::uint64_t offset = first * kPageBytes;
  const std::uint64_t bytes = std::min(end * kPageBytes, range.offset + range.bytes) - offset;
  home_.resize(pages_.unit * kPageBytes);
  MEMLITH_TRY(read(offset, {home_.data(), bytes}));
  const FaultHold hold(*region_);
  mark_neighbours(pages_, first, end, this_thread_number());
  if (!set_writable(pages_, first, end, true)) {
    return fail_errno(errno, Detail::tracker, "cannot roll {} bytes back", bytes);
  }
  std::memcpy(pages_.base + offset, home_.data(), bytes);
  return protect(first, end);
}

// Pages that two threads have stored to are told once, and no longer when they were captured.
void FaultTracker::report_shared_pages() {
  if (!store_steps_work()) ThreadCheck::tell_of_other_handler();
  std::array<ThreadCheck::SharedPage, ThreadCheck::kPagesMax> shared;
  std::size_t count = 0;
  {
    const FaultHold hold(*region_);
    for (std::uint64_t i = 0; i < pages_.dirty_count && count < shared.size(); ++i) {
      WatchedPage& watched = pages_.watched[pages_.dirty[i]];
      if (watched.second.thread == 0 || std::exchange(watched.reported, true)) continue;
      shared[count++] = {pages_.dirty[i], watched.first, watched.second};
    }
  }
  thread_check_->report({shared.data(), count});
}

// Holds the region, with room in taken_ and `ranges` for all dirty pages.
void FaultTracker::hold_with_room(std::optional<FaultHold>& hold, std::vector<Range>& ranges) {
  for (;;) {
    hold.emplace(*region_);
    const std::uint64_t count = pages_.dirty_count;
    if (count <= std::min(taken_.capacity(), ranges.capacity() - ranges.size())) return;
    hold.reset();
    const std::uint64_t room = std::min(2 * count, pages_max_);  // also for pages that become dirty meanwhile
    taken_.reserve(room);
    ranges.reserve(ranges.size() + room);
  }
}

// Moves the dirty pages of `thread` to taken_, in order. Under hold_with_room(), until seal() or unpick(), one of
// which follows.
Status FaultTracker::pick(ThreadNumber thread) {
  if (thread != kAllThreads && pages_.unknown_count > 0) {
    return fail(Errc::unsupported, Detail::tracker,
                "the process ran out of mappings (vm.max_map_count), so it is unknown which thread stored where; "
                "persist with process scope, or persist more often");
  }
  MEMLITH_ASSERT(taken_.empty());  // the ranges before were accepted, or given back
  const std::uint64_t dirty = pages_.dirty_count;
  std::uint64_t kept = 0;
  for (std::uint64_t i = 0; i < pages_.dirty_count; ++i) {
    const std::uint32_t page = pages_.dirty[i];
    if (is_of(thread, page)) {
      taken_.push_back({page, pages_.marks[page]});
    } else {
      pages_.dirty[kept++] = page;
    }
  }
  pages_.dirty_count = kept;
  MEMLITH_ASSERT(kept + taken_.size() == dirty);
  std::sort(taken_.begin(), taken_.end(), [](const Taken& a, const Taken& b) { return a.page < b.page; });
  return kOk;
}

void FaultTracker::unpick() {
  MEMLITH_ASSERT(pages_.dirty_count + taken_.size() <= pages_max_);
  for (const Taken& each : taken_) pages_.dirty[pages_.dirty_count++] = each.page;
  taken_.clear();
}

// Protects the picked pages and takes their marks. On failure the pages are unpicked.
Status FaultTracker::seal() {
  Status status = kOk;
  for (std::size_t i = 0; i < taken_.size() && status.ok();) {
    std::size_t next = i + 1;
    while (next < taken_.size() && protected_in_one(taken_[next - 1].page, taken_[next].page)) ++next;
    status = protect(taken_[i].page, taken_[next - 1].page + 1);
    i = next;
  }
  // The process is out of mappings. Protecting the region as a whole needs none; stores to pages that were open fault
  // once more, and no store is forgotten.
  if (!status.ok()) status = protect_all();
  if (!status.ok()) {
    unpick();
    return status;
  }
  pages_taken_.fetch_add(taken_.size(), std::memory_order_relaxed);
  for (const Taken& each : taken_) {
    if (each.mark.thread == kUnknownThread) --pages_.unknown_count;
    MEMLITH_ASSERT(pages_.marks[each.page].thread != 0);
    pages_.marks[each.page] = {0, kNoTwinNow};
    pages_.opened[each.page].store(0, std::memory_order_relaxed);
    if (pages_.prepared_count == 0) continue;
    pages_.prepared_count -= pages_.prepared[each.page] != 0 ? 1 : 0;
    pages_.prepared[each.page] = 0;
  }
  return kOk;
}

// Under busy.
void FaultTracker::mark_again(const Taken& each) {
  PageMark& mark = pages_.marks[each.page];
  if (mark.thread == 0) {
    MEMLITH_ASSERT(pages_.dirty_count < pages_max_);
    mark = each.mark;
    pages_.opened[each.page].store(1, std::memory_order_relaxed);
    pages_.dirty[pages_.dirty_count++] = each.page;
    if (mark.thread == kUnknownThread) ++pages_.unknown_count;
    return;
  }
  // The page was stored to again meanwhile: the earlier twin counts.
  free_twin(mark);
  mark.twin = each.mark.twin;
  if (mark.thread == each.mark.thread || mark.thread == kUnknownThread) return;
  mark.thread = kUnknownThread;
  ++pages_.unknown_count;
}

void FaultTracker::free_twin(PageMark mark) {
  if (mark.twin == 0) return;
  MEMLITH_ASSERT(mark.twin <= pages_.next_twin && pages_.free_count < pages_.next_twin);
  pages_.free_twins[pages_.free_count++] = mark.twin - 1;
}

bool FaultTracker::protected_in_one(std::uint64_t page, std::uint64_t next) const {
  if (next == page + 1) return true;
  if (next - page > kGapPages || !pages_.adopted(page)) return false;
  if (pages_.same_kind_until(page, next + 1) != next + 1) return false;
  return std::all_of(pages_.marks + page + 1, pages_.marks + next, [](PageMark mark) { return mark.thread == 0; });
}

// One call for all chunks that are not adopted. They are read-only in between, so stores wait in the handler.
Status FaultTracker::protect_all() const {
  const std::uint64_t end = pages_.bytes / kPageBytes;
  if (::mprotect(pages_.base, pages_.bytes, PROT_READ) != 0) {
    return fail_errno(errno, Detail::tracker, "cannot protect {} bytes of the region", pages_.bytes);
  }
  for (std::uint64_t first = 0, next = 0; first < end; first = next) {
    next = pages_.same_kind_until(first, end);
    if (!pages_.adopted(first)) continue;
    MEMLITH_TRY(protect(first, next));
    const std::uint64_t bytes = (next - first) * kPageBytes;
    if (::mprotect(pages_.base + first * kPageBytes, bytes, PROT_READ | PROT_WRITE) != 0) {
      return fail_errno(errno, Detail::tracker, "cannot make {} bytes of the region writable again", bytes);
    }
  }
  return kOk;
}

}  // namespace memlith::core
