// Kills the builder at random moments, starts it again, and checks that nothing acknowledged was lost.
//
// A life is one process, `memlith-demo build`, that reports through a pipe (report.hpp). Each life gets a place in the
// text behind which it is killed, so that the kills spread over the whole build however fast the machine is, and a
// random delay from there, so that they strike anywhere in the cycle of indexing and persisting. A third is aimed at
// the inside of a persist, and some lives are killed while they are still opening the store. Only kills of a builder
// at work count.
//
// After each kill the next life must come back with the last acknowledged commit or the one that was under way, and
// with exactly the text that this commit held.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common.hpp"
#include "display.hpp"

namespace demo {

struct SuperviseOptions {
  std::string folder;
  std::uint64_t text_bytes = 0;
  std::uint32_t kills = 0;
  std::uint64_t seed = 0;
  std::uint64_t batch_bytes = 0;  // of text between two persists; less where the text is short
};

struct Outcome {
  std::uint64_t commits = 0;                // in the finished index
  std::uint32_t kills_indexing = 0;         // struck between two persists,
  std::uint32_t kills_persisting = 0;       // inside one,
  std::uint32_t kills_opening = 0;          // while opening, or closing, the store
  std::uint64_t building_ns = 0;            // of all lives, without opening
  std::vector<std::uint64_t> persist_ns;    // of each persist acknowledged, in all lives
  std::vector<std::uint64_t> cycle_ns;      // the same with the indexing before it
  std::vector<std::uint64_t> logged_bytes;  // the same persists' bytes in the log,
  std::vector<std::uint64_t> pages;         // the pages in which they lie,
  std::vector<std::uint64_t> text_bytes;    // and the text indexed for each
  [[nodiscard]] std::uint32_t kills_at_work() const { return kills_indexing + kills_persisting; }
};

// Returns when the index is complete. An error if anything came back wrong, or the builder failed by itself. A machine
// may finish the text before all kills were made; that is no error.
Result<Outcome> supervise(const SuperviseOptions& options);

}  // namespace demo
