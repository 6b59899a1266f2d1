// The scan tracker: the kernel marks written pages (userfaultfd WP_ASYNC), and PAGEMAP_SCAN reads and resets the marks
// in one atomic step per page. Floor: region.
//
// Pages count as written until they were protected once, present or not, so attaching scans once and discards the
// result. The scan asks for "written" and nothing else: the kernel then reads page-table entries only, 1 to 4
// nanoseconds each; with any other category in the query, it reads each page's record, at 15 times the cost. Stores by
// system calls (read(2), recv(2)) are found like other stores.
//
// In sparse memory, a mark for each page would take 8 bytes of page table, and a query 4 ns, for pages that were never
// used. There the scan asks for pages that are in memory or swapped out and written, at 2 to 6 nanoseconds each, and
// leaves the others without marks. It also finds, once, pages of the file that were only read. A second query, for
// those pages alone, tells them from copies.
//
// The first store to a protected page is a page fault, which the kernel counts before the store is made. While the
// process has had none since the last scan, no page was written, and a large region is not scanned.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "region/drop_pages.hpp"
#include "region/page_difference.hpp"
#include "region/take_out.hpp"
#include "region/tracker.hpp"
#include "region/trackers/replaceable.hpp"
#include "region/trackers/userfaultfd.hpp"

#ifndef MADV_COLD
#define MADV_COLD 20  // Linux 5.4
#endif

namespace memlith::core {

namespace {

constexpr std::size_t kRegionsPerScan = 512;
constexpr std::uint64_t kScannedBytes =
    4 * kMiB;  // a region of up to this size is scanned as fast as faults are counted
constexpr std::uint64_t kNoScan = ~std::uint64_t{0};
constexpr std::uint64_t kInMemory = PAGE_IS_PRESENT | PAGE_IS_SWAPPED;
constexpr std::uint64_t kPieceBytes = 1 * kMiB;  // made writable at a time if the kernel refuses the whole region

// The page faults of all threads of the process, also of those that have ended.
std::uint64_t faults_so_far() {
  rusage usage{};
  MEMLITH_ASSERT(::getrusage(RUSAGE_SELF, &usage) == 0);
  return static_cast<std::uint64_t>(usage.ru_minflt) + static_cast<std::uint64_t>(usage.ru_majflt);
}

class ScanTracker final : public ReplaceableTracker {
 public:
  ScanTracker(FileDescriptor uffd, FileDescriptor pagemap, const TrackedMemory& memory, std::string reason)
      : uffd_(std::move(uffd)),
        pagemap_(std::move(pagemap)),
        base_(memory.base),
        sparse_(memory.sparse),
        reason_(std::move(reason)) {}
  ~ScanTracker() override {
    if (waiting_room_ != nullptr) release_fault_region(waiting_room_);
  }

  // Ranges that were given back are still in taken_.
  Status collect(ThreadNumber, std::vector<Range>& ranges) override {
    const std::size_t before = taken_.size();
    // ORDER count-then-scan: a page that is written behind the scan is behind the count, too. [test
    // ScanFaults.ScansAreLeftOutWithoutFaults]
    const std::uint64_t faults = bytes_ > kScannedBytes ? faults_so_far() : kNoScan;
    const bool written = faults == kNoScan || faults != faults_at_scan_;
    faults_at_scan_ = kNoScan;
    scanned_bytes_ = written ? bytes_ : 0;
    Status status = written ? take_written() : kOk;
    if (status.ok() && sparse_) status = leave_copies(before);
    if (status.ok()) faults_at_scan_ = faults;
    for (std::size_t i = before; i < taken_.size(); ++i) {
      pages_taken_.fetch_add(taken_[i].bytes / kPageBytes, std::memory_order_relaxed);
    }
    ranges.insert(ranges.end(), taken_.begin(), taken_.end());
    return status;
  }
  void accept_part(Range part) override {
    take_out(taken_, part, [](const Range& each) { return each; }, [](Range& each, Range range) { each = range; });
    normalize(taken_);
  }
  void give_back() override { normalize(taken_); }

