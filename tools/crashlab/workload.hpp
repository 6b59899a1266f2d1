// The workloads. To add one: write a row of the table in workloads.cpp.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/random.hpp"
#include "run.hpp"

namespace memlith::lab {

struct Workload {
  std::string_view name;
  std::string_view sentence;
  core::StoreOptions (*options)();
  // What it does, by seed; the same seed gives the same steps.
  std::vector<Step> (*steps)(core::Random& random);
  bool threaded = false;           // as the machine schedules: cannot be replayed exactly
  bool every_seed_differs = true;  // else one seed is enough
  bool with_call_faults = true;    // also run with calls that fail
  bool lives_often = false;        // what it is about shows in second lives
  // What is on the disk before, and what of it a user sees.
  core::SimImage (*start)() = nullptr;
  Content (*before)() = nullptr;
};

// A store small enough that its crash states can be enumerated.
core::StoreOptions small_store();

std::span<const Workload> workloads();
const Workload* find_workload(std::string_view name);

}  // namespace memlith::lab
