// The two ways of measuring sides against each other, so that whatever else the machine does strikes all of them.
//
// One thread: strictly in turn, one round of each side. Several threads: in phases, since rounds of several threads
// cannot take turns one by one; a barrier starts and ends each phase, so the threads of one side never run beside
// those of another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cli/failure.hpp"
#include "random.hpp"

namespace memlith::tool {

// One of the things compared. `round` does one round as thread number `thread` and says how long it took.
struct Side {
  std::function<MaybeFailure(std::size_t thread, std::uint64_t& elapsed_ns)> round;
  std::vector<std::uint64_t> samples_ns;
  std::uint64_t wall_ns = 0;  // one thread: the sum of the samples; several: of the phases, start to last end

  [[nodiscard]] double rounds_per_second() const;
  void clear();
};

inline constexpr std::uint64_t kTurnsMin = 300;  // or a 99.9th percentile means nothing at all
inline constexpr std::uint64_t kWarmUpTurns = 20;

// Ends when both are reached: this many rounds of each side, and this much time.
struct TurnLimits {
  std::uint64_t rounds_min = 0;
  std::uint64_t duration_ns_min = 0;
  std::uint64_t rounds_of_turn = 1;  // of a side, one after the other; never more than rounds_min in all
  Random* order_of_sides = nullptr;  // draws another order for each turn
};
[[nodiscard]] MaybeFailure measure_in_turns(std::span<Side> sides, const TurnLimits& limits);

// The median of a side's samples, each over the sample of `base` in the same turn. Both were measured in turns of one
// round.
[[nodiscard]] double ratio_per_turn(const Side& side, const Side& base);

struct PhaseLimits {
  std::size_t threads = 1;
  std::uint64_t alternations = 1;
  std::uint64_t phase_ns = 0;
};
[[nodiscard]] MaybeFailure measure_in_phases(std::span<Side> sides, const PhaseLimits& limits);

}  // namespace memlith::tool
