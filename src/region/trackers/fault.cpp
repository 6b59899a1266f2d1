// The fault tracker: clean pages are read-only, the first store to one faults, and the handler keeps the page as it was (its
// twin), notes the thread, and lets the store through. A capture compares each page with its twin, so that only changed bytes
// are logged; a rollback copies the twin back. Works on every kernel; 3 to 5 microseconds a page first stored to. Floor: region.
//
// Who stored is known by page: of two threads that store to one page between captures, the first counts.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "region/tracker.hpp"
#include "region/trackers/fault_handler.hpp"

namespace memlith::core {

namespace {

constexpr std::uint32_t kTwinsMax = 65536;   // 256 MiB; pages beyond that are captured whole
constexpr std::uint32_t kTwinsKept = 16384;  // more than these give their memory back when none is in use
constexpr std::uint64_t kJoinBytes = 16;  // an unchanged gap up to what a further extent costs in the log is logged too
constexpr std::uint64_t kStepBytes = 64;

std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// Adds the bytes in which the page differs from its twin. Stores may race with it; they make the page dirty again.
[[gnu::noinline]] void compare_page(const std::byte* page, const std::byte* twin, std::uint64_t offset,
                                    std::vector<Range>& ranges) {
  const std::size_t first = ranges.size();
  for (std::uint64_t step = 0; step < kPageBytes; step += kStepBytes) {
    if (std::memcmp(page + step, twin + step, kStepBytes) == 0) continue;
    for (std::uint64_t at = step; at < step + kStepBytes; at += sizeof(std::uint64_t)) {
      const std::uint64_t change = word_at(page + at) ^ word_at(twin + at);
      if (change == 0) continue;
      const std::uint64_t begin = offset + at + static_cast<std::uint64_t>(__builtin_ctzll(change)) / 8;
      const std::uint64_t end = offset + at + 8 - static_cast<std::uint64_t>(__builtin_clzll(change)) / 8;
      if (ranges.size() > first && begin - (ranges.back().offset + ranges.back().bytes) <= kJoinBytes) {
        ranges.back().bytes = end - ranges.back().offset;
      } else {
        ranges.push_back({begin, end - begin});
      }
    }
  }
}

template <class T>
Status map_array(T*& array, std::uint64_t count) {
  void* const memory =
      ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail_errno(errno, Detail::tracker, "no memory for {} page marks", count);
  }
  array = static_cast<T*>(memory);
  return kOk;
}

template <class T>
void unmap_array(T* array, std::uint64_t count) {
  if (array != nullptr) ::munmap(static_cast<void*>(array), count * sizeof(T));
}

class FaultTracker final : public Tracker {
 public:
  FaultTracker(const TrackedMemory& memory, std::string reason)
      : base_(memory.base),
        bytes_(memory.bytes),
        pages_max_(std::max<std::uint64_t>(memory.capacity_bytes / kPageBytes, 1)),
        reason_(std::move(reason)) {}

  ~FaultTracker() override {
    if (region_ != nullptr) release_fault_region(region_);
    unmap_array(pages_.marks, pages_max_);
    unmap_array(pages_.dirty, pages_max_);
    unmap_array(pages_.free_twins, pages_.twins_max);
    unmap_array(pages_.twins, pages_.twins_max * kPageBytes);
  }

  Status attach() {
    pages_.twins_max = static_cast<std::uint32_t>(std::min<std::uint64_t>(pages_max_, kTwinsMax));
    MEMLITH_TRY(map_array(pages_.marks, pages_max_));
    MEMLITH_TRY(map_array(pages_.dirty, pages_max_));
    MEMLITH_TRY(map_array(pages_.free_twins, pages_.twins_max));
    MEMLITH_TRY(map_array(pages_.twins, pages_.twins_max * kPageBytes));
    MEMLITH_TRY(protect(0, bytes_));
    MEMLITH_TRY_ASSIGN(region_, claim_fault_region(base_, bytes_, &pages_));
    return kOk;
  }

