// Slows commits down while another thread releases memory, and not a moment longer. Floor: region.
//
// A release brings home what the copies have, which takes as long as the disk needs. Commits go on meanwhile, and copy
// pages. Without a pace, the copies would be too many long before the release has ended, and a commit would have to
// wait for all of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/sync.hpp"
#include "base/units.hpp"

namespace memlith::core {

// Threads: any.
class ReleasePace {
 public:
  using Time = SteadyClock::time_point;
  using Rest = std::chrono::nanoseconds;
  // Rests that are shorter are added up: so one commit in some hundred rests, and not all of them.
  static constexpr std::chrono::milliseconds kRestMin{20};
  // The longest rest of a commit that has copied no more than kSmallBytes; longer in proportion.
  static constexpr std::chrono::milliseconds kRestMax{25};
  static constexpr std::uint64_t kSmallBytes = 64 * kKiB;
  // At the middle between seven eighths of what copies may have and all of it, commits may copy 20 MB/s.
  static constexpr double kMiddleNsPerByte = 50;
  // From this number of copied bytes on, a commit waits for its turn, however long that takes.
  static constexpr std::uint64_t too_many(std::uint64_t bytes_max) { return bytes_max / 4 * 5; }

  // A release begins. What was copied since the last one is no commit's own.
  void begin(std::uint64_t copied_bytes) {
    const LockGuard lock(mutex_);
    seen_ = copied_bytes;
    due_ = {};
    under_way_ = true;
  }
  // The release has ended, and with it all rests.
  void end() {
    {
      const LockGuard lock(mutex_);
      under_way_ = false;
    }
    ended_.notify_all();
  }

  // A commit has ended: of `bytes_max`, so much is copied by now. Returns how long it rests.
  Rest after(std::uint64_t copied_bytes, std::uint64_t bytes_max, Time now) {
    const LockGuard lock(mutex_);
    const std::uint64_t free_bytes = bytes_max / 8 * 7;
    const std::uint64_t more = copied_bytes - std::min(copied_bytes, seen_);
    seen_ = copied_bytes;
    if (copied_bytes <= free_bytes) return Rest{0};
    const Rest most = kRestMax * static_cast<std::int64_t>(std::max<std::uint64_t>(1, more / kSmallBytes));
    Rest own = most;
    if (copied_bytes < bytes_max) {
      const auto ratio = static_cast<double>(copied_bytes - free_bytes) / static_cast<double>(bytes_max - copied_bytes);
      const double ns = std::min(static_cast<double>(more) * kMiddleNsPerByte * ratio, 1e9);
      own = std::min(most, Rest(static_cast<std::int64_t>(ns)));
    }
    due_ = std::max(due_, now) + own;
    if (copied_bytes < too_many(bytes_max)) due_ = std::min(due_, now + most);
    return due_ - now >= kRestMin ? due_ - now : Rest{0};
  }
  // Takes the rest, or what of it the release lasts.
  void take(Rest rest) {
    const LockGuard lock(mutex_);
    (void)ended_.wait_for(mutex_, rest, [this]() MEMLITH_REQUIRES(mutex_) { return !under_way_; });
  }

 private:
  Mutex mutex_;
  ConditionVariable ended_;
  bool under_way_ MEMLITH_GUARDED_BY(mutex_) = false;
  std::uint64_t seen_ MEMLITH_GUARDED_BY(mutex_) = 0;
  Time due_ MEMLITH_GUARDED_BY(mutex_);
};

}  // namespace memlith::core