  Status restore(Range range, const ReadHome& read, bool at_home) override {
    const Range whole{range.offset, round_up(range.offset + range.bytes, kPageBytes) - range.offset};
    if (at_home && drop_pages(base_ + whole.offset, whole.bytes)) {
      // These pages take no memory any more. (Pages that were given back before a release are not counted.)
      const std::uint64_t taken = pages_taken_.load(std::memory_order_relaxed);
      pages_taken_.store(taken - std::min(taken, whole.bytes / kPageBytes), std::memory_order_relaxed);
    } else {
      MEMLITH_TRY(read(range.offset, {base_ + range.offset, range.bytes}));
    }
    return forget(markable(whole));
  }

  // During the release the region is read-only, and stores wait in the fault handler. Memory that the program has
  // locked (mlock) is not released: as soon as it is writable, the kernel copies each of its pages again.
  Status release_clean() override {
    pages_taken_.store(0, std::memory_order_relaxed);
    // The kernel's answer for locked memory.
    if (::madvise(base_, bytes_, MADV_COLD) != 0 && errno == EINVAL) return kOk;
    MEMLITH_TRY(make_waiting_room());
    normalize(taken_);
    const FaultHold hold(*waiting_room_);
    Status status = shut();
    if (status.ok()) status = drop_clean();
    waiting_room_->shut = !make_writable();
    if (!waiting_room_->shut) return status;
    return fail(Errc::no_memory, Detail::tracker,
                "cannot make all {} bytes of the region writable again; each store tries once more", bytes_);
  }

  // Stores wait in the handler until they are served with `pages`. ORDER protect-then-collect: the successor collects
  // here what was stored before. [mutant stores_before_handover_lost]
  Result<FaultRegion*> hand_over(FaultPages& pages) override {
    MEMLITH_ASSERT(left_open_ == 0);
    MEMLITH_TRY(make_waiting_room());
    const FaultHold hold(*waiting_room_);
    if (const Status status = shut(); !status.ok()) {
      waiting_room_->shut = !make_writable();
      return status;
    }
    waiting_room_->pages = &pages;
    waiting_room_->shut = false;
    return waiting_room_;
  }
  void take_back() override {
    const FaultHold hold(*waiting_room_);
    waiting_room_->pages = nullptr;
    waiting_room_->shut = !make_writable();
  }
  // The kernel's marks stay until the region is closed: removing them takes as long as protecting all pages does. Each
  // costs its page one fault of 1 us.
  void let_go() override { waiting_room_ = nullptr; }  // the successor's

  // The kernel leaves a page alone whose mapping is not registered.
  LeftOpen leave_open(std::uint64_t page, std::byte*) override {
    if (host_page_bytes() != kPageBytes || !unregister_range(uffd_.get(), base_ + page * kPageBytes, kPageBytes))
      return LeftOpen::refused;
    ++left_open_;
    return LeftOpen::without_twin;
  }

  // ORDER protect-then-compare: a store behind the comparison must be found by the next scan. [test
  // HotPagesTest.StoresWhileAPageCoolsAreFound]
  Status track_again(std::uint64_t page, const std::byte* twin) override {
    const Range range{page * kPageBytes, kPageBytes};
    taken_.reserve(taken_.size() + 1);
    if (!register_range(uffd_.get(), base_ + range.offset, range.bytes, UFFDIO_REGISTER_MODE_WP)) {
      return fail_errno(errno, Detail::tracker, "userfaultfd refuses a page of the region (see vm.max_map_count)");
    }
    MEMLITH_ASSERT(left_open_ > 0);
    --left_open_;
    faults_at_scan_ = kNoScan;  // a page that could not be protected is found by the next scan
    if (forget(range).ok() && twin != nullptr && equals_twin(base_ + range.offset, twin)) return kOk;
    taken_.push_back(range);
    normalize(taken_);
    return kOk;
  }