  Status collect(ThreadNumber thread, std::vector<Range>& ranges) override {
    {
      const FaultHold hold(*region_);
      MEMLITH_TRY(take(thread));
    }
    for (const Taken& each : taken_) {
      const std::uint64_t offset = std::uint64_t{each.page} * kPageBytes;
      if (each.mark.twin == 0) {
        ranges.push_back({offset, kPageBytes});
      } else {
        compare_page(base_ + offset, twin(each.mark), offset, ranges);
      }
    }
    return kOk;
  }

  void accept() override {
    if (taken_.empty()) return;
    const FaultHold hold(*region_);
    for (const Taken& each : taken_) {
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

  Status rollback(ThreadNumber thread, std::vector<Range>& others) override {
    const FaultHold hold(*region_);
    MEMLITH_TRY(take(thread));
    std::vector<Taken> left;
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      const Taken& each = taken_[i];
      std::byte* const page = base_ + std::uint64_t{each.page} * kPageBytes;
      if (each.mark.twin == 0) {
        others.push_back({std::uint64_t{each.page} * kPageBytes, kPageBytes});
        left.push_back(each);
        continue;
      }
      if (::mprotect(page, kPageBytes, PROT_READ | PROT_WRITE) != 0) {
        // Nothing is lost: the pages count as stored to again, and the caller may try once more.
        const Status status = fail_errno(errno, Detail::tracker, "cannot roll a page back (see vm.max_map_count)");
        for (; i < taken_.size(); ++i) mark_again(taken_[i]);
        for (const Taken& rest : left) mark_again(rest);
        taken_.clear();
        return status;
      }
      std::memcpy(page, twin(each.mark), kPageBytes);
      if (!protect(std::uint64_t{each.page} * kPageBytes, kPageBytes).ok()) {
        mark_again(each);  // it stays writable, so it counts as stored to, with nothing that differs from its twin
        continue;
      }
      pages_.marks[each.page] = {};
      free_twin(each.mark);
    }
    taken_ = std::move(left);
    return kOk;
  }

  Status grow(std::uint64_t bytes) override {
    MEMLITH_TRY(protect(bytes_, bytes - bytes_));
    bytes_ = bytes;
    region_->end.store(reinterpret_cast<std::uintptr_t>(base_) + bytes, std::memory_order_release);
    return kOk;
  }

  Status prepare(Range range) override {
    const ThreadNumber thread = this_thread_number();
    const FaultHold hold(*region_);
    for (std::uint64_t page = range.offset / kPageBytes; page * kPageBytes < range.offset + range.bytes; ++page) {
      if (take_page(*region_, reinterpret_cast<std::uintptr_t>(base_) + page * kPageBytes, thread)) continue;
      return fail_errno(errno, Detail::tracker, "cannot make the region writable");
    }
    return kOk;
  }

  // Stores to clean pages fault, and wait in the handler while we hold the region.
  Status release_clean() override {
    const FaultHold hold(*region_);
    std::sort(pages_.dirty, pages_.dirty + pages_.dirty_count);
    std::uint64_t begin = 0;
    for (std::uint64_t i = 0; i <= pages_.dirty_count; ++i) {
      const std::uint64_t end = i < pages_.dirty_count ? pages_.dirty[i] * kPageBytes : bytes_;
      if (begin < end && ::madvise(base_ + begin, end - begin, MADV_DONTNEED) != 0) {
        return fail_errno(errno, Detail::tracker, "cannot give back {} bytes of the region", end - begin);
      }
      begin = end + kPageBytes;
    }
    return kOk;
  }

  [[nodiscard]] bool knows_threads() const override { return true; }
  [[nodiscard]] TrackerKind kind() const override { return TrackerKind::fault; }
  [[nodiscard]] std::string describe() const override {
    return "mprotect and SIGSEGV, bytes by comparing (" + reason_ + ")";
  }

 private:
  struct Taken {
    std::uint32_t page = 0;
    PageMark mark;
  };

  // Moves the marks of `thread` to taken_, in order of the pages, and protects those. Under busy.
  Status take(ThreadNumber thread) {
    if (thread != kAllThreads && pages_.unknown_count > 0) {
      return fail(Errc::unsupported, Detail::tracker,
                  "the kernel ran out of mappings (vm.max_map_count), and who stored where is not known any more; "
                  "persist "
                  "with process scope, or persist more often");
    }
    taken_.clear();
    std::uint64_t kept = 0;
    for (std::uint64_t i = 0; i < pages_.dirty_count; ++i) {
      const std::uint32_t page = pages_.dirty[i];
      if (thread == kAllThreads || pages_.marks[page].thread == thread) {
        taken_.push_back({page, pages_.marks[page]});
      } else {
        pages_.dirty[kept++] = page;
      }
    }
    pages_.dirty_count = kept;
    std::sort(taken_.begin(), taken_.end(), [](const Taken& a, const Taken& b) { return a.page < b.page; });
    Status status = kOk;
    for (std::size_t i = 0; i < taken_.size() && status.ok();) {
      std::size_t next = i + 1;
      while (next < taken_.size() && taken_[next].page == taken_[next - 1].page + 1) ++next;
      status = protect(std::uint64_t{taken_[i].page} * kPageBytes, (next - i) * kPageBytes);
      i = next;
    }
    // Out of mappings. The region as one takes none; who had been let in faults once more, and nothing is forgotten.
    if (!status.ok()) status = protect(0, bytes_);
    if (!status.ok()) {
      for (const Taken& each : taken_) pages_.dirty[pages_.dirty_count++] = each.page;
      taken_.clear();
      return status;
    }
    for (const Taken& each : taken_) {
      if (each.mark.thread == kUnknownThread) --pages_.unknown_count;
      pages_.marks[each.page] = {0, kNoTwinNow};
    }
    return kOk;
  }

  // Under busy.
  void mark_again(const Taken& each) {
    PageMark& mark = pages_.marks[each.page];
    if (mark.thread == 0) {
      mark = each.mark;
      pages_.dirty[pages_.dirty_count++] = each.page;
      if (mark.thread == kUnknownThread) ++pages_.unknown_count;
      return;
    }
    // Stored to again meanwhile: the earlier twin is the one that counts.
    free_twin(mark);
    mark.twin = each.mark.twin;
    if (mark.thread == each.mark.thread || mark.thread == kUnknownThread) return;
    mark.thread = kUnknownThread;
    ++pages_.unknown_count;
  }

  void free_twin(PageMark mark) {
    if (mark.twin != 0) pages_.free_twins[pages_.free_count++] = mark.twin - 1;
  }
  [[nodiscard]] const std::byte* twin(PageMark mark) const {
    return pages_.twins + std::uint64_t{mark.twin - 1} * kPageBytes;
  }

  Status protect(std::uint64_t offset, std::uint64_t bytes) const {
    if (bytes == 0 || ::mprotect(base_ + offset, bytes, PROT_READ) == 0) return kOk;
    return fail_errno(errno, Detail::tracker, "cannot protect {} bytes of the region (see vm.max_map_count)", bytes);
  }

  std::byte* base_;
  std::uint64_t bytes_;
  std::uint64_t pages_max_;
  std::string reason_;
  FaultPages pages_;
  FaultRegion* region_ = nullptr;
  std::vector<Taken> taken_;
};

}  // namespace

Result<std::unique_ptr<Tracker>> attach_fault_tracker(const TrackedMemory& memory, std::string reason) {
  auto tracker = std::make_unique<FaultTracker>(memory, std::move(reason));
  MEMLITH_TRY(tracker->attach());
  return std::unique_ptr<Tracker>(std::move(tracker));
}

}  // namespace memlith::core
