// The fault tracker: attaching, growing, announced stores, pages left open, releases. Floor: region.
#include "region/trackers/fault.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "region/drop_pages.hpp"
#include "region/mapped_array.hpp"
#include "region/page_difference.hpp"
#include "region/trackers/store_steps.hpp"

namespace memlith::core {

namespace {

constexpr std::uint32_t kTwinsMax = 65536;  // 256 MiB; further pages are captured completely

}  // namespace

FaultTracker::FaultTracker(const TrackedMemory& memory, std::string reason)
    : pages_max_(std::max<std::uint64_t>(memory.capacity_bytes / kPageBytes, 1)),
      map_home_(memory.map_home),
      reason_(std::move(reason)),
      thread_check_(memory.thread_check) {
  pages_.base = memory.base;
  pages_.bytes = memory.bytes;
}

FaultTracker::~FaultTracker() {
  if (region_ != nullptr) release_fault_region(region_);
  unmap_array(pages_.marks, pages_max_);
  unmap_array(pages_.dirty, pages_max_);
  unmap_array(pages_.free_twins, pages_.twins_max);
  unmap_array(pages_.twins, pages_.twins_max * kPageBytes);
  unmap_array(pages_.chunks, chunks_max());
  unmap_array(pages_.prepared, chunks_max() * kChunkPages);
  unmap_array(pages_.opened, pages_max_);
  unmap_array(pages_.stored, chunks_max());
  unmap_array(pages_.watched, pages_max_);
  unmap_array(pages_.mirror, chunks_max() * kChunkBytes);
}

Status FaultTracker::map_arrays() {
  MEMLITH_ASSERT(region_ == nullptr && pages_.bytes % kPageBytes == 0 && pages_.bytes / kPageBytes <= pages_max_);
  pages_.twins_max = static_cast<std::uint32_t>(std::min<std::uint64_t>(pages_max_, kTwinsMax));
  MEMLITH_TRY(map_array(pages_.marks, pages_max_));
  MEMLITH_TRY(map_array(pages_.dirty, pages_max_));
  MEMLITH_TRY(map_array(pages_.free_twins, pages_.twins_max));
  MEMLITH_TRY(map_array(pages_.twins, pages_.twins_max * kPageBytes));
  MEMLITH_TRY(map_array(pages_.chunks, chunks_max()));
  MEMLITH_TRY(map_array(pages_.opened, pages_max_));
  MEMLITH_TRY(map_array(pages_.stored, chunks_max()));
  return map_array(pages_.prepared, chunks_max() * kChunkPages);
}

Status FaultTracker::attach() {
  MEMLITH_TRY(map_arrays());
  if (thread_check_ != nullptr) {
    MEMLITH_TRY(prepare_store_steps());
    MEMLITH_TRY(map_array(pages_.watched, pages_max_));
    slow_because_ = "MEMLITH_CHECK_THREADS looks at each store";
  } else if (prepare_adoption().ok()) {
    pages_.uffd = uffd_.get();
  } else {
    slow_because_ = last_error_text();
  }
  MEMLITH_TRY(protect(0, pages_.bytes / kPageBytes));
  MEMLITH_TRY_ASSIGN(region_, claim_fault_region(pages_.base, pages_.bytes, &pages_));
  return kOk;
}

// No chunk is adopted before `before` has collected: its marks would be lost with the pages that move.
Status FaultTracker::attach_in_place_of(ReplaceableTracker& before, const TwinOf& twin_of) {
  MEMLITH_ASSERT(thread_check_ == nullptr && before.knows_threads() == false);
  knows_threads_ = false;
  pages_.opens_neighbours = true;
  pages_taken_.store(before.pages_taken(), std::memory_order_relaxed);
  MEMLITH_TRY(map_arrays());
  const bool adopts = prepare_adoption().ok();
  if (!adopts) slow_because_ = last_error_text();
  MEMLITH_TRY_ASSIGN(region_, before.hand_over(pages_));
  struct TakeBack {
    FaultTracker* self;
    ReplaceableTracker& before;
    ~TakeBack() {
      if (self == nullptr) return;
      before.give_back();
      before.take_back();
      self->region_ = nullptr;
    }
  } undo{this, before};
  std::vector<Range> stored;
  MEMLITH_TRY(before.collect(kAllThreads, stored));
  undo.self = nullptr;
  {
    const FaultHold hold(*region_);
    for (const Range& range : stored) {
      for (std::uint64_t page = range.offset / kPageBytes; page * kPageBytes < range.offset + range.bytes; ++page) {
        const std::byte* const twin = twin_of(page);
        mark_again({static_cast<std::uint32_t>(page), {kUnknownThread, twin != nullptr ? copy_twin(pages_, twin) : 0}});
      }
    }
    if (adopts) pages_.uffd = uffd_.get();
  }
  before.let_go();
  return kOk;
}

// Only userfaultfd uses the addresses of the mirror, so no thread ever faults on a missing page there. The whole
// mirror is one mapping with one anon_vma, so adjacent adopted chunks become one mapping again in their place.
Status FaultTracker::prepare_adoption() {
  MEMLITH_TRY_ASSIGN(uffd_, open_userfaultfd(UFFD_FEATURE_SIGBUS, "SIGBUS delivery"));
  const std::uint64_t bytes = chunks_max() * kChunkBytes;
  MEMLITH_TRY(map_array(pages_.mirror, bytes, PROT_READ));
  (void)::madvise(pages_.mirror, bytes, MADV_NOHUGEPAGE);
  if (!register_range(uffd_.get(), pages_.mirror, bytes, UFFDIO_REGISTER_MODE_MISSING)) {
    return fail_errno(errno, Detail::tracker, "userfaultfd refuses {} bytes", bytes);
  }
  return kOk;
}

void FaultTracker::give_pages(Range pages, ThreadNumber thread) {
  MEMLITH_ASSERT(pages.offset % kPageBytes == 0 && pages.offset + pages.bytes <= pages_.bytes);
  const FaultHold hold(*region_);
  mark_for(pages_, pages.offset, pages.offset + pages.bytes, thread);
}

void FaultTracker::note_captured(Range range) {
  const FaultHold hold(*region_);
  copy_to_twins(pages_, range.offset, range.offset + range.bytes);
}

Status FaultTracker::grow(std::uint64_t bytes) {
  MEMLITH_ASSERT(bytes >= pages_.bytes && bytes % kPageBytes == 0 && bytes / kPageBytes <= pages_max_);
  MEMLITH_TRY(protect(pages_.bytes / kPageBytes, bytes / kPageBytes));
  const FaultHold hold(*region_);
  pages_.bytes = bytes;
  region_->end.store(reinterpret_cast<std::uintptr_t>(pages_.base) + bytes, std::memory_order_release);
  return kOk;
}

Status FaultTracker::prepare(Range range) {
  const ThreadNumber thread = this_thread_number();
  const std::uint64_t first = range.offset / kPageBytes;
  const std::uint64_t end = round_up(range.offset + range.bytes, kPageBytes) / kPageBytes;
  const FaultHold hold(*region_);
  for (std::uint64_t page = first; page < end; ++page) {
    if (pages_.watched != nullptr) note_store(pages_, page, thread, 0, 0);
    pages_.prepared_count += pages_.prepared[page] == 0 ? 1 : 0;
    pages_.prepared[page] = 1;
  }
  if (take_pages(*region_, first, end, thread)) return kOk;
  return fail_errno(errno, Detail::tracker, "cannot make the region writable");
}

// Where threads are told apart, the first one to store to a page has to be seen.
void FaultTracker::announce(std::span<const Range> ranges) {
  if (knows_threads_ || pages_.watched != nullptr) return;
  const auto end_of = [](const Range& range) { return round_up(range.offset + range.bytes, kPageBytes) / kPageBytes; };
  const auto is_open = [&](const Range& range) {
    std::uint64_t page = range.offset / kPageBytes;
    while (page < end_of(range) && pages_.opened[page].load(std::memory_order_relaxed) != 0) ++page;
    return page == end_of(range);
  };
  if (std::all_of(ranges.begin(), ranges.end(), is_open)) return;
  const ThreadNumber thread = this_thread_number();
  const FaultHold hold(*region_);
  for (const Range& range : ranges) {
    const std::uint64_t first = range.offset / kPageBytes;
    // A page without a twin would be logged completely, stored to or not.
    const bool twins = end_of(range) - first <= pages_.twins_max - pages_.next_twin + pages_.free_count;
    if (twins && !is_open(range)) (void)take_pages(*region_, first, end_of(range), thread);
  }
}

void FaultTracker::forget_threads() {
  const FaultHold hold(*region_);
  knows_threads_ = false;
  pages_.opens_neighbours = pages_.watched == nullptr;
}

// A page that was stored to again since its capture has no twin.
Tracker::LeftOpen FaultTracker::leave_open(std::uint64_t page, std::byte* twin) {
  const FaultHold hold(*region_);
  PageMark& mark = pages_.marks[page];
  if (pages_.unit != 1 || mark.thread == kUnknownThread) return LeftOpen::refused;
  // The copy comes first: as soon as the page is writable, other threads store to it.
  const bool clean = mark.thread == 0;
  if (clean) copy_twin(twin, pages_.base + page * kPageBytes);
  if (!set_writable(pages_, page, page + 1, true)) return LeftOpen::refused;
  if (!clean) {
    std::uint32_t* const end = pages_.dirty + pages_.dirty_count;
    std::uint32_t* const found = std::find(pages_.dirty, end, static_cast<std::uint32_t>(page));
    MEMLITH_ASSERT(found != end);
    std::iter_swap(found, end - 1);
    --pages_.dirty_count;
    free_twin(mark);
  }
  mark = {kLeftOpen, 0};
  pages_.opened[page].store(1, std::memory_order_relaxed);
  return clean ? LeftOpen::with_twin : LeftOpen::without_twin;
}

// The page is dirty and stays writable until it is captured.
Status FaultTracker::track_again(std::uint64_t page, const std::byte* twin) {
  const FaultHold hold(*region_);
  MEMLITH_ASSERT(pages_.marks[page].thread == kLeftOpen && pages_.dirty_count < pages_max_);
  pages_.marks[page] = {kUnknownThread, twin != nullptr ? copy_twin(pages_, twin) : 0};
  pages_.dirty[pages_.dirty_count++] = static_cast<std::uint32_t>(page);
  ++pages_.unknown_count;
  return kOk;
}

// Stores to clean pages fault, and wait in the handler while this thread holds the region.
Status FaultTracker::release_clean() {
  pages_taken_.store(0, std::memory_order_relaxed);
  const FaultHold hold(*region_);
  ++region_->releases;
  std::sort(pages_.dirty, pages_.dirty + pages_.dirty_count);
  std::uint64_t begin = 0;
  for (std::uint64_t i = 0; i <= pages_.dirty_count; ++i) {
    const std::uint64_t end = i < pages_.dirty_count ? pages_.dirty[i] : pages_.bytes / kPageBytes;
    MEMLITH_TRY(release_pages(begin, end));
    begin = end + 1;
  }
  return kOk;
}

// Releases the memory of clean pages. An adopted chunk is mapped over its file again if all of its pages are clean.
Status FaultTracker::release_pages(std::uint64_t first, std::uint64_t end) {
  for (std::uint64_t next = 0; first < end; first = next) {
    const std::uint64_t chunk = first / kChunkPages;
    const bool moved = pages_.anonymous(first);
    next = std::min((chunk + 1) * kChunkPages, end);
    while (next < end && pages_.anonymous(next) == moved) next = std::min(next + kChunkPages, end);
    if (!moved) {
      const Range clean = host_pages_in({first * kPageBytes, (next - first) * kPageBytes});
      if (clean.bytes == 0 || drop_pages(pages_.base + clean.offset, clean.bytes)) continue;
      return fail_errno(errno, Detail::tracker, "cannot drop {} bytes of the region", clean.bytes);
    }
    const std::uint64_t first_chunk = (first + kChunkPages - 1) / kChunkPages;
    const std::uint64_t end_chunk = next / kChunkPages;
    if (first_chunk >= end_chunk || !map_home_) continue;
    MEMLITH_TRY(map_home_(first_chunk * kChunkBytes, end_chunk * kChunkBytes));
    std::fill(pages_.chunks + first_chunk, pages_.chunks + end_chunk, std::uint8_t{0});
  }
  return kOk;
}

std::string FaultTracker::describe() const {
  if (pages_.uffd >= 0) return "userfaultfd and mprotect, SIGBUS and SIGSEGV; bytes by comparing (" + reason_ + ")";
  return "mprotect and SIGSEGV, because " + slow_because_ + "; bytes by comparing (" + reason_ + ")";
}

Status FaultTracker::protect(std::uint64_t first, std::uint64_t end) const {
  if (set_writable(pages_, first, end, false)) return kOk;
  return fail_errno(errno, Detail::tracker, "cannot protect {} bytes of the region (see vm.max_map_count)",
                    (end - first) * kPageBytes);
}

namespace {

// Marks hold page numbers of 32 bits.
Status check_capacity(std::uint64_t bytes) {
  if (bytes / kPageBytes <= ~std::uint32_t{0}) return kOk;
  return fail(Errc::unsupported, Detail::tracker,
              "the fault tracker supports regions of up to 16 TiB, and this region can grow to {} bytes; give it a "
              "smaller max_size, or use another tracker",
              bytes);
}

}  // namespace

Result<std::unique_ptr<Tracker>> attach_fault_tracker(const TrackedMemory& memory, std::string reason) {
  MEMLITH_TRY(check_capacity(memory.capacity_bytes));
  auto tracker = std::make_unique<FaultTracker>(memory, std::move(reason));
  MEMLITH_TRY(tracker->attach());
  return std::unique_ptr<Tracker>(std::move(tracker));
}

Result<std::unique_ptr<Tracker>> replace_scan_tracker(Tracker& scan, const TrackedMemory& memory, std::string reason,
                                                      const TwinOf& twin_of) {
  MEMLITH_ASSERT(scan.kind() == TrackerKind::scan);
  MEMLITH_TRY(check_capacity(memory.capacity_bytes));
  auto tracker = std::make_unique<FaultTracker>(memory, std::move(reason));
  MEMLITH_TRY(tracker->attach_in_place_of(static_cast<ReplaceableTracker&>(scan), twin_of));
  return std::unique_ptr<Tracker>(std::move(tracker));
}

}  // namespace memlith::core
