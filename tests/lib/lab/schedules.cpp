#include "schedules.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <sstream>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "base/checksum.hpp"
#include "pool.hpp"
#include "sim/power_cuts.hpp"
#include "unit.hpp"

namespace memlith::lab {

using namespace core;
using nlohmann::json;

namespace {

using Choices = std::vector<std::uint16_t>;

constexpr std::uint64_t kNone = 0;
constexpr std::uint64_t kAll = ~std::uint64_t{0};
constexpr std::size_t kEverySubset = 4;  // up to this many unflushed items
constexpr double kSecondsMax = 1200;     // for one case; it hangs

constexpr std::uint32_t kInFlight = LogOptions{}.in_flight_max;
constexpr std::uint64_t kInFlightMax = 16;

struct Line {
  std::string workload;
  std::uint32_t in_flight = kInFlight;
  std::string mutant;
  Choices choices;
  std::optional<std::size_t> cut;
  std::uint64_t kept = kNone;
};

std::string format_line(const Line& line) {
  std::string text = "schedule " + line.workload;
  if (line.in_flight != kInFlight) text += fmt::format(" in_flight={}", line.in_flight);
  if (!line.mutant.empty()) text += " mutant=" + line.mutant;
  text += " choices=";
  bool first = true;
  for (std::size_t i = 0; i < line.choices.size(); ++i) {
    if (line.choices[i] == 0) continue;
    text += fmt::format("{}{}:{}", first ? "" : ",", i, line.choices[i]);
    first = false;
  }
  if (line.cut.has_value()) {
    text += fmt::format(" cut={}:", *line.cut);
    text += line.kept == kNone ? "none" : line.kept == kAll ? "all" : fmt::format("{:#x}", line.kept);
  }
  return text;
}

bool parse_number(std::string_view text, std::uint64_t& value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty();
}

std::optional<Line> parse_line(const std::string& text, std::string& why) {
  Line line;
  std::istringstream words(text);
  std::string word;
  words >> word;
  if (word != "schedule") {
    why = "it does not begin with \"schedule\"";
    return std::nullopt;
  }
  words >> line.workload;
  while (words >> word) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    why = fmt::format("\"{}\" makes no sense", word);
    if (name == "mutant") {
      line.mutant = value;
    } else if (name == "in_flight") {
      std::uint64_t count = 0;
      if (!parse_number(value, count) || count == 0 || count > kInFlightMax) return std::nullopt;
      line.in_flight = static_cast<std::uint32_t>(count);
    } else if (name == "choices") {
      std::istringstream pairs(value);
      for (std::string pair; std::getline(pairs, pair, ',');) {
        const std::size_t colon = pair.find(':');
        std::uint64_t index = 0;
        std::uint64_t option = 0;
        if (colon == std::string::npos || !parse_number(std::string_view(pair).substr(0, colon), index) ||
            !parse_number(std::string_view(pair).substr(colon + 1), option) || index > 100'000 || option > 1000) {
          return std::nullopt;
        }
        line.choices.resize(std::max<std::size_t>(line.choices.size(), index + 1));
        line.choices[index] = static_cast<std::uint16_t>(option);
      }
    } else if (name == "cut") {
      const std::size_t colon = value.find(':');
      std::uint64_t at = 0;
      if (colon == std::string::npos || !parse_number(std::string_view(value).substr(0, colon), at))
        return std::nullopt;
      line.cut = at;
      const std::string kept = value.substr(colon + 1);
      if (kept == "all") {
        line.kept = kAll;
      } else if (kept != "none" &&
                 (!kept.starts_with("0x") || !parse_number(std::string_view(kept).substr(2), line.kept, 16))) {
        return std::nullopt;
      }
    } else {
      return std::nullopt;
    }
  }
  why.clear();
  return line;
}

struct Count {
  std::uint64_t schedules = 0;
  std::uint64_t decisions_max = 0;
  std::uint64_t courses = 0;  // schedules that differ in what the disk or the callers saw
  std::uint64_t cuts = 0;
  std::uint64_t states = 0;  // different images recovered from
  bool complete = false;     // everything within the bound was tried
  std::string what;          // the first violation
  std::string line;
};

class ScheduleExplorer;
ScheduleExplorer* g_explorer = nullptr;

class ScheduleExplorer {
 public:
  ScheduleExplorer(const ScheduleWorkload& workload, std::uint32_t in_flight, std::string mutant)
      : workload_(workload) {
    line_.workload = workload.name;
    line_.in_flight = in_flight;
    line_.mutant = std::move(mutant);
    g_explorer = this;
    set_position_teller([] { return format_line(g_explorer->line_); });
  }
  ~ScheduleExplorer() {
    g_explorer = nullptr;
    set_position_teller(nullptr);
  }