  // Protects pages from `bytes_` to `bytes`, which have no stores yet.
  Status grow(std::uint64_t bytes) override {
    MEMLITH_ASSERT(bytes >= bytes_ && bytes % host_page_bytes() == 0);
    if (bytes == bytes_) return kOk;
    if (!register_range(uffd_.get(), base_ + bytes_, bytes - bytes_, UFFDIO_REGISTER_MODE_WP)) {
      return fail_errno(errno, Detail::tracker, "userfaultfd refuses {} bytes of the region", bytes - bytes_);
    }
    MEMLITH_TRY(forget({bytes_, bytes - bytes_}));
    bytes_ = bytes;
    return kOk;
  }

  [[nodiscard]] std::uint64_t scanned_bytes() const override { return scanned_bytes_; }
  [[nodiscard]] TrackerKind kind() const override { return TrackerKind::scan; }
  [[nodiscard]] bool knows_threads() const override { return false; }
  [[nodiscard]] std::string describe() const override {
    return "userfaultfd WP_ASYNC and PAGEMAP_SCAN; bytes, by comparing" + (reason_.empty() ? "" : " (" + reason_ + ")");
  }

 private:
  // The kernel has one mark for one of its pages. The mark of a page that reaches beyond `range` may say that other
  // bytes were stored to. The mark goes if these bytes are collected, and stays otherwise.
  [[nodiscard]] Range markable(Range range) const {
    const Range around = host_pages_around(range);
    const bool collected = around == range || std::any_of(taken_.begin(), taken_.end(), [around](const Range& taken) {
                             return lies_in(around, taken);
                           });
    return collected ? around : host_pages_in(range);
  }

  // Pages that were dropped or read from home count as written until then. Whole pages of the kernel's.
  Status forget(Range range) {
    while (range.bytes > 0) MEMLITH_TRY(scan_on(range, ignored_, written_, true).status());
    return kOk;
  }

  Status make_waiting_room() {
    if (waiting_room_ == nullptr) {
      MEMLITH_TRY_ASSIGN(waiting_room_, claim_fault_region(base_, bytes_, nullptr));
    }
    waiting_room_->end.store(reinterpret_cast<std::uintptr_t>(base_) + bytes_, std::memory_order_release);
    return kOk;
  }

  // Under busy of the waiting room. make_writable() follows, also after a failure.
  Status shut() {
    ++waiting_room_->releases;
    waiting_room_->shut = true;
    if (::mprotect(base_, bytes_, PROT_READ) == 0) return kOk;
    return fail_errno(errno, Detail::tracker, "cannot protect {} bytes of the region", bytes_);
  }

  [[nodiscard]] bool make_writable() const {
    if (::mprotect(base_, bytes_, PROT_READ | PROT_WRITE) == 0) return true;
    bool all = true;
    for (std::uint64_t at = 0; at < bytes_; at += kPieceBytes) {
      all = ::mprotect(base_ + at, std::min(kPieceBytes, bytes_ - at), PROT_READ | PROT_WRITE) == 0 && all;
    }
    return all;
  }

  Status drop_clean() {
    std::uint64_t clean = 0;  // from there to the scan's position
    for (Range rest{0, bytes_}; rest.bytes > 0;) {
      MEMLITH_TRY_ASSIGN(const int count, scan_on(rest, found_, sparse_ ? kWrittenCopies : kWritten, false));
      for (int i = 0; i < count; ++i) {
        MEMLITH_TRY(drop_but_taken(clean, offset_of(found_[i].start)));
        clean = offset_of(found_[i].end);
      }
      MEMLITH_TRY(drop_but_taken(clean, rest.offset));
      clean = rest.offset;
    }
    return kOk;
  }

