// The explicit tracker: memlith_touch() names the ranges that the calling thread stored to. Floor: region. Finds bytes.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <thread>

#include "base/thread_annotations.hpp"
#include "region/drop_pages.hpp"
#include "region/take_out.hpp"
#include "region/tracker.hpp"

namespace memlith::core {

namespace {

constexpr std::size_t kCompactFrom = 4096;

struct Touched {
  Range range;
  ThreadNumber thread = 0;
};

// Joins ranges of one thread that overlap or touch.
void compact(std::vector<Touched>& all) {
  std::sort(all.begin(), all.end(), [](const Touched& a, const Touched& b) {
    return a.thread != b.thread ? a.thread < b.thread : a.range.offset < b.range.offset;
  });
  std::size_t last = 0;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const std::uint64_t last_end = all[last].range.offset + all[last].range.bytes;
    if (all[i].thread == all[last].thread && all[i].range.offset <= last_end) {
      all[last].range.bytes = std::max(last_end, all[i].range.offset + all[i].range.bytes) - all[last].range.offset;
    } else {
      all[++last] = all[i];
    }
  }
  all.resize(all.empty() ? 0 : last + 1);
}

// Held for nanoseconds by threads that have just stored; a mutex would cost more than the work under it.
class MEMLITH_CAPABILITY("mutex") SpinLock {
 public:
  void lock() MEMLITH_ACQUIRE() {
    for (int tries = 0; busy_.exchange(true, std::memory_order_acquire); ++tries) {
      if (tries > 100) std::this_thread::yield();
    }
  }
  void unlock() MEMLITH_RELEASE() { busy_.store(false, std::memory_order_release); }
  void assert_held() const MEMLITH_ASSERT_CAPABILITY(this) { MEMLITH_DCHECK(busy_.load(std::memory_order_relaxed)); }

 private:
  std::atomic<bool> busy_{false};
};

class MEMLITH_SCOPED_CAPABILITY SpinGuard {
 public:
  explicit SpinGuard(SpinLock& lock) MEMLITH_ACQUIRE(lock) : lock_(lock) { lock_.lock(); }
  ~SpinGuard() MEMLITH_RELEASE() { lock_.unlock(); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock& lock_;
};

// The ranges of the threads whose numbers are the same modulo kLists: as a rule, of one thread.
struct alignas(64) TouchedList {
  SpinLock lock;
  std::vector<Touched> touched MEMLITH_GUARDED_BY(lock);
  std::size_t compact_at MEMLITH_GUARDED_BY(lock) = kCompactFrom;
};

class ExplicitTracker final : public Tracker {
 public:
  explicit ExplicitTracker(const TrackedMemory& memory) : base_(memory.base), bytes_(memory.bytes) {}

  void touch(Range range) override {
    const ThreadNumber thread = this_thread_number();
    TouchedList& list = list_of(thread);
    const SpinGuard hold(list.lock);
    // A loop that touches consecutive elements, or the same element again, makes one range.
    if (!list.touched.empty() && list.touched.back().thread == thread) {
      Range& last = list.touched.back().range;
      const std::uint64_t last_end = last.offset + last.bytes;
      if (range.offset >= last.offset && range.offset <= last_end) {
        last.bytes = std::max(last_end, range.offset + range.bytes) - last.offset;
        return;
      }
    }
    if (list.touched.size() >= list.compact_at) {
      compact(list.touched);
      list.compact_at = std::max(kCompactFrom, 2 * list.touched.size());
    }
    if (list.touched.capacity() == 0) list.touched.reserve(kCompactFrom);
    list.touched.push_back({range, thread});
  }

  Status collect(ThreadNumber thread, std::vector<Range>& ranges) override {
    const LockedLists held(*this, thread);
    // The ranges that were given back. If something throws from here on, each range is in a list or in taken_.
    while (!taken_.empty()) {
      held.give_back(taken_.back());
      taken_.pop_back();
    }
    std::size_t count = 0;
    held.for_each([&](const TouchedList& list) MEMLITH_REQUIRES(list.lock) { count += list.touched.size(); });
    taken_.reserve(count);
    ranges.reserve(ranges.size() + count);
    held.for_each([&](TouchedList& list) MEMLITH_REQUIRES(list.lock) {
      const auto others = std::partition(list.touched.begin(), list.touched.end(), [thread](const Touched& each) {
        return thread != kAllThreads && each.thread != thread;
      });
      taken_.insert(taken_.end(), others, list.touched.end());
      list.touched.erase(others, list.touched.end());
    });
    for (const Touched& each : taken_) ranges.push_back(each.range);
    return kOk;
  }
  void accept_part(Range part) override { take_out_of(taken_, part); }
  void give_back() override {}  // the ranges are still in taken_
  Status restore(Range range, const ReadHome& read, bool at_home) override {
    return restore_or_drop(base_, range, read, at_home);
  }

