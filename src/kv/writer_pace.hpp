// Slows commits down while the log cannot keep up. Floor: kv.
//
// Pieces that weak commits leave for the log wait in memory. Without a pace, commits would run at full speed until that
// memory is used up, and then stop until the disk or a checkpoint is done. With it, each of them rests a little, the
// longer the more waits already: the rate of commits goes down to what the log takes, and a pause of the log is spread
// over many commits.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/units.hpp"

namespace memlith::core::kv {

inline constexpr std::uint64_t kWaitingBytesMax = 16 * kMiB;  // from here on commits wait for the log

// One thread at a time: the writer.
class WriterPace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::uint64_t kFreeBytes = 4 * kMiB;  // up to here no commit rests
  // At the middle between the two limits, commits may leave 20 MB/s.
  static constexpr double kMiddleNsPerByte = 50;
  // A shorter rest is not worth a sleep, which takes at least as long; it is added to the next.
  static constexpr std::chrono::microseconds kRestMin{50};
  // Above it, a commit would be noticed more than a log that is full.
  static constexpr std::chrono::milliseconds kRestMax{10};

  // A commit has left `bytes`, and `waiting` bytes wait by now: when the next one may come.
  Time after(std::uint64_t bytes, std::uint64_t waiting, Time now) {
    if (waiting <= kFreeBytes) return now;
    const auto above = static_cast<double>(waiting - kFreeBytes);
    const auto left = static_cast<double>(kWaitingBytesMax - std::min(waiting, kWaitingBytesMax - 1));
    const double ns = static_cast<double>(bytes) * kMiddleNsPerByte * above / left;
    const auto rest = std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(ns, 1e12)));
    // All threads together keep the pace, so the rests follow each other.
    due_ = std::min(std::max(due_, now) + rest, now + std::chrono::nanoseconds(kRestMax));
    return due_;
  }

 private:
  Time due_;
};

}  // namespace memlith::core::kv