  Status drop_but_taken(std::uint64_t begin, std::uint64_t end) {
    auto taken = std::partition_point(taken_.begin(), taken_.end(),
                                      [begin](const Range& range) { return range.offset + range.bytes <= begin; });
    while (begin < end) {
      const Range clean =
          host_pages_in({begin, std::max(begin, taken == taken_.end() ? end : std::min(end, taken->offset)) - begin});
      if (clean.bytes > 0) {
        if (!drop_pages(base_ + clean.offset, clean.bytes)) {
          return fail_errno(errno, Detail::tracker, "cannot drop {} bytes of the region", clean.bytes);
        }
        MEMLITH_TRY(forget(clean));
      }
      if (taken == taken_.end()) return kOk;
      begin = taken->offset + taken->bytes;
      ++taken;
    }
    return kOk;
  }

  // Adds the written pages to taken_ and resets their marks.
  Status take_written() {
    for (Range rest{0, bytes_}; rest.bytes > 0;) {
      // Allocate first: once the kernel has reset its marks, the pages are known only here.
      if (taken_.capacity() - taken_.size() < kRegionsPerScan) {
        taken_.reserve(std::max(2 * taken_.capacity(), taken_.size() + kRegionsPerScan));
      }
      MEMLITH_TRY_ASSIGN(const int count, scan_on(rest, found_, written_, true));
      for (int i = 0; i < count; ++i) taken_.push_back(range_of(found_[i]));
    }
    return kOk;
  }

  // Takes pages of the file out of taken_, from `first` on. On failure they stay. ORDER protect-then-look: a page that
  // was stored to before it was protected is a copy now. [test SparseScan.StoresBesideACaptureAreFound]
  Status leave_copies(std::size_t first) {
    copies_.clear();
    for (std::size_t i = first; i < taken_.size(); ++i) {
      for (Range rest = taken_[i]; rest.bytes > 0;) {
        MEMLITH_TRY_ASSIGN(const int count, scan_on(rest, found_, kCopies, false));
        for (int j = 0; j < count; ++j) copies_.push_back(range_of(found_[j]));
      }
    }
    taken_.reserve(first + copies_.size());
    taken_.resize(first);
    taken_.insert(taken_.end(), copies_.begin(), copies_.end());
    return kOk;
  }

  // Pages of all these categories, and of one of `any` unless it is 0. `inverted`: of none of these instead.
  struct Query {
    std::uint64_t all;
    std::uint64_t inverted;
    std::uint64_t any;
  };
  static constexpr Query kWritten{PAGE_IS_WRITTEN, 0, 0};
  static constexpr Query kWrittenInMemory{PAGE_IS_WRITTEN, 0, kInMemory};
  static constexpr Query kCopies{PAGE_IS_FILE, PAGE_IS_FILE, kInMemory};
  static constexpr Query kWrittenCopies{PAGE_IS_WRITTEN | PAGE_IS_FILE, PAGE_IS_FILE, kInMemory};

  // Finds such pages at the beginning of `rest`, as many ranges as `found` has room for, and removes the scanned part
  // from `rest`. With `reset` the marks of these pages are reset. Returns the number of ranges.
  Result<int> scan_on(Range& rest, page_region (&found)[kRegionsPerScan], const Query& query, bool reset) {
    MEMLITH_ASSERT(is_whole_pages(base_ + rest.offset, rest.bytes));
    const auto begin = reinterpret_cast<std::uintptr_t>(base_);
    pm_scan_arg scan{};
    scan.size = sizeof scan;
    // With a page left open, the kernel must not refuse mappings that are not registered. It skips them.
    scan.flags = (left_open_ == 0 ? PM_SCAN_CHECK_WPASYNC : 0) | (reset ? PM_SCAN_WP_MATCHING : 0);
    scan.start = begin + rest.offset;
    scan.end = scan.start + rest.bytes;
    scan.vec = reinterpret_cast<std::uintptr_t>(found);
    scan.vec_len = kRegionsPerScan;
    scan.category_mask = query.all;
    scan.category_inverted = query.inverted;
    scan.category_anyof_mask = query.any;
    scan.return_mask = PAGE_IS_WRITTEN;
    int count = 0;
    while ((count = ::ioctl(pagemap_.get(), PAGEMAP_SCAN, &scan)) < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return fail_errno(errno, Detail::tracker, "cannot scan the region at {:#x} for written pages", begin);
    }
    MEMLITH_ASSERT(count <= static_cast<int>(kRegionsPerScan) && scan.walk_end <= scan.end);
    rest = {offset_of(scan.walk_end), scan.end - scan.walk_end};
    return count;
  }