  // Everything with at most `preemptions`, depth first; or until `schedules_max`, `seconds_max`, or a violation.
  void explore(std::size_t preemptions, std::uint64_t schedules_max, double seconds_max) {
    const auto began = std::chrono::steady_clock::now();
    std::vector<Decision> before;
    line_.choices.clear();
    for (;;) {
      if (!once(before) || (schedules_max > 0 && tally_.schedules >= schedules_max)) return;
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() > seconds_max) return;
      before = outcome_.decisions;
      if (!next_schedule(before, preemptions)) break;
      line_.choices.clear();
      for (const Decision& decision : before) line_.choices.push_back(decision.chosen);
    }
    tally_.complete = true;
  }

  // The line's schedule, told. Returns what is wrong.
  std::string replay(const Line& line, std::string& story, bool& followed) {
    std::vector<std::string> steps;
    scheduler_.story = &steps;
    line_ = line;
    run();
    scheduler_.story = nullptr;
    followed = outcome_.decisions.size() >= line.choices.size() || !outcome_.stuck.empty();
    for (std::size_t i = 0; followed && i < std::min(line.choices.size(), outcome_.decisions.size()); ++i) {
      followed = outcome_.decisions[i].chosen == line.choices[i];
    }
    for (const std::string& step : steps) story += step + "\n";
    story += fmt::format("operations on the disk:\n{}", session_->volume.trace().describe(kNever));
    std::string wrong = outcome_.stuck;
    if (wrong.empty() && !session_->broken().empty()) wrong = session_->broken().front();
    if (!wrong.empty() || !line.cut.has_value()) return wrong;
    const SimTrace& trace = session_->volume.trace();
    followed = followed && *line.cut <= trace.records.size();
    if (!followed) return "";
    const SimMedium medium(trace, *line.cut);
    story += fmt::format("power cut after operation {} of {}; kept of what was not flushed:", *line.cut,
                         trace.records.size());
    for (std::size_t i = 0; i < medium.pending_count(); ++i) {
      const SimMedium::Item& item = medium.pending(i);
      story += fmt::format("\n  {} {} +{}: {}", name_of(item.op), medium.name_of_file(item.file), item.skip,
                           keeps(line.kept, i) ? "kept" : "lost");
    }
    story += "\n";
    return judge_cut(medium, line.kept);
  }

  [[nodiscard]] const Count& tally() const { return tally_; }
  [[nodiscard]] Count& tally() { return tally_; }

 private:
  static bool keeps(std::uint64_t kept, std::size_t item) { return (kept >> (item % 64) & 1) != 0; }

  void run() {
    session_ = make_session(workload_, line_.in_flight, scheduler_);
    outcome_ = scheduler_.run(
        [this] {
          workload_.act(*session_);
          session_->store = nullptr;
        },
        line_.choices);
    if (outcome_.stuck.empty()) session_->history.finish();
  }

  // False when something is wrong.
  bool once(const std::vector<Decision>& expected) {
    line_.cut.reset();
    run();
    ++tally_.schedules;
    tally_.decisions_max = std::max<std::uint64_t>(tally_.decisions_max, outcome_.decisions.size());
    if (!outcome_.stuck.empty()) {
      violated(outcome_.stuck);
      (void)session_.release();  // its threads are still in it
      return false;
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      // The last one is new; all before it must be what they were.
      const bool same = i < outcome_.decisions.size() && outcome_.decisions[i].options == expected[i].options &&
                        outcome_.decisions[i].chosen == expected[i].chosen;
      if (same) continue;
      violated(fmt::format("the schedule cannot be done again: decision {} is another one", i));
      return false;
    }
    if (!session_->broken().empty()) {
      violated(session_->broken().front());
      return false;
    }
    return judge();
  }

