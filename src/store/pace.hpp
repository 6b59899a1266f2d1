// How fast a checkpoint writes home. Floor: store.
//
// A commit's flush waits for everything that the device holds, so a checkpoint in a hurry slows every commit beside it.
// A checkpoint that has time writes home in small steps with pauses, paced to the rate at which the log fills. The idea
// is PostgreSQL's spread checkpoints; only the fill of the log matters here, because a late checkpoint makes commits
// wait for room.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/units.hpp"

namespace memlith::core {

class CheckpointPace {
 public:
  static constexpr std::uint64_t kStepBytes = 256 * kKiB;          // bytes of home from one flush to the next
  static constexpr std::chrono::nanoseconds kPauseMax{8'000'000};  // home gets 32 MB/s even while there are no commits

  // For a checkpoint that begins when the log has `room_bytes` left and should end when three quarters of them are
  // used.
  explicit CheckpointPace(std::uint64_t room_bytes) : room_bytes_(static_cast<double>(room_bytes) * 0.75) {}

  // `done`: the finished part of the work, 0 to 1. `filled_bytes`: how much of the room commits have used meanwhile.
  void move(double done, std::uint64_t filled_bytes) {
    done_ = done;
    filled_ = room_bytes_ > 0 ? static_cast<double>(filled_bytes) / room_bytes_ : 1;
  }

  // The number of bytes of home until the next flush: more, the further the work lags behind the log.
  [[nodiscard]] std::uint64_t step_bytes(std::uint64_t max) const {
    const double behind = std::clamp(filled_ - done_, 0.0, 1.0);
    return std::min(max, kStepBytes + static_cast<std::uint64_t>(behind * static_cast<double>(8 * max)));
  }

  // The time until the log, at its average rate so far, has caught up with the work.
  [[nodiscard]] std::chrono::nanoseconds pause(std::chrono::nanoseconds since_begin) const {
    if (filled_ >= done_) return std::chrono::nanoseconds{0};
    const double ratio = filled_ > 0 ? (done_ - filled_) / filled_ : 1e9;
    const double ns =
        std::min(static_cast<double>(since_begin.count()) * ratio, static_cast<double>(kPauseMax.count()));
    return std::chrono::nanoseconds{static_cast<std::int64_t>(ns)};
  }

 private:
  double room_bytes_;
  double done_ = 0;
  double filled_ = 0;
};

// Tells when a store has nothing to do, so that a checkpoint takes nothing from commits. Asked now and then, it looks
// twice within some milliseconds: the store is idle if no commit came in between and none is under way. A busy store
// pays for the looks only.
class IdleWatch {
 public:
  static constexpr std::chrono::milliseconds kLookAgain{20};
  static constexpr std::uint64_t kBytesMin = 1 * kMiB;  // a few hundred pages

  enum class Next : std::uint8_t { nothing, look_again, begin };

  // How much has to wait in a log of this size. Fewer bytes would write pages home more often that change often.
  static constexpr std::uint64_t bytes_min(std::uint64_t capacity_bytes) {
    return std::min(capacity_bytes / 4, std::max(kBytesMin, capacity_bytes / 64));
  }

  // `newest`: the end of the newest commit; `waiting_bytes`: the log has so much that is not home.
  Next look(Lsn newest, Lsn durable, std::uint64_t waiting_bytes, std::uint64_t capacity_bytes) {
    const bool again = std::exchange(looks_again_, false);
    const Lsn before = std::exchange(newest_, newest);
    if (waiting_bytes < bytes_min(capacity_bytes)) return Next::nothing;
    if (again) return before == newest && durable >= newest ? Next::begin : Next::nothing;
    looks_again_ = true;
    return Next::look_again;
  }

 private:
  bool looks_again_ = false;
  Lsn newest_;
};

}  // namespace memlith::core