  [[nodiscard]] std::uint64_t offset_of(std::uint64_t address) const {
    return address - reinterpret_cast<std::uintptr_t>(base_);
  }

  [[nodiscard]] Range range_of(const page_region& found) const {
    return {offset_of(found.start), found.end - found.start};
  }

  FileDescriptor uffd_;
  FileDescriptor pagemap_;
  std::byte* base_;
  const bool sparse_;
  const Query written_ = sparse_ ? kWrittenInMemory : kWritten;
  std::string reason_;
  std::uint64_t bytes_ = 0;
  std::vector<Range> taken_;
  std::vector<Range> copies_;    // used by leave_copies() alone
  std::uint64_t left_open_ = 0;  // pages
  std::uint64_t faults_at_scan_ = kNoScan;
  std::uint64_t scanned_bytes_ = 0;
  FaultRegion* waiting_room_ = nullptr;  // claimed by the first release_clean()
  page_region found_[kRegionsPerScan];
  page_region ignored_[kRegionsPerScan];
};

// Tries everything on one page: a kernel may have the feature and a sandbox may still refuse one of the calls.
Status probe_once() {
  const std::uint64_t bytes = host_page_bytes();
  void* const page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return fail_errno(errno, Detail::tracker, "no memory for a trial");
  Status status = kOk;
  {
    auto tracker = attach_scan_tracker({static_cast<std::byte*>(page), bytes, bytes}, "");
    std::vector<Range> ranges;
    status = tracker.ok() ? (*tracker)->collect(kAllThreads, ranges) : tracker.error();
    const std::uint64_t faults = faults_so_far();
    if (status.ok()) {
      *static_cast<volatile char*>(page) = 1;
      status = (*tracker)->collect(kAllThreads, ranges);
    }
    if (status.ok() && (ranges.size() != 1 || ranges.front().offset != 0 || ranges.front().bytes > bytes)) {
      status = fail(Errc::unsupported, Detail::tracker, "PAGEMAP_SCAN did not see a store in a trial");
    }
    if (status.ok() && faults_so_far() == faults) {
      status = fail(Errc::unsupported, Detail::tracker, "the kernel did not count a page fault in a trial");
    }
  }
  ::munmap(page, bytes);
  return status;
}

}  // namespace

Status probe_scan() {
  static std::once_flag once;
  static Status result;
  static std::string text;
  std::call_once(once, [] {
    result = probe_once();
    text = last_error_text();
  });
  if (!result.ok()) set_error_text(text);
  return result;
}

Result<std::unique_ptr<Tracker>> attach_scan_tracker(const TrackedMemory& memory, std::string reason) {
  // Neither the program nor the kernel ever waits on such a fault.
  MEMLITH_TRY_ASSIGN(FileDescriptor uffd, open_userfaultfd(UFFD_FEATURE_WP_ASYNC, kWpAsync));
  FileDescriptor pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (pagemap.get() < 0) return fail_errno(errno, Detail::tracker, "cannot open /proc/self/pagemap");
  auto tracker = std::make_unique<ScanTracker>(std::move(uffd), std::move(pagemap), memory, std::move(reason));
  MEMLITH_TRY(tracker->grow(memory.bytes));
  return std::unique_ptr<Tracker>(std::move(tracker));
}

}  // namespace memlith::core