  void violated(std::string what) {
    if (!tally_.what.empty()) return;
    tally_.what = std::move(what);
    tally_.line = format_line(line_);
  }

  // ---- the oracle

  [[nodiscard]] std::uint64_t course() const {
    std::uint64_t value = 0;
    const auto mix = [&value](const auto& each) { value = checksum(std::as_bytes(std::span(&each, 1)), value); };
    for (const SimRecord& record : session_->volume.trace().records) {
      mix(record.op);
      mix(record.file);
      mix(record.offset);
      mix(record.bytes);
      value = checksum(record.data, value);
    }
    for (const Commit* const commit : session_->history.commits(0)) {
      mix(commit->number);
      mix(commit->started_at);
      mix(commit->acknowledged_at);
    }
    return value;
  }

  bool judge() {
    if (!courses_.insert(course()).second) return true;
    ++tally_.courses;
    for (CrashPoints points(session_->volume.trace(), session_->decided_from); points.next();) {
      const std::size_t pending = points.medium().pending_count();
      const std::uint64_t subsets = pending <= kEverySubset ? std::uint64_t{1} << pending : 4;
      for (std::uint64_t subset = 0; subset < subsets; ++subset) {
        // Few items in every subset; of more none, all, and every other one.
        constexpr std::uint64_t kLarge[] = {kNone, kAll, 0x5555555555555555, 0xaaaaaaaaaaaaaaaa};
        const std::uint64_t kept = pending <= kEverySubset ? subset : kLarge[subset];
        const std::string wrong = judge_cut(points.medium(), kept);
        if (wrong.empty()) continue;
        line_.cut = points.at();
        line_.kept = kept;
        violated(wrong);
        return false;
      }
    }
    return true;
  }

  std::string judge_cut(const SimMedium& medium, std::uint64_t kept) {
    ++tally_.cuts;
    const SimImage image = medium.cut([kept](std::size_t item) { return keeps(kept, item); });
    const std::uint64_t hash = image.hash();
    auto known = recovered_.find(hash);
    if (known == recovered_.end()) {
      SimVolume copy(image);
      known = recovered_.emplace(hash, recover(copy, session_->options())).first;
      known->second.content.objects.clear();
      ++tally_.states;
    }
    const Recovered& recovered = known->second;
    if (!recovered.ok) return "recovery says: " + recovered.error;
    const Expected expected = session_->history.expected(medium.position());
    if (!expected.allows(recovered.found, expected.first)) {
      return fmt::format("what comes back is the state after none of the commits {} to {} ({} frames replayed)",
                         expected.first, expected.last, recovered.replayed);
    }
    if (expected.closed && recovered.replayed > 0) return "the store was closed, and there was something to replay";
    return "";
  }

  const ScheduleWorkload& workload_;
  Scheduler scheduler_;
  std::unique_ptr<Session> session_;
  Scheduler::Outcome outcome_;
  Line line_;
  Count tally_;
  std::unordered_set<std::uint64_t> courses_;
  std::unordered_map<std::uint64_t, Recovered> recovered_;  // by the content of the medium
};

json to_json(const Count& tally) {
  json result{{"schedules", tally.schedules}, {"courses", tally.courses},   {"cuts", tally.cuts},
              {"states", tally.states},       {"complete", tally.complete}, {"decisions_max", tally.decisions_max}};
  if (!tally.what.empty()) result["violation"] = {{"what", tally.what}, {"replay", tally.line}};
  return result;
}

int unknown(const std::string& kind, const std::string& name) {
  fmt::print(stderr,
             "memlith-crashlab: there is no {} \"{}\"; `memlith-crashlab schedule list` and "
             "`memlith-crashlab list` name them\n",
             kind, name);
  return 2;
}

}  // namespace

// ---- commands --------------------------------------------------------------------------------------------------

