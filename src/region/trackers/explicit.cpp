// The explicit tracker: memlith_touch() names the ranges that the calling thread stored to. Floor: region. Finds bytes.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "region/drop_pages.hpp"
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

class ExplicitTracker final : public Tracker {
 public:
  explicit ExplicitTracker(const TrackedMemory& memory) : base_(memory.base), bytes_(memory.bytes) {
    touched_.reserve(kCompactFrom);
  }

  void touch(Range range) override {
    const ThreadNumber thread = this_thread_number();
    const Spin hold(busy_);
    // A loop that touches consecutive elements, or the same element again, makes one range.
    if (!touched_.empty() && touched_.back().thread == thread) {
      Range& last = touched_.back().range;
      const std::uint64_t last_end = last.offset + last.bytes;
      if (range.offset >= last.offset && range.offset <= last_end) {
        last.bytes = std::max(last_end, range.offset + range.bytes) - last.offset;
        return;
      }
    }
    if (touched_.size() >= compact_at_) {
      compact(touched_);
      compact_at_ = std::max(kCompactFrom, 2 * touched_.size());
    }
    touched_.push_back({range, thread});
  }

  Status collect(ThreadNumber thread, std::vector<Range>& ranges) override {
    const Spin hold(busy_);
    // The ranges that were given back. If something throws from here on, each range is in one of the two vectors.
    touched_.insert(touched_.end(), taken_.begin(), taken_.end());
    taken_.clear();
    const auto others = std::partition(touched_.begin(), touched_.end(), [thread](const Touched& each) {
      return thread != kAllThreads && each.thread != thread;
    });
    ranges.reserve(ranges.size() + static_cast<std::size_t>(touched_.end() - others));
    taken_.assign(others, touched_.end());
    touched_.erase(others, touched_.end());
    for (const Touched& each : taken_) ranges.push_back(each.range);
    return kOk;
  }
  void accept() override { taken_.clear(); }
  void give_back() override {}  // the ranges are still in taken_
  Status restore(Range range, const ReadHome& read) override {
    return read(range.offset, {base_ + range.offset, range.bytes});
  }

  Status grow(std::uint64_t bytes) override {
    bytes_ = bytes;
    return kOk;
  }
  Status release_clean() override {
    std::vector<Range> kept;
    {
      const Spin hold(busy_);
      for (const auto* const all : {&touched_, &taken_}) {
        for (const Touched& each : *all) {
          const std::uint64_t begin = round_down(each.range.offset, kPageBytes);
          kept.push_back({begin, round_up(each.range.offset + each.range.bytes, kPageBytes) - begin});
        }
      }
    }
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
  // Held for nanoseconds by threads that have just stored; a mutex would cost more than the work under it.
  class Spin {
   public:
    explicit Spin(std::atomic<bool>& busy) : busy_(busy) {
      for (int tries = 0; busy_.exchange(true, std::memory_order_acquire); ++tries) {
        if (tries > 100) std::this_thread::yield();
      }
    }
    ~Spin() { busy_.store(false, std::memory_order_release); }
    Spin(const Spin&) = delete;
    Spin& operator=(const Spin&) = delete;

   private:
    std::atomic<bool>& busy_;
  };

  std::byte* base_;
  std::uint64_t bytes_;
  std::atomic<bool> busy_{false};
  std::vector<Touched> touched_;           // under busy_
  std::size_t compact_at_ = kCompactFrom;  // under busy_
  std::vector<Touched> taken_;
};

}  // namespace

std::unique_ptr<Tracker> attach_explicit_tracker(const TrackedMemory& memory) {
  return std::make_unique<ExplicitTracker>(memory);
}

}  // namespace memlith::core
