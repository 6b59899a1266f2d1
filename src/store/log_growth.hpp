// When a log grows. Floor: store.
//
// A checkpoint writes a page home once, however often it changed, and commits beside it find the device busy: the more the log
// holds between two of them, the less they cost. But what it holds is what recovery reads, and growth itself has to be written,
// as zeros. So a log begins small, and one that commits fill within a minute grows: at once to a size that is given to it, which
// costs no more than making it as large at first, and from there, up to a bound, by as much as checkpoints have written home: what that
// growth costs is at most what not growing has cost so far (ski rental). PostgreSQL weighs the same with
// checkpoint_timeout and max_wal_size, which have to be set.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace memlith::core {

struct LogLoad {
  std::uint64_t slots = 0;
  std::uint64_t slots_max = 0;
  std::uint64_t slot_bytes = 0;
  double filled = 0;                 // the part of the log that commits filled
  std::chrono::nanoseconds took{0};  // in this time
  std::uint64_t home_bytes = 0;      // written by checkpoints
  std::uint64_t given_bytes = 0;     // what the log may have without having earned it
  std::uint64_t grown_bytes = 0;     // written by growth beyond that
  std::uint64_t free_bytes = 0;      // on the volume
};

inline constexpr std::chrono::seconds kLogLastsAtLeast{60};

inline std::uint64_t slots_to_add(const LogLoad& load) {
  const bool lasts = std::chrono::duration<double>(load.took) >= load.filled * kLogLastsAtLeast;
  if (lasts || load.slots >= load.slots_max) return 0;
  const std::uint64_t earned = (load.home_bytes - std::min(load.grown_bytes, load.home_bytes)) / load.slot_bytes;
  const std::uint64_t given_slots = load.given_bytes / load.slot_bytes;
  const std::uint64_t given = given_slots - std::min(given_slots, load.slots);
  const std::uint64_t spare = load.free_bytes / 4 / load.slot_bytes;  // most of it is left to others
  return std::min({load.slots, load.slots_max - load.slots, std::max(earned, given), spare});
}

}  // namespace memlith::core
