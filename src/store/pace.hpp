// How fast a checkpoint writes home. Floor: store.
//
// A commit's flush waits for all that the device holds, so a checkpoint in a hurry is felt by every commit beside it. One that has
// time hands home to the device in small steps, with pauses, and no sooner than the filling of the log asks for: the idea
// of PostgreSQL's spread checkpoints, held against the log's fill alone, which is what a late checkpoint would make wait.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/units.hpp"

namespace memlith::core {

class CheckpointPace {
 public:
  static constexpr std::uint64_t kStepBytes = 256 * kKiB;          // of home, from one flush to the next
  static constexpr std::chrono::nanoseconds kPauseMax{8'000'000};  // home gets 32 MB/s even while nobody commits

  // Of a checkpoint that begins when the log has so much room left and ought to be over when three quarters of it are used.
  explicit CheckpointPace(std::uint64_t room_bytes) : room_bytes_(static_cast<double>(room_bytes) * 0.75) {}

  // `done`: the part of the work that is behind, 0 to 1. `filled_bytes`: what commits took of the room meanwhile.
  void move(double done, std::uint64_t filled_bytes) {
    done_ = done;
    filled_ = room_bytes_ > 0 ? static_cast<double>(filled_bytes) / room_bytes_ : 1;
  }

  // After so much of home comes the next flush: more, the further the work is behind the log.
  [[nodiscard]] std::uint64_t step_bytes(std::uint64_t max) const {
    const double behind = std::clamp(filled_ - done_, 0.0, 1.0);
    return std::min(max, kStepBytes + static_cast<std::uint64_t>(behind * static_cast<double>(8 * max)));
  }

  // Until the log, at the rate it has filled since the beginning, has caught up with the work.
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

}  // namespace memlith::core
