// memlith-crashlab: explores what a crash can leave, and proves that it would notice. docs/testing.md tells of it.
#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "mutants.hpp"
#include "replay.hpp"
#include "report.hpp"
#include "schedules.hpp"

using namespace memlith::lab;

namespace {

int list() {
  fmt::print("Workloads:\n");
  for (const Workload& workload : workloads()) {
    fmt::print("  {:<20} {}\n", workload.name, workload.sentence);
  }
  fmt::print("\nFaults:\n");
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    fmt::print("  {:<22} {}\n", name_of(fault), sentence_of(fault));
  }
  fmt::print("\nMutants:\n{}", describe_mutants());
  return 0;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

int run(RunOptions& options, const std::string& names, const std::string& faults) {
  options.all_workloads = names == "all";
  for (const Workload& workload : workloads()) {
    if (options.all_workloads) options.workloads.push_back(&workload);
  }
  for (const std::string& name : options.all_workloads ? std::vector<std::string>{} : split(names)) {
    const Workload* const workload = find_workload(name);
    if (workload == nullptr) {
      fmt::print(stderr, "memlith-crashlab: there is no workload \"{}\"; `memlith-crashlab list` names them\n", name);
      return 2;
    }
    options.workloads.push_back(workload);
  }
  options.faults_named = faults != "all";
  if (options.faults_named) {
    options.faults = {};
    for (const std::string& word : split(faults)) {
      Fault fault{};
      if (!parse_fault(word, fault)) {
        fmt::print(stderr, "memlith-crashlab: there is no fault \"{}\"; `memlith-crashlab list` names them\n", word);
        return 2;
      }
      options.faults.add(fault);
    }
  }
  return run_command(options);
}

}  // namespace

int main(int argc, char** argv) try {
  // Images of disks come and go by the thousand: their memory is kept, and not given back to the kernel each time.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 28);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 28);
  CLI::App app{"Explores the states that crashes leave behind, and checks what recovery makes of them."};
  app.require_subcommand(1);

  RunOptions run_options;
  std::string names = "all";
  std::string faults = "all";
  auto* const run_app =
      app.add_subcommand("run", "explore; exit code 0 only if nothing was wrong and every fault struck");
  run_app->add_option("--workload", names, "names, separated by commas, or all")->capture_default_str();
  run_app->add_option("--states", run_options.states, "go on until so many distinct states were seen (0: one round)");
  run_app->add_option("--minutes", run_options.minutes, "go on for so long");
  run_app->add_option("--seed", run_options.seed, "of the first round; the next takes the next")->capture_default_str();
  run_app->add_flag("--exhaustive", run_options.exhaustive,
                    "more subsets, more crashes of recoveries, calls fail at every chance");
  run_app->add_flag("--quick", run_options.quick, "less of everything; for sanitizers");
  run_app->add_option("--faults", faults, "names, separated by commas, or all")->capture_default_str();
  run_app->add_option("--mutant", run_options.mutant, "switch on a planted fault");
  run_app->add_flag("--json", run_options.json, "one JSON object on standard output");
  run_app->add_option("--plot", run_options.plot, "draw the report into this PNG (needs python3-matplotlib)");
  run_app->add_option("--jobs", run_options.jobs, "processes (0: one a processor)");

  MutantOptions mutant_options;
  auto* const mutants_app =
      app.add_subcommand("mutants", "see whether every planted fault is noticed; exit code 0 if so");
  mutants_app->add_option("--only", mutant_options.only, "these alone, separated by commas")->delimiter(',');
  mutants_app->add_flag("--json", mutant_options.json, "one JSON object on standard output");
  mutants_app->add_flag("--markdown", mutant_options.markdown, "the table of docs/testing.md");
  mutants_app->add_option("--jobs", mutant_options.jobs, "processes (0: one a processor)");
  mutants_app->add_flag("!--no-schedules", mutant_options.schedules, "without the scheduler");
  mutants_app->add_option("--seconds", mutant_options.seconds_each, "at most, for each")->capture_default_str();

  std::string line;
  bool as_json = false;
  auto* const replay_app = app.add_subcommand(
      "replay", "do again what a violation's line tells, and tell the story; exit code 1 if it is still wrong");
  replay_app->add_option("line", line, "in one argument")->required();
  replay_app->add_flag("--json", as_json, "one JSON object on standard output");
  auto* const shrink_app = app.add_subcommand("shrink", "look for a smaller violation, and tell its story");
  shrink_app->add_option("line", line, "in one argument")->required();

  ScheduleOptions schedule_options;
  auto* const schedule_app = app.add_subcommand("schedule", "threads beside each other, in every order within a bound");
  schedule_app->require_subcommand(1);
  auto* const schedule_run_app =
      schedule_app->add_subcommand("run", "try them; exit code 0 only if nothing was wrong, and all were tried");
  schedule_run_app->add_option("--workload", schedule_options.workload, "one case, or all")->capture_default_str();
  schedule_run_app->add_option("--preemptions", schedule_options.preemptions,
                               "at most so many (each case has its own bound)");
  schedule_run_app
      ->add_option("--in-flight", schedule_options.in_flight, "so many batches of the log are written at a time")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  schedule_run_app->add_option("--schedules", schedule_options.schedules_max, "at most so many of a case (0: all)");
  schedule_run_app->add_option("--mutant", schedule_options.mutant, "switch on a planted fault");
  schedule_run_app->add_flag("--json", schedule_options.json, "one JSON object on standard output");
  schedule_run_app->add_flag("--markdown", schedule_options.markdown, "the table of docs/testing.md");
  schedule_run_app->add_option("--jobs", schedule_options.jobs, "processes (0: one a processor)");
  auto* const schedule_replay_app =
      schedule_app->add_subcommand("replay", "do again what a line tells, and tell the story");
  schedule_replay_app->add_option("line", line, "in one argument")->required();
  schedule_replay_app->add_flag("--json", as_json, "one JSON object on standard output");
  auto* const schedule_list_app = schedule_app->add_subcommand("list", "name the cases");

  auto* const list_app = app.add_subcommand("list", "name the workloads, the faults and the mutants");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // 2: typed wrong, 1: something is wrong with memlith
  }

  // `./dev test` has less time than `./dev test all`: every third crash point, and one preemption.
  if (std::getenv("MEMLITH_TEST_SHORT") != nullptr) {
    run_options.is_short = true;
    run_options.states /= 3;
    schedule_options.preemptions = std::min<std::size_t>(schedule_options.preemptions.value_or(1), 1);
  }
  if (*run_app) {
    if (!run_options.mutant.empty() && describe_mutants().find("  " + run_options.mutant + " ") == std::string::npos) {
      fmt::print(stderr, "memlith-crashlab: there is no mutant \"{}\"; `memlith-crashlab list` names them\n",
                 run_options.mutant);
      return 2;
    }
    return run(run_options, names, faults);
  }
  if (*mutants_app) return mutants_command(mutant_options);
  if (*replay_app) return replay_command(line, as_json);
  if (*shrink_app) return shrink_command(line);
  if (*schedule_run_app) return schedule_run_command(schedule_options);
  if (*schedule_replay_app) return schedule_replay_command(line, as_json);
  if (*schedule_list_app) return schedule_list_command();
  if (*list_app) return list();
  return 2;
} catch (const std::exception& error) {
  fmt::print(stderr, "memlith-crashlab: {}\n", error.what());
  return 2;
}