int schedule_run_command(const ScheduleOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  std::vector<const ScheduleWorkload*> wanted;
  for (const ScheduleWorkload& workload : schedule_workloads()) {
    if (options.workload == "all" || options.workload == workload.name) wanted.push_back(&workload);
  }
  if (wanted.empty()) return unknown("case", options.workload);
  if (!set_mutant(options.mutant)) return unknown("mutant", options.mutant);
  const bool table = !options.json && !options.markdown;
  if (table) {
    fmt::print("{:<22} {:>11} {:>10} {:>9} {:>9} {:>9} {:>8}  {}\n", "case", "preemptions", "schedules", "courses",
               "cuts", "states", "seconds", "");
  }
  json rows = json::array();
  std::size_t started = 0;
  std::uint64_t violations = 0;
  std::size_t incomplete = 0;
  json sum{{"schedules", 0u}, {"courses", 0u}, {"cuts", 0u}, {"states", 0u}};
  run_jobs(
      options.jobs != 0 ? options.jobs : std::max(1u, std::thread::hardware_concurrency()),
      [&]() -> std::optional<Job> {
        if (started == wanted.size()) return std::nullopt;
        const ScheduleWorkload* const workload = wanted[started++];
        Job job;
        job.seconds_max = kSecondsMax;
        job.act = [workload, &options](json& report, std::vector<std::uint64_t>&) {
          ScheduleExplorer explorer(*workload, options.in_flight, options.mutant);
          explorer.explore(options.preemptions.value_or(workload->preemptions), options.schedules_max,
                           kSecondsMax - 10);
          report = to_json(explorer.tally());
        };
        return job;
      },
      [&](const Answer& answer) {
        const ScheduleWorkload& workload = *wanted[rows.size()];
        json row = answer.report;
        if (!answer.died.empty()) {
          row = {{"schedules", 0u}, {"courses", 0u}, {"cuts", 0u}, {"states", 0u}, {"complete", false}};
          row["violation"] = {{"what", "the process " + answer.died + ": " + answer.said}, {"replay", answer.position}};
        }
        row["case"] = workload.name;
        row["preemptions"] = options.preemptions.value_or(workload.preemptions);
        row["seconds"] = answer.seconds;
        for (auto& [name, value] : sum.items()) value = value.get<std::uint64_t>() + row[name].get<std::uint64_t>();
        if (table) {
          fmt::print("{:<22} {:>11} {:>10} {:>9} {:>9} {:>9} {:>8.1f}  {}\n", workload.name,
                     row["preemptions"].get<std::uint64_t>(), row["schedules"].get<std::uint64_t>(),
                     row["courses"].get<std::uint64_t>(), row["cuts"].get<std::uint64_t>(),
                     row["states"].get<std::uint64_t>(), answer.seconds,
                     row.contains("violation")     ? "VIOLATION"
                     : row["complete"].get<bool>() ? ""
                                                   : "not all");
          std::fflush(stdout);
        }
        if (row.contains("violation")) {
          ++violations;
          fmt::print(stderr, "VIOLATION in {}: {}\n  replay: memlith-crashlab schedule replay '{}'\n", workload.name,
                     row["violation"]["what"].get<std::string>(), row["violation"]["replay"].get<std::string>());
        } else if (!row["complete"].get<bool>() && options.schedules_max == 0) {
          ++incomplete;
          fmt::print(stderr, "NOT ALL of {}: {} schedules in {:.0f} s\n", workload.name,
                     row["schedules"].get<std::uint64_t>(), answer.seconds);
        }
        rows.push_back(std::move(row));
        return true;
      });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (options.json) {
    sum["violations"] = violations;
    sum["seconds"] = seconds;
    sum["cases"] = std::move(rows);
    fmt::print("{}\n", sum.dump());
  } else if (options.markdown) {
    fmt::print(
        "| case | what it is | preemptions | schedules | courses | power cuts | distinct states |\n"
        "|---|---|---:|---:|---:|---:|---:|\n");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      fmt::print("| {} | {} | {} | {} | {} | {} | {} |\n", wanted[i]->name, wanted[i]->sentence,
                 rows[i]["preemptions"].get<std::uint64_t>(), rows[i]["schedules"].get<std::uint64_t>(),
                 rows[i]["courses"].get<std::uint64_t>(), rows[i]["cuts"].get<std::uint64_t>(),
                 rows[i]["states"].get<std::uint64_t>());
    }
    fmt::print("| all | | | {} | {} | {} | {} |\n", sum["schedules"].get<std::uint64_t>(),
               sum["courses"].get<std::uint64_t>(), sum["cuts"].get<std::uint64_t>(),
               sum["states"].get<std::uint64_t>());
  } else {
    fmt::print(
        "{} schedules of {} cases, {} courses, {} power cuts, {} distinct crash states, {} violations, {:.0f} s\n",
        sum["schedules"].get<std::uint64_t>(), wanted.size(), sum["courses"].get<std::uint64_t>(),
        sum["cuts"].get<std::uint64_t>(), sum["states"].get<std::uint64_t>(), violations, seconds);
  }
  return violations == 0 && incomplete == 0 ? 0 : 1;
}

