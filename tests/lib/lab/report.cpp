#include "report.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "pool.hpp"
#include "replay.hpp"
#include "unit.hpp"

namespace memlith::lab {

using namespace core;
using nlohmann::json;

namespace {

// Hashes of states, for hundreds of millions of them: eight bytes each, open addressing, at most half full.
class HashSet {
 public:
  bool insert(std::uint64_t hash) {
    if (hash == 0) hash = 1;
    if (2 * (size_ + 1) > places_.size()) grow();
    std::uint64_t& place = find(hash);
    if (place == hash) return false;
    place = hash;
    ++size_;
    return true;
  }
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  std::uint64_t& find(std::uint64_t hash) {
    std::size_t at = hash & (places_.size() - 1);
    while (places_[at] != 0 && places_[at] != hash) at = (at + 1) & (places_.size() - 1);
    return places_[at];
  }
  void grow() {
    std::vector<std::uint64_t> old(std::max<std::size_t>(1 << 16, 2 * places_.size()), 0);
    std::swap(old, places_);
    for (const std::uint64_t hash : old) {
      if (hash != 0) find(hash) = hash;
    }
  }
  std::vector<std::uint64_t> places_;
  std::uint64_t size_ = 0;
};

struct Sum {
  std::uint64_t states = 0;
  std::uint64_t recoveries = 0;
  std::uint64_t crash_points = 0;
  std::uint64_t runs = 0;
  std::uint64_t lives = 0;
  FaultTable faults{};
  OperationCount operations[kSimOpCount + 1]{};
  json violations = json::array();
  struct Row {
    std::uint64_t runs = 0;
    std::uint64_t states = 0;
    std::uint64_t distinct = 0;
    double seconds = 0;
  };
  std::map<std::string, Row> workloads;
  std::map<std::string, std::uint64_t> about;  // distinct states by what the workload is about
  HashSet distinct;
  std::vector<std::pair<double, std::uint64_t>> progress;  // seconds, distinct states
};

void add(Sum& sum, const std::string& workload, const std::string& about, const Answer& answer,
         const std::string& unit_line) {
  Sum::Row& row = sum.workloads[workload];
  row.seconds += answer.seconds;
  if (!answer.died.empty()) {
    std::string said = answer.said;
    while (!said.empty() && said.back() == '\n') said.pop_back();
    sum.violations.push_back({{"what", fmt::format("the process {}{}{}", answer.died, said.empty() ? "" : ": ", said)},
                              {"replay", answer.position.empty() ? unit_line : answer.position}});
    return;
  }
  const json& report = answer.report;
  sum.states += report["states"].get<std::uint64_t>();
  sum.recoveries += report["recoveries"].get<std::uint64_t>();
  sum.crash_points += report["crash_points"].get<std::uint64_t>();
  sum.runs += report["runs"].get<std::uint64_t>();
  sum.lives += report["lives"].get<std::uint64_t>();
  for (std::size_t i = 0; i < kFaults; ++i) {
    const json& from = report["faults"][i];
    FaultCount& to = sum.faults[i];
    to.planned += from[0].get<std::uint64_t>();
    to.fired += from[1].get<std::uint64_t>();
    to.harmless += from[2].get<std::uint64_t>();
    to.detected += from[3].get<std::uint64_t>();
    to.untellable += from[4].get<std::uint64_t>();
  }
  for (std::size_t i = 0; i <= kSimOpCount; ++i) {
    const json& from = report["operations"][i];
    sum.operations[i].crash_points += from[0].get<std::uint64_t>();
    sum.operations[i].states += from[1].get<std::uint64_t>();
    sum.operations[i].distinct += from[2].get<std::uint64_t>();
  }
  for (const json& violation : report["violations"]) sum.violations.push_back(violation);
  row.runs += report["runs"].get<std::uint64_t>();
  row.states += report["states"].get<std::uint64_t>();
  for (const std::uint64_t hash : answer.hashes) {
    if (!sum.distinct.insert(hash)) continue;
    ++row.distinct;
    if (!about.empty()) ++sum.about[about];
  }
}

json full_report(const Sum& sum, const RunOptions& options, double seconds, std::vector<std::string>& silent) {
  json result;
  std::uint64_t planned = 0;
  std::uint64_t fired = 0;
  json faults = json::object();
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    const FaultCount& count = sum.faults[i];
    if (!options.faults.has(fault)) continue;
    // Asked for by name, or with all workloads: then it has to strike.
    const bool required = options.faults_named || options.all_workloads;
    if (count.fired < count.planned || (required && count.fired == 0)) silent.emplace_back(name_of(fault));
    planned += std::max<std::uint64_t>(count.planned, required ? 1 : 0);
    fired += count.fired;
    json row{{"planned", count.planned}, {"fired", count.fired}};
    if (is_medium_lie(fault) || fault == Fault::read_flip) {
      row["harmless"] = count.harmless;
      row["detected"] = count.detected;
      row["last_commit_lost"] = count.untellable;
    }
    faults[std::string(name_of(fault))] = std::move(row);
  }
  json operations = json::object();
  for (std::size_t i = 0; i <= kSimOpCount; ++i) {
    const OperationCount& count = sum.operations[i];
    const std::string name = i < kSimOpCount ? std::string(name_of(static_cast<SimOp>(i))) : "of a recovery";
    operations[name] = {{"crash_points", count.crash_points}, {"states", count.states}, {"distinct", count.distinct}};
  }
  json by_workload = json::object();
  for (const auto& [name, row] : sum.workloads) {
    by_workload[name] = {
        {"runs", row.runs}, {"states", row.states}, {"distinct", row.distinct}, {"seconds", row.seconds}};
  }
  result["distinct_states"] = sum.distinct.size();
  result["distinct_states_about"] = sum.about;
  result["states"] = sum.states;
  result["recoveries"] = sum.recoveries;
  result["crash_points"] = sum.crash_points;
  result["runs"] = sum.runs;
  result["second_lives"] = sum.lives;
  result["violations"] = sum.violations.size();
  result["violation_list"] = sum.violations;
  result["faults_planned"] = planned;
  result["faults_fired"] = fired;
  result["silent_faults"] = silent;
  result["faults"] = std::move(faults);
  result["operations"] = std::move(operations);
  result["workloads"] = std::move(by_workload);
  result["progress"] = sum.progress;
  result["seed"] = options.seed;
  result["seconds"] = seconds;
  result["distinct_states_per_second"] = seconds > 0 ? static_cast<double>(sum.distinct.size()) / seconds : 0.0;
  return result;
}

void print(const json& report) {
  fmt::print("{:<20} {:>6} {:>12} {:>12} {:>9}\n", "workload", "runs", "states", "distinct", "seconds");
  for (const auto& [name, row] : report["workloads"].items()) {
    fmt::print("{:<20} {:>6} {:>12} {:>12} {:>9.1f}\n", name, row["runs"].get<std::uint64_t>(),
               row["states"].get<std::uint64_t>(), row["distinct"].get<std::uint64_t>(), row["seconds"].get<double>());
  }
  fmt::print("\n{:<20} {:>12} {:>12}\n", "fault", "planned", "fired");
  for (const auto& [name, row] : report["faults"].items()) {
    fmt::print("{:<20} {:>12} {:>12}", name, row["planned"].get<std::uint64_t>(), row["fired"].get<std::uint64_t>());
    if (row.contains("detected")) {
      fmt::print("   harmless {}, detected {}, last commit lost {}", row["harmless"].get<std::uint64_t>(),
                 row["detected"].get<std::uint64_t>(), row["last_commit_lost"].get<std::uint64_t>());
    }
    fmt::print("\n");
  }
  fmt::print("\n{:<20} {:>12} {:>12} {:>12}\n", "crash after", "crash points", "states", "distinct");
  for (const auto& [name, row] : report["operations"].items()) {
    fmt::print("{:<20} {:>12} {:>12} {:>12}\n", name, row["crash_points"].get<std::uint64_t>(),
               row["states"].get<std::uint64_t>(), row["distinct"].get<std::uint64_t>());
  }
  fmt::print("\n");
}

// An argument for the shell.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

bool plot(const json& report, const std::string& file) {
  const std::string data = file + ".json";
  std::ofstream(data) << report.dump();
  const std::string command = fmt::format("python3 {} {} {}", quoted(MEMLITH_PLOT_SCRIPT), quoted(data), quoted(file));
  const int status = std::system(command.c_str());
  std::remove(data.c_str());
  return status == 0;
}

}  // namespace

