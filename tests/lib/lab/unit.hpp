// A piece of work that one child process does: a workload with a seed, and the calls that fail in it one after another.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "explorer.hpp"

namespace memlith::lab {

struct Unit {
  const Workload* workload = nullptr;
  std::uint64_t seed = 1;
  bool call_faults = false;
  std::vector<std::size_t> steps;  // empty: all
};

// Does it. `calls_each` is how often each kind of failing call is tried, ~0 for at every chance.
void work(const Unit& unit, FaultSet faults, const Budget& budget, std::uint64_t calls_each, const std::string& mutant,
          Tally& tally);

// The case's steps, with its failing call if it has one; whatever its cuts are, all are tried.
void work(const Case& the_case, FaultSet faults, const Budget& budget, Tally& tally);

// Switches a mutant on; false if there is none of this name. An empty name switches it off.
bool set_mutant(const std::string& name);

nlohmann::json to_json(const Tally& tally);
std::string text_of_medium(std::uint64_t hash);

// Where the exploring of this process is right now, as a line that replays it. For signal handlers: not safe, but the
// process is lost by then.
std::string current_position();
// Sets another reporter than the explorer; null: the explorer again.
void set_position_teller(std::string (*teller)());

}  // namespace memlith::lab
