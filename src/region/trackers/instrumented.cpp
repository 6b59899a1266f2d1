// The instrumented tracker: the compiler puts a call behind or before each store that may go to a region
// (docs/compiler-pass.md), and the calling thread's list has the range. Floor: region. Finds bytes; tells threads apart
// by byte.
#include <algorithm>
#include <cerrno>

#include "region/drop_pages.hpp"
#include "region/store_lists.hpp"
#include "region/take_out.hpp"
#include "region/tracker.hpp"
#include "region/tracking_check.hpp"

namespace memlith::core {

namespace {

class InstrumentedTracker final : public Tracker {
 public:
  explicit InstrumentedTracker(const TrackedMemory& memory)
      : base_(memory.base), bytes_(memory.bytes), capacity_bytes_(std::max(memory.capacity_bytes, memory.bytes)) {}
  ~InstrumentedTracker() override {
    if (check_ != nullptr) check();
    if (watched_) unwatch_stores(addresses());
  }

  Status attach(const TrackedMemory& memory) {
    if (TrackingCheck::is_wanted()) {
      MEMLITH_TRY_ASSIGN(check_, TrackingCheck::make(memory));
    }
    MEMLITH_TRY(watch_stores(addresses()));
    watched_ = true;
    return kOk;
  }

  Status collect(ThreadNumber thread, std::vector<Range>& ranges) override {
    // The ranges that were given back. If something throws from here on, each range is in one of the two vectors.
    known_.insert(known_.end(), taken_.begin(), taken_.end());
    taken_.clear();
    MEMLITH_TRY(take_stores(thread, addresses(), known_));
    if (check_ != nullptr) check();
    const auto others = std::partition(known_.begin(), known_.end(), [thread](const StoredBy& each) {
      return thread != kAllThreads && each.thread != thread && each.thread != 0;
    });
    ranges.reserve(ranges.size() + static_cast<std::size_t>(known_.end() - others));
    taken_.assign(others, known_.end());
    known_.erase(others, known_.end());
    for (const StoredBy& each : taken_) add(each.range, ranges);
    return kOk;
  }
  void accept_part(Range part) override { take_out_of(taken_, part); }
  // They hold nothing: what other threads stored there is not theirs any more.
  void give_pages(Range pages, ThreadNumber) override {
    (void)take_stores(kAllThreads, addresses(), known_);  // if it fails, what is left in the lists is in no frame yet
    take_out_of(known_, pages);
    take_out_of(taken_, pages);
    if (check_ != nullptr) check_->forgive(pages);
  }
  void give_back() override {}  // the ranges are still in taken_
  Status restore(Range range, const ReadHome& read, bool at_home) override {
    MEMLITH_TRY(restore_or_drop(base_, range, read, at_home));
    if (check_ != nullptr) check_->forgive(range);
    return kOk;
  }

  Status grow(std::uint64_t bytes) override {
    MEMLITH_ASSERT(bytes >= bytes_ && bytes <= capacity_bytes_);
    bytes_ = bytes;
    return kOk;
  }
  // The program, or a part of it that no pass has seen, says what it stored to.
  void touch(Range range) override {
    const auto begin = reinterpret_cast<std::uintptr_t>(base_) + range.offset;
    record_store(begin, begin + range.bytes);
  }
  Status release_clean() override {
    MEMLITH_TRY(take_stores(kAllThreads, addresses(), known_));
    std::vector<Range> kept;
    for (const auto* const all : {&known_, &taken_}) {
      for (const StoredBy& each : *all) add(each.range, kept);
    }
    for (Range& range : kept) range = host_pages_around(range);
    normalize(kept);
    kept.push_back({bytes_, 0});
    std::uint64_t begin = 0;
    for (const Range& range : kept) {
      if (begin < range.offset && !drop_pages(base_ + begin, range.offset - begin)) {
        return fail_errno(errno, Detail::tracker, "cannot release {} bytes of the region", range.offset - begin);
      }
      begin = range.offset + range.bytes;
    }
    return kOk;
  }
  // Between a store and its record, only the storing thread knows of the store.
  [[nodiscard]] bool releases_any_time() const override { return false; }
  [[nodiscard]] bool knows_threads() const override { return true; }
  [[nodiscard]] TrackerKind kind() const override { return TrackerKind::instrumented; }
  [[nodiscard]] std::string describe() const override {
    if (check_ != nullptr) return "the compiler says what was stored, and each persist checks that (slow); bytes";
    return "the compiler says what was stored (memlith-g++, memlith-c++); bytes";
  }

 private:
  void check() {
    check_->compare(bytes_, [this] {
      // If it fails, what is missing is reported.
      (void)take_stores(kAllThreads, addresses(), known_);
      std::vector<Range> recorded;
      for (const auto* const all : {&known_, &taken_}) {
        for (const StoredBy& each : *all) add(each.range, recorded);
      }
      return recorded;
    });
  }
  void take_out_of(std::vector<StoredBy>& ranges, Range part) const {
    const auto base = reinterpret_cast<std::uintptr_t>(base_);
    take_out(
        ranges, part,
        [base](const StoredBy& each) { return Range{each.range.begin - base, each.range.end - each.range.begin}; },
        [base](StoredBy& each, Range range) { each.range = {base + range.offset, base + range.offset + range.bytes}; });
  }
  // With what the region may grow to.
  [[nodiscard]] StoredRange addresses() const {
    const auto begin = reinterpret_cast<std::uintptr_t>(base_);
    return {begin, begin + capacity_bytes_};
  }
  void add(StoredRange stored, std::vector<Range>& ranges) const {
    const std::uint64_t begin = stored.begin - reinterpret_cast<std::uintptr_t>(base_);
    const std::uint64_t end = std::min(stored.end - reinterpret_cast<std::uintptr_t>(base_), bytes_);
    if (begin < end) ranges.push_back({begin, end - begin});
  }

  std::byte* base_;
  std::uint64_t bytes_;
  std::uint64_t capacity_bytes_;
  bool watched_ = false;
  std::unique_ptr<TrackingCheck> check_;
  std::vector<StoredBy> known_;  // taken from the lists, and in no capture
  std::vector<StoredBy> taken_;
};

}  // namespace

Result<std::unique_ptr<Tracker>> attach_instrumented_tracker(const TrackedMemory& memory) {
  auto tracker = std::make_unique<InstrumentedTracker>(memory);
  MEMLITH_TRY(tracker->attach(memory));
  return std::unique_ptr<Tracker>(std::move(tracker));
}

}  // namespace memlith::core
