#include "unit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "mutants/mutants.hpp"

namespace memlith::lab {

using namespace core;
using nlohmann::json;

namespace {
const Explorer* g_current = nullptr;
std::string (*g_teller)() = nullptr;

struct Current {
  explicit Current(const Explorer& explorer) { g_current = &explorer; }
  ~Current() { g_current = nullptr; }
};
}  // namespace

void set_identity(std::uint64_t identity) { given_identity = identity; }

void set_position_teller(std::string (*teller)()) { g_teller = teller; }

std::string current_position() {
  if (g_teller != nullptr) return g_teller();
  return g_current != nullptr ? format_case(g_current->position()) : "";
}

bool set_mutant(const std::string& name) {
  active_mutant = Mutant::none;
  if (name.empty()) return true;
#define MEMLITH_MUTANT_CASE(each, floor, what) \
  if (name == #each) active_mutant = Mutant::each;
  MEMLITH_MUTANT_LIST(MEMLITH_MUTANT_CASE)
#undef MEMLITH_MUTANT_CASE
  return active_mutant != Mutant::none;
}

void work(const Case& the_case, FaultSet faults, const Budget& budget, Tally& tally) {
  Explorer explorer(*find_workload(the_case.workload), the_case, faults, budget, tally);
  const Current current(explorer);
  explorer.work();
}

void work(const Unit& unit, FaultSet faults, const Budget& budget, std::uint64_t calls_each, const std::string& mutant,
          Tally& tally) {
  Case base;
  base.workload = unit.workload->name;
  base.seed = unit.seed;
  base.steps = unit.steps;
  base.mutant = mutant;
  if (!unit.call_faults) {
    work(base, faults, budget, tally);
    return;
  }
  // Once without a fault, to see how many chances each kind has.
  Tally unused;
  Explorer plain(*unit.workload, base, faults, budget, unused);
  std::unique_ptr<Run> run;
  {
    const Current current(plain);
    run = plain.run_workload();
  }
  if (!run->broken().empty()) return;  // the unit without faults tells
  std::array<std::uint64_t, SimFaults::kKinds> chances{};
  for (std::size_t kind = 0; kind < SimFaults::kKinds; ++kind) {
    chances[kind] = run->volume.faults().seen(static_cast<SimFaults::Kind>(kind));
  }
  run = nullptr;
  Budget light = budget;
  light.exhaustive_items = std::min<std::size_t>(budget.exhaustive_items, 3);
  light.samples = std::min<std::size_t>(budget.samples, 3);
  light.special = std::min<std::size_t>(budget.special, 1);
  light.recovery_every = 4 * budget.recovery_every;
  if (budget.point_every > 1) light.point_every = 4 * budget.point_every;
  Random random(unit.seed);
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    if (!is_call_fault(fault) || !faults.has(fault)) continue;
    const std::uint64_t count = chances[static_cast<std::size_t>(kind_of(fault))];
    std::set<std::uint64_t> places;
    while (places.size() < std::min(count, calls_each)) {
      places.insert(count <= calls_each ? places.size() : random.below(count));
    }
    for (const std::uint64_t nth : places) {
      if (tally.violations.size() >= budget.violations_max || tally.states >= budget.states_max) return;
      Case with = base;
      with.fault = fault;
      with.nth = nth;
      work(with, faults, light, tally);
    }
  }
}

std::string text_of_medium(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

json to_json(const Tally& tally) {
  json result{{"crash_points", tally.crash_points},
              {"states", tally.states},
              {"recoveries", tally.recoveries},
              {"runs", tally.runs},
              {"lives", tally.lives}};
  for (const FaultCount& count : tally.faults) {
    result["faults"].push_back({count.planned, count.fired, count.harmless, count.detected, count.untellable});
  }
  for (const OperationCount& count : tally.operations) {
    result["operations"].push_back({count.crash_points, count.states, count.distinct});
  }
  result["violations"] = json::array();
  for (const Violation& violation : tally.violations) {
    result["violations"].push_back({{"what", violation.what},
                                    {"replay", format_case(violation.replay)},
                                    {"medium", text_of_medium(violation.medium)}});
  }
  return result;
}

}  // namespace memlith::lab
