// The fault tracker: clean pages are read-only, the first store to one faults, and the handler keeps the page as it was
// (its twin), notes the thread, and lets the store through. A capture compares each page with its twin, so that only
// changed words are logged; a rollback copies the twin back. Works on every kernel, and faster where there is
// userfaultfd (Linux 5.11; how pages are protected is in fault_handler.hpp). Floor: region.
//
// Threads are known by page: of two threads that store to one page between captures, the first counts.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "region/drop_pages.hpp"
#include "region/mapped_array.hpp"
#include "region/page_difference.hpp"
#include "region/tracker.hpp"
#include "region/trackers/fault_handler.hpp"
#include "region/trackers/store_steps.hpp"
#include "region/trackers/userfaultfd.hpp"

namespace memlith::core {

namespace {

constexpr std::uint32_t kTwinsMax = 65536;   // 256 MiB; further pages are captured completely
constexpr std::uint32_t kTwinsKept = 16384;  // twins beyond this number release their memory when none is in use
// A run of at most this many clean pages in adopted chunks is protected again rather than skipped: 0.1 us per page
// against 1.2 us per call.
constexpr std::uint64_t kGapPages = 12;

class FaultTracker final : public Tracker {
 public:
  FaultTracker(const TrackedMemory& memory, std::string reason)
      : pages_max_(std::max<std::uint64_t>(memory.capacity_bytes / kPageBytes, 1)),
        map_home_(memory.map_home),
        reason_(std::move(reason)),
        thread_check_(memory.thread_check) {
    pages_.base = memory.base;
    pages_.bytes = memory.bytes;
  }

  ~FaultTracker() override {
    if (region_ != nullptr) release_fault_region(region_);
    unmap_array(pages_.marks, pages_max_);
    unmap_array(pages_.dirty, pages_max_);
    unmap_array(pages_.free_twins, pages_.twins_max);
    unmap_array(pages_.twins, pages_.twins_max * kPageBytes);
    unmap_array(pages_.chunks, chunks_max());
    unmap_array(pages_.prepared, chunks_max() * kChunkPages);
    unmap_array(pages_.watched, pages_max_);
    unmap_array(pages_.mirror, chunks_max() * kChunkBytes);
  }

  Status attach() {
    MEMLITH_ASSERT(region_ == nullptr && pages_.bytes % kPageBytes == 0 && pages_.bytes / kPageBytes <= pages_max_);
    pages_.twins_max = static_cast<std::uint32_t>(std::min<std::uint64_t>(pages_max_, kTwinsMax));
    MEMLITH_TRY(map_array(pages_.marks, pages_max_));
    MEMLITH_TRY(map_array(pages_.dirty, pages_max_));
    MEMLITH_TRY(map_array(pages_.free_twins, pages_.twins_max));
    MEMLITH_TRY(map_array(pages_.twins, pages_.twins_max * kPageBytes));
    MEMLITH_TRY(map_array(pages_.chunks, chunks_max()));
    MEMLITH_TRY(map_array(pages_.prepared, chunks_max() * kChunkPages));
    if (thread_check_ != nullptr) {
      MEMLITH_TRY(prepare_store_steps());
      MEMLITH_TRY(map_array(pages_.watched, pages_max_));
      slow_because_ = "MEMLITH_CHECK_THREADS looks at each store";
    } else if (!prepare_adoption().ok()) {
      slow_because_ = last_error_text();
    }
    MEMLITH_TRY(protect(0, pages_.bytes / kPageBytes));
    MEMLITH_TRY_ASSIGN(region_, claim_fault_region(pages_.base, pages_.bytes, &pages_));
    return kOk;
  }

  Status collect(ThreadNumber thread, std::vector<Range>& ranges) override {
    if (thread != kAllThreads && thread_check_ != nullptr) report_shared_pages();
    {
      std::optional<FaultHold> hold;
      hold_with_room(hold, ranges);
      MEMLITH_TRY(pick(thread));
      MEMLITH_TRY(seal());
    }
    for (const Taken& each : taken_) {
      const std::uint64_t offset = std::uint64_t{each.page} * kPageBytes;
      if (each.mark.twin == 0) {
        ranges.push_back({offset, kPageBytes});
      } else {
        add_difference(pages_.base + offset, twin(each.mark), offset, Exactness::words, ranges);
      }
    }
    return kOk;
  }

