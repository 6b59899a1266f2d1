// A crash, told so exactly that it can be done again: one line of text.
//
//   WORKLOAD seed=N [steps=0,1,4] [fault=KIND:NTH] [mutant=NAME] cut=AT:FATES[/AT:FATES][>AT:FATES]...
//
// AT counts the operations done on the disk. FATES has a letter for each unflushed item, with a count if it repeats:
// k kept, l lost, g garbage, e@OFFSET written elsewhere, b@OFFSET written at both places. After a "/" follows a crash
// of the recovery; after a ">" one of the program that went on and did again what was interrupted, after a "+" with
// other bytes. "x" for the fates: the program was killed there, with the power on; the "/" behind it is a power cut in
// the recovery. "^FILE@AT" says that a copy of the file, taken after operation AT, has replaced the file.
// "~FILE@OFFSET.BIT" is a bit that flipped at rest, "!N" one that flipped in the N-th read of the recovery.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fault.hpp"
#include "sim/sim.hpp"

namespace memlith::lab {

struct Cut {
  char link = ' ';  // ' ' the first, '/', '>' or '+'
  std::size_t at = 0;
  std::vector<core::SimChoice> choices;
  std::string rotten_file;
  std::uint64_t rotten_offset = 0;
  std::uint8_t rotten_bit = 0;
  std::optional<std::uint64_t> flipped_read;
  std::string older_file;
  std::size_t older_at = 0;
  bool killed = false;
};
using Cuts = std::vector<Cut>;

struct Case {
  std::string workload;
  std::uint64_t seed = 1;
  std::vector<std::size_t> steps;  // those done; empty: all
  std::optional<Fault> fault;      // a call that fails
  std::uint64_t nth = 0;
  std::string mutant;
  Cuts cuts;  // none: the run itself broke a promise
};

std::string format_case(const Case& the_case);
// Nothing, and why, if the line is none.
std::optional<Case> parse_case(const std::string& line, std::string& why);

// The seed of garbage: the same everywhere, so that a line says everything.
inline constexpr std::uint64_t kGarbageSeed = 0x6761726261676521;

// Flips the rotten bit, if the cut has one. False if the image has no such byte.
bool let_rot(core::SimImage& image, const Cut& cut);

// Puts the older copy of a file into the image, if the cut has one. False if there is no such copy, or if the copy is
// what the image has.
bool put_older_file(core::SimImage& image, const core::SimTrace& trace, const Cut& cut);

}  // namespace memlith::lab