  // They hold nothing: what other threads touched there is not theirs any more.
  void give_pages(Range pages, ThreadNumber) override {
    const LockedLists held(*this, kAllThreads);
    held.for_each([pages](TouchedList& list) MEMLITH_REQUIRES(list.lock) { take_out_of(list.touched, pages); });
    take_out_of(taken_, pages);
  }
  Status grow(std::uint64_t bytes) override {
    MEMLITH_ASSERT(bytes >= bytes_);
    bytes_ = bytes;
    return kOk;
  }
  Status release_clean() override {
    std::vector<Range> kept;
    const auto keep = [&kept](const Touched& each) { kept.push_back(host_pages_around(each.range)); };
    for (const Touched& each : taken_) keep(each);
    LockedLists(*this, kAllThreads).for_each([&](const TouchedList& list) MEMLITH_REQUIRES(list.lock) {
      for (const Touched& each : list.touched) keep(each);
    });
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
  // Between a store and its touch, only the storing thread knows of the store.
  [[nodiscard]] bool releases_any_time() const override { return false; }
  [[nodiscard]] bool knows_threads() const override { return true; }
  [[nodiscard]] TrackerKind kind() const override { return TrackerKind::touched; }
  [[nodiscard]] std::string describe() const override { return "memlith_touch says what was stored; bytes"; }

 private:
  static constexpr std::uint32_t kLists = 64;
  static std::uint64_t bit_of(ThreadNumber thread) { return std::uint64_t{1} << thread % kLists; }

  static void take_out_of(std::vector<Touched>& ranges, Range part) {
    take_out(
        ranges, part, [](const Touched& each) { return each.range; },
        [](Touched& each, Range range) { each.range = range; });
  }

  TouchedList& list_of(ThreadNumber thread) {
    const std::uint64_t bit = bit_of(thread);
    if ((used_.load(std::memory_order_relaxed) & bit) == 0) used_.fetch_or(bit);
    return lists_[thread % kLists];
  }

  // Locks the lists of a thread, or all.
  //
  // ORDER all-lists-at-once: no range may be taken before every list is locked. Otherwise, of a range and one that
  // another thread touched after it, only the later one could be taken. [test
  // TouchedRanges.TakesNoTouchWithoutTheOneBeforeIt]
  class LockedLists {
   public:
    LockedLists(ExplicitTracker& tracker, ThreadNumber thread) : tracker_(tracker) {
      if (thread != kAllThreads) {
        // Ranges that were given back go to the lists of the threads that touched them.
        std::uint64_t lists = bit_of(thread);
        for (const Touched& each : tracker.taken_) lists |= bit_of(each.thread);
        lock(lists);
        return;
      }
      // A thread whose list comes into use now has touched nothing that a locked list's thread has seen.
      for (std::uint64_t missing = 0; (missing = tracker.used_.load() & ~lists_) != 0;) lock(missing);
    }
    ~LockedLists() {
      for_each([](TouchedList& list) MEMLITH_RELEASE(list.lock) { list.lock.unlock(); });
    }
    LockedLists(const LockedLists&) = delete;
    LockedLists& operator=(const LockedLists&) = delete;
    template <class Act>
    void for_each(Act&& act) const {
      for_lists(lists_, act);
    }
    // The range goes to the list of the thread that touched it, which is locked.
    void give_back(const Touched& range) const {
      TouchedList& list = tracker_.list_of(range.thread);
      list.lock.assert_held();
      list.touched.push_back(range);
    }

   private:
    // Touching threads lock one list and captures of a region exclude each other, so any order will do.
    void lock(std::uint64_t lists) {
      lists_ |= lists;
      for_lists(lists, [](TouchedList& list) MEMLITH_ACQUIRE(list.lock) { list.lock.lock(); });
    }
    template <class Act>
    void for_lists(std::uint64_t lists, Act&& act) const {
      for (; lists != 0; lists &= lists - 1) call_annotated(act, tracker_.lists_[std::countr_zero(lists)]);
    }
    ExplicitTracker& tracker_;
    std::uint64_t lists_ = 0;
  };

  std::byte* base_;
  std::uint64_t bytes_;
  std::atomic<std::uint64_t> used_{0};  // lists that a thread has used; bits are only ever set
  std::array<TouchedList, kLists> lists_;
  std::vector<Touched> taken_;  // under the region's capture lock
};

}  // namespace

std::unique_ptr<Tracker> attach_explicit_tracker(const TrackedMemory& memory) {
  return std::make_unique<ExplicitTracker>(memory);
}

}  // namespace memlith::core