int schedule_replay_command(const std::string& text, bool as_json) {
  std::string why;
  const std::optional<Line> line = parse_line(text, why);
  if (!line.has_value()) {
    fmt::print(stderr, "memlith-crashlab: this is no schedule: {}\n", why);
    return 2;
  }
  const ScheduleWorkload* const workload = find_schedule_workload(line->workload);
  if (workload == nullptr) return unknown("case", line->workload);
  if (!set_mutant(line->mutant)) return unknown("mutant", line->mutant);
  ScheduleExplorer explorer(*workload, line->in_flight, line->mutant);
  std::string story;
  bool followed = false;
  const std::string wrong = explorer.replay(*line, story, followed);
  if (as_json) {
    fmt::print("{}\n", json{{"followed", followed}, {"violation", wrong}, {"story", story}}.dump());
  } else {
    fmt::print("{}{}\n", story,
               wrong.empty() ? followed ? "Nothing is wrong." : "This schedule could not be followed."
                             : "VIOLATION: " + wrong);
  }
  std::fflush(stdout);
  // Threads may be stuck in the engine: no destructor could end them.
  ::_exit(!wrong.empty() ? 1 : followed ? 0 : 2);
}

bool schedule_goes_wrong(const std::string& text) {
  std::string why;
  const std::optional<Line> line = parse_line(text, why);
  if (!line.has_value() || !set_mutant(line->mutant)) return false;
  // Never destroyed: no destructor could end threads that are stuck.
  auto* const explorer = new ScheduleExplorer(*find_schedule_workload(line->workload), line->in_flight, line->mutant);
  std::string story;
  bool followed = false;
  return !explorer->replay(*line, story, followed).empty();
}

int schedule_list_command() {
  for (const ScheduleWorkload& workload : schedule_workloads()) {
    fmt::print("{:<22} {} (preemptions: {})\n", workload.name, workload.sentence, workload.preemptions);
  }
  return 0;
}

void hunt_schedules(const std::string& mutant, std::string_view about, double seconds_max, json& report) {
  const auto began = std::chrono::steady_clock::now();
  const auto left = [&] {
    return seconds_max - std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  std::uint64_t schedules = 0;
  struct Round {
    std::size_t preemptions;
    std::uint32_t in_flight;
  };
  constexpr Round kRounds[] = {{0, kInFlight}, {1, kInFlight}, {1, 1}, {2, kInFlight}};
  for (const auto& [preemptions, in_flight] : kRounds) {
    for (const ScheduleWorkload& workload : schedule_workloads()) {
      if (left() <= 0) break;
      if (!workload.name.starts_with(about)) continue;
      ScheduleExplorer explorer(workload, in_flight, mutant);
      const bool all = preemptions < 2 || workload.name == about;
      explorer.explore(preemptions, all ? 0 : 5'000, left());
      const Count& tally = explorer.tally();
      schedules += tally.schedules;
      if (tally.what.empty()) continue;
      report = {{"schedules", schedules},
                {"states", schedules},
                {"workload", fmt::format("schedule {}", workload.name)},
                {"what", tally.what},
                {"replay", tally.line},
                {"how", fmt::format("a schedule with {} preemption{}: {}", preemptions, preemptions == 1 ? "" : "s",
                                    tally.what.starts_with("deadlock") ? "deadlock" : "a crash")}};
      return;
    }
  }
  report = {{"schedules", schedules}};
}

}  // namespace memlith::lab
