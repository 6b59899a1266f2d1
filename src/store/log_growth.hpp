// When a log grows. Floor: store.
//
// A checkpoint writes a page home once, however often it changed, and commits beside it find the device busy: the more
// the log holds between two checkpoints, the less they cost. But recovery has to read what the log holds, and growth
// writes zeros. So a log starts small, and a log that commits fill within a minute grows: at once to the size that
// would last a minute, up to a given size, which costs no more than creating it with that size; and from there, up to a
// limit, by as much as checkpoints have written home, at most to the double. That growth then costs at most what not
// growing has cost so far (ski rental). PostgreSQL balances the same with checkpoint_timeout and max_wal_size, which
// have to be set.
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
  std::uint64_t given_bytes = 0;     // the size to which the log may grow at once
  std::uint64_t grown_bytes = 0;     // written by growth beyond that
  std::uint64_t free_bytes = 0;      // on the volume
};

inline constexpr std::chrono::seconds kLogLastsAtLeast{60};

inline std::uint64_t slots_to_add(const LogLoad& load) {
  const bool lasts = std::chrono::duration<double>(load.took) >= load.filled * kLogLastsAtLeast;
  if (lasts || load.slots >= load.slots_max) return 0;
  const std::uint64_t earned = (load.home_bytes - std::min(load.grown_bytes, load.home_bytes)) / load.slot_bytes;
  const std::uint64_t given_slots = load.given_bytes / load.slot_bytes;
  const double lasting = static_cast<double>(load.slots) * load.filled * kLogLastsAtLeast /
                         std::max(std::chrono::duration<double>(load.took), std::chrono::duration<double>(1e-3));
  const auto lasting_slots = static_cast<std::uint64_t>(std::min(lasting, 1e15)) + 1;
  const std::uint64_t given = std::min(given_slots, lasting_slots) - std::min({given_slots, lasting_slots, load.slots});
  const std::uint64_t spare = load.free_bytes / 4 / load.slot_bytes;  // the log takes only a part of it
  return std::min({std::max(load.slots, given), load.slots_max - load.slots, std::max(earned, given), spare});
}

}  // namespace memlith::core
