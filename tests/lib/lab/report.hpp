// `memlith-crashlab run`: explores, adds up, reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "explorer.hpp"

namespace memlith::lab {

struct RunOptions {
  std::vector<const Workload*> workloads;
  bool all_workloads = true;
  std::uint64_t states = 0;  // distinct ones, at least; 0 = one round over the workloads
  std::uint64_t seed = 1;
  bool exhaustive = false;
  bool quick = false;
  bool is_short = false;  // a third of the crash points
  FaultSet faults = FaultSet::all();
  bool faults_named = false;
  std::string mutant;
  double minutes = 0;  // continue for this long
  bool json = false;
  std::string plot;
  std::size_t jobs = 0;
  bool quiet = false;
};

// 0 when nothing was wrong: no violation, no fault that was planned and never struck.
int run_command(const RunOptions& options);

Budget budget_of(const RunOptions& options);

}  // namespace memlith::lab