  void accept_part(Range part) override {
    if (taken_.empty()) return;
    const FaultHold hold(*region_);
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

  void give_back() override {
    const FaultHold hold(*region_);
    for (const Taken& each : taken_) mark_again(each);
    taken_.clear();
  }

  bool rollback_needs_home(ThreadNumber thread) override {
    const FaultHold hold(*region_);
    return std::any_of(pages_.dirty, pages_.dirty + pages_.dirty_count, [this, thread](std::uint32_t page) {
      return is_of(thread, page) && pages_.marks[page].twin == 0;
    });
  }

  // Everything that may fail comes before the first page is restored.
  Status rollback(ThreadNumber thread, std::vector<Range>& others) override {
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

  Status restore(Range range, const ReadHome& read, bool at_home) override {
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

  Status grow(std::uint64_t bytes) override {
    MEMLITH_ASSERT(bytes >= pages_.bytes && bytes % kPageBytes == 0 && bytes / kPageBytes <= pages_max_);
    MEMLITH_TRY(protect(pages_.bytes / kPageBytes, bytes / kPageBytes));
    const FaultHold hold(*region_);
    pages_.bytes = bytes;
    region_->end.store(reinterpret_cast<std::uintptr_t>(pages_.base) + bytes, std::memory_order_release);
    return kOk;
  }

  Status prepare(Range range) override {
    const ThreadNumber thread = this_thread_number();
    const FaultHold hold(*region_);
    for (std::uint64_t page = range.offset / kPageBytes; page * kPageBytes < range.offset + range.bytes; ++page) {
      if (pages_.watched != nullptr) note_store(pages_, page, thread, 0, 0);
      pages_.prepared_count += pages_.prepared[page] == 0 ? 1 : 0;
      pages_.prepared[page] = 1;
      if (take_page(*region_, page, thread)) continue;
      return fail_errno(errno, Detail::tracker, "cannot make the region writable");
    }
    return kOk;
  }

  // A page that was stored to again since its capture has no twin.
  LeftOpen leave_open(std::uint64_t page, std::byte* twin) override {
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
    return clean ? LeftOpen::with_twin : LeftOpen::without_twin;
  }

  // The page is dirty and stays writable until it is captured.
  Status track_again(std::uint64_t page, const std::byte* twin) override {
    const FaultHold hold(*region_);
    MEMLITH_ASSERT(pages_.marks[page].thread == kLeftOpen && pages_.dirty_count < pages_max_);
    pages_.marks[page] = {kUnknownThread, twin != nullptr ? copy_twin(pages_, twin) : 0};
    pages_.dirty[pages_.dirty_count++] = static_cast<std::uint32_t>(page);
    ++pages_.unknown_count;
    return kOk;
  }

  // Stores to clean pages fault, and wait in the handler while this thread holds the region.
  Status release_clean() override {
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

  [[nodiscard]] bool knows_threads() const override { return true; }
  [[nodiscard]] TrackerKind kind() const override { return TrackerKind::fault; }
  [[nodiscard]] std::string describe() const override {
    if (pages_.uffd >= 0) return "userfaultfd and mprotect, SIGBUS and SIGSEGV; bytes by comparing (" + reason_ + ")";
    return "mprotect and SIGSEGV, because " + slow_because_ + "; bytes by comparing (" + reason_ + ")";
  }

 private:
  struct Taken {
    std::uint32_t page = 0;
    PageMark mark;
  };

  [[nodiscard]] std::uint64_t chunks_max() const { return (pages_max_ + kChunkPages - 1) / kChunkPages; }

  // Only userfaultfd uses the addresses of the mirror, so no thread ever faults on a missing page there. The whole
  // mirror is one mapping with one anon_vma, so adjacent adopted chunks become one mapping again in their place.
  Status prepare_adoption() {
    MEMLITH_TRY_ASSIGN(uffd_, open_userfaultfd(UFFD_FEATURE_SIGBUS, "SIGBUS delivery"));
    const std::uint64_t bytes = chunks_max() * kChunkBytes;
    MEMLITH_TRY(map_array(pages_.mirror, bytes, PROT_READ));
    (void)::madvise(pages_.mirror, bytes, MADV_NOHUGEPAGE);
    if (!register_range(uffd_.get(), pages_.mirror, bytes, UFFDIO_REGISTER_MODE_MISSING)) {
      return fail_errno(errno, Detail::tracker, "userfaultfd refuses {} bytes", bytes);
    }
    pages_.uffd = uffd_.get();
    return kOk;
  }

  [[nodiscard]] bool is_of(ThreadNumber thread, std::uint32_t page) const {
    return thread == kAllThreads || pages_.marks[page].thread == thread;
  }

  // The part of the pages, which are of one unit, that lies in `range`.
  Status restore_pages(std::uint64_t first, std::uint64_t end, Range range, const ReadHome& read) {
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
  void report_shared_pages() {
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
  void hold_with_room(std::optional<FaultHold>& hold, std::vector<Range>& ranges) {
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
  Status pick(ThreadNumber thread) {
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

  void unpick() {
    MEMLITH_ASSERT(pages_.dirty_count + taken_.size() <= pages_max_);
    for (const Taken& each : taken_) pages_.dirty[pages_.dirty_count++] = each.page;
    taken_.clear();
  }

  // Protects the picked pages and takes their marks. On failure the pages are unpicked.
  Status seal() {
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
      if (pages_.prepared_count == 0) continue;
      pages_.prepared_count -= pages_.prepared[each.page] != 0 ? 1 : 0;
      pages_.prepared[each.page] = 0;
    }
    return kOk;
  }

  // Under busy.
  void mark_again(const Taken& each) {
    PageMark& mark = pages_.marks[each.page];
    if (mark.thread == 0) {
      MEMLITH_ASSERT(pages_.dirty_count < pages_max_);
      mark = each.mark;
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

  void free_twin(PageMark mark) {
    if (mark.twin == 0) return;
    MEMLITH_ASSERT(mark.twin <= pages_.next_twin && pages_.free_count < pages_.next_twin);
    pages_.free_twins[pages_.free_count++] = mark.twin - 1;
  }
  [[nodiscard]] const std::byte* twin(PageMark mark) const {
    MEMLITH_ASSERT(mark.twin > 0 && mark.twin <= pages_.next_twin);
    return pages_.twins + std::uint64_t{mark.twin - 1} * kPageBytes;
  }

  [[nodiscard]] bool protected_in_one(std::uint64_t page, std::uint64_t next) const {
    if (next == page + 1) return true;
    if (next - page > kGapPages || !pages_.adopted(page)) return false;
    if (pages_.same_kind_until(page, next + 1) != next + 1) return false;
    return std::all_of(pages_.marks + page + 1, pages_.marks + next, [](PageMark mark) { return mark.thread == 0; });
  }

  Status protect(std::uint64_t first, std::uint64_t end) const {
    if (set_writable(pages_, first, end, false)) return kOk;
    return fail_errno(errno, Detail::tracker, "cannot protect {} bytes of the region (see vm.max_map_count)",
                      (end - first) * kPageBytes);
  }

  // One call for all chunks that are not adopted. They are read-only in between, so stores wait in the handler.
  Status protect_all() const {
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

  // Releases the memory of clean pages. An adopted chunk is mapped over its file again if all of its pages are clean.
  Status release_pages(std::uint64_t first, std::uint64_t end) {
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

  std::uint64_t pages_max_;
  std::function<Status(std::uint64_t, std::uint64_t)> map_home_;
  std::string reason_;
  std::string slow_because_;         // why chunks are not adopted
  const ThreadCheck* thread_check_;  // null: pages that threads share are not reported
  FileDescriptor uffd_;
  FaultPages pages_;
  FaultRegion* region_ = nullptr;
  std::vector<Taken> taken_;
  std::vector<std::byte> home_;  // of a unit that is being restored
};

}  // namespace

Result<std::unique_ptr<Tracker>> attach_fault_tracker(const TrackedMemory& memory, std::string reason) {
  // Marks hold page numbers of 32 bits.
  if (memory.capacity_bytes / kPageBytes > ~std::uint32_t{0}) {
    return fail(Errc::unsupported, Detail::tracker,
                "the fault tracker supports regions of up to 16 TiB, and this region can grow to {} bytes; give it a "
                "smaller max_size, or use another tracker",
                memory.capacity_bytes);
  }
  auto tracker = std::make_unique<FaultTracker>(memory, std::move(reason));
  MEMLITH_TRY(tracker->attach());
  return std::unique_ptr<Tracker>(std::move(tracker));
}

}  // namespace memlith::core
