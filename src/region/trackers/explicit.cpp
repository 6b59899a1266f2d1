// The explicit tracker: memlith_touch() says what was stored. Floor: region. Grain: bytes.
#include <algorithm>
#include <atomic>
#include <thread>

#include "region/tracker.hpp"

namespace memlith::core {

namespace {

constexpr std::size_t kCompactFrom = 4096;

class ExplicitTracker final : public Tracker {
 public:
  ExplicitTracker() { touched_.reserve(kCompactFrom); }

  void touch(Range range) override {
    const Spin hold(busy_);
    // A loop that touches element after element, or the same one again, stays one range.
    if (!touched_.empty()) {
      Range& last = touched_.back();
      const std::uint64_t last_end = last.offset + last.bytes;
      if (range.offset >= last.offset && range.offset <= last_end) {
        last.bytes = std::max(last_end, range.offset + range.bytes) - last.offset;
        return;
      }
    }
    if (touched_.size() == compact_at_) {
      normalize(touched_);
      compact_at_ = std::max(kCompactFrom, 2 * touched_.size());
    }
    touched_.push_back(range);
  }

  Status collect(std::vector<Range>& ranges) override {
    const Spin hold(busy_);
    ranges.insert(ranges.end(), touched_.begin(), touched_.end());
    touched_.clear();
    compact_at_ = kCompactFrom;
    return kOk;
  }

  Status grow(std::uint64_t) override { return kOk; }
  [[nodiscard]] TrackerKind kind() const override { return TrackerKind::touched; }
  [[nodiscard]] std::string describe() const override { return "memlith_touch says what was stored; bytes"; }

 private:
  // Held for nanoseconds, by threads that are about to store; a mutex would cost more than the work.
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

  std::atomic<bool> busy_{false};
  std::vector<Range> touched_;             // under busy_
  std::size_t compact_at_ = kCompactFrom;  // under busy_
};

}  // namespace

std::unique_ptr<Tracker> attach_explicit_tracker() { return std::make_unique<ExplicitTracker>(); }

}  // namespace memlith::core
