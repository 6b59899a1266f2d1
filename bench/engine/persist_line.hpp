// One line of `memlith bench persist`: one tracker and one number of pages, measured against the raw device.
//
// Three measurements make a line. The raw rounds alone, before there is a store. Then memlith and raw interleaved,
// which is the comparison. Both raw numbers are shown, since memlith's checkpoint works in the background: what it
// writes home during a raw round slows that round, and the interleaved ratio alone would flatter memlith.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/failure.hpp"
#include "commands.hpp"
#include "kit/raw_device.hpp"
#include "kit/scratch.hpp"
#include "kit/stats.hpp"
#include "kit/workload.hpp"

namespace memlith::tool {

struct SideResult {
  Percentiles latency;
  double commits_per_s = 0;  // one thread: of the timed parts; several: of the phases' wall time, stores and all
};

struct PersistLine {
  RoundShape shape;
  SideResult memlith;
  SideResult raw;
  SideResult raw_alone;
  std::uint64_t rounds = 0;        // persists measured, by all threads together
  std::uint64_t alternations = 0;  // of phases; 0 with one thread
  std::uint64_t raw_bytes = 0;     // of a raw round
  double bytes_logged = 0;         // written to memlith's log for a persist, in whole sectors of 512 bytes, on average
  std::uint64_t checkpoints = 0;   // of the measured persists, the last one behind the measurement,
  std::uint64_t home_bytes = 0;    // and what they wrote
  std::uint64_t checkpoints_beside = 0;  // those that ran, or began, while it was measured
  bool direct_io = false;
  bool raw_direct_io = false;
  std::string tracker_detail;

  // Bytes logged over bytes changed.
  [[nodiscard]] double write_amplification() const;
  // Bytes written home over bytes changed: below 1 where what was changed twice went home once.
  [[nodiscard]] double home_share() const;
};

// `writers` has one a thread. The store is made in the scratch folder and removed again.
Result<PersistLine> measure_persist_line(const BenchPersistArguments& arguments, const RoundShape& shape,
                                         const ScratchFolder& scratch, std::vector<RawWriter>& writers);

}  // namespace memlith::tool