Budget budget_of(const RunOptions& options) {
  Budget budget;
  if (options.exhaustive) {
    budget.exhaustive_items = 13;
    budget.samples = 64;
    budget.special = 16;
    budget.recovery_every = 2;
    budget.look_every = 1;
    budget.deep_every = 8;
    budget.life_every = 20;
    budget.life_steps = 4;
  }
  if (options.quick) {
    budget.exhaustive_items = 3;
    budget.samples = 3;
    budget.special = 2;
    budget.recovery_every = 40;
    budget.deep_every = 20;
    budget.life_every = 200;
    budget.point_every = 4;
  }
  if (options.is_short) budget.point_every = std::max<std::uint64_t>(budget.point_every, 3);
  return budget;
}

int run_command(const RunOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  const auto seconds = [began] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  const Budget budget = budget_of(options);
  Sum sum;
  std::vector<Unit> units;  // in the order in which they are handed out
  std::size_t answered = 0;
  std::size_t first_round = 0;
  std::uint64_t rounds = 0;
  const auto plan_round = [&] {
    for (const Workload* workload : options.workloads) {
      if (rounds > 0 && !workload->how.every_seed_differs) continue;
      units.push_back({workload, options.seed + rounds, false, {}});
      // Failing calls in every fourth round: they find less that is new.
      if (workload->how.with_call_faults && rounds % 4 == 0)
        units.push_back({workload, options.seed + rounds, true, {}});
    }
    ++rounds;
    if (rounds == 1) first_round = units.size();
  };
  plan_round();
  std::size_t next_unit = 0;
  const bool endless = options.states > 0 || options.minutes > 0;
  const std::size_t jobs = options.jobs != 0 ? options.jobs : std::max(1u, std::thread::hardware_concurrency());
  double told = 0;
  run_jobs(
      jobs,
      [&]() -> std::optional<Job> {
        if (next_unit == units.size()) {
          if (!endless) return std::nullopt;
          const std::size_t before = units.size();
          plan_round();
          if (units.size() == before) return std::nullopt;
        }
        const Unit unit = units[next_unit++];
        Job job;
        // Longer than any takes that does not hang, with a sanitizer and on a busy machine too.
        job.seconds_max = options.exhaustive ? 3600 : 900;
        job.act = [unit, &options, budget](json& report, std::vector<std::uint64_t>& hashes) {
          if (!set_mutant(options.mutant)) return;
          Tally tally;
          work(unit, options.faults, budget, options.exhaustive ? ~0ull : options.quick ? 1 : 2, options.mutant, tally);
          report = to_json(tally);
          hashes.assign(tally.distinct.begin(), tally.distinct.end());
        };
        return job;
      },
      [&](const Answer& answer) {
        const Unit& unit = units[answered++];
        const std::string name(unit.workload->name);
        Case line;
        line.workload = name;
        line.seed = unit.seed;
        line.mutant = options.mutant;
        add(sum, name, std::string(unit.workload->how.about), answer, format_case(line));
        sum.progress.emplace_back(seconds(), sum.distinct.size());
        if (!options.quiet && seconds() - told > 10) {
          told = seconds();
          fmt::print(stderr, "{:.0f} s: {} distinct crash states, {} violations\n", told, sum.distinct.size(),
                     sum.violations.size());
        }
        if (sum.violations.size() >= 10) return false;
        if (answered < first_round) return true;
        if (options.minutes > 0 && seconds() < options.minutes * 60) return true;
        return options.minutes == 0 && (options.states == 0 || sum.distinct.size() < options.states);
      });

  std::vector<std::string> silent;
  for (json& violation : sum.violations) {
    violation["replays"] = replays(violation["replay"], violation.value("medium", ""));
  }
  const json report = full_report(sum, options, seconds(), silent);
  if (!options.json) print(report);
  // Faults go to standard error, so that standard output has one JSON object and nothing else.
  for (const json& violation : sum.violations) {
    fmt::print(stderr, "VIOLATION: {}\n  memlith-crashlab replay '{}'{}\n", violation["what"].get<std::string>(),
               violation["replay"].get<std::string>(),
               violation["replays"].get<bool>()
                   ? ""
                   : "\n  but this line DOES NOT REPLAY it; that is a fault of the laboratory");
  }
  for (const std::string& fault : silent) fmt::print(stderr, "SILENT: {} was planned and did not strike\n", fault);
  if (!options.json) {
    for (const auto& [about, states] : sum.about) fmt::print("distinct states of the {}: {}\n", about, states);
    fmt::print("distinct crash states: {} in {:.1f} s ({:.0f} a second); violations: {}; silent faults: {}\n",
               sum.distinct.size(), seconds(), static_cast<double>(sum.distinct.size()) / seconds(),
               sum.violations.size(), silent.size());
  } else {
    fmt::print("{}\n", report.dump());
  }
  bool plotted = true;
  if (!options.plot.empty()) plotted = plot(report, options.plot);
  return sum.violations.empty() && silent.empty() && plotted ? 0 : 1;
}

}  // namespace memlith::lab
