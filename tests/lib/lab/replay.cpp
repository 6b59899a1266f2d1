#include "replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "explorer.hpp"
#include "pool.hpp"
#include "schedules.hpp"
#include "unit.hpp"

namespace memlith::lab {

using namespace core;
using nlohmann::json;

namespace {

std::string place_of(const SimMedium& medium, const SimRecord& record) {
  const std::string_view name = record.name.empty() ? medium.name_of_file(record.file) : record.name;
  switch (record.op) {
    case SimOp::write: return fmt::format("{} [{}..{})", name, record.offset, record.offset + record.data.size());
    case SimOp::written_through: return fmt::format("{} [{}..{})", name, record.offset, record.offset + record.bytes);
    case SimOp::reserve:
    case SimOp::truncate: return fmt::format("{} to {} bytes", name, record.bytes);
    case SimOp::rename: return fmt::format("{} to {}", record.name, record.to);
    case SimOp::sync_folder: return fmt::format("\"{}\"", record.name);
    default: return std::string(name);
  }
}

// The fate of the sectors of one operation: "kept", "lost", "kklk" ...
std::string fates_of(const SimMedium& medium, const Cut& cut, std::size_t record) {
  std::string letters;
  for (std::size_t i = 0; i < medium.pending_count() && i < cut.choices.size(); ++i) {
    if (medium.pending(i).record == record) letters += "klgpeb"[static_cast<std::size_t>(cut.choices[i].fate)];
  }
  if (letters.empty()) return cut.killed ? "" : "durable";
  if (letters.find_first_not_of('k') == std::string::npos) return "kept";
  if (letters.find_first_not_of('l') == std::string::npos) return "LOST";
  std::string text = "sector by sector: ";
  for (std::size_t i = 0; i < letters.size();) {
    const std::size_t end = std::min(letters.find_first_not_of(letters[i], i), letters.size());
    const char* const word = letters[i] == 'k'   ? "kept"
                             : letters[i] == 'l' ? "LOST"
                             : letters[i] == 'g' ? "GARBAGE"
                             : letters[i] == 'e' ? "ELSEWHERE"
                                                 : "KEPT AND ELSEWHERE TOO";
    text += fmt::format("{}{} {}", i > 0 ? ", " : "", end - i, word);
    i = end;
  }
  return text;
}

void tell_operations(const SimTrace& trace, const SimMedium& medium, const Cut& cut, std::size_t begin, std::size_t end,
                     const Run* run, const std::vector<Step>* steps, std::string& story) {
  std::size_t mark = 0;
  // The earlier operations that are not safe yet.
  for (std::size_t i = 0; i < begin; ++i) {
    const std::string fates = fates_of(medium, cut, i);
    if (fates == "durable") continue;
    story += fmt::format("    (before: {} {}   {})\n", name_of(trace.records[i].op), place_of(medium, trace.records[i]),
                         fates);
  }
  for (std::size_t i = begin; i < end && i < trace.records.size(); ++i) {
    if (run != nullptr) {
      for (; mark < run->step_marks().size() && begin + run->step_marks()[mark].first <= i; ++mark) {
        const std::size_t step = run->step_marks()[mark].second;
        story += fmt::format("  step {}: {}\n", step, (*steps)[step].text);
      }
    }
    const SimRecord& record = trace.records[i];
    const bool ends_write =
        record.op == SimOp::flush || record.op == SimOp::sync_folder || record.op == SimOp::failed_flush;
    story += fmt::format("    {:>4}  {:<12} {}{}\n", i + 1 - begin, name_of(record.op), place_of(medium, record),
                         ends_write ? "" : "   " + fates_of(medium, cut, i));
  }
  for (; run != nullptr && mark < run->step_marks().size() && begin + run->step_marks()[mark].first <= end; ++mark) {
    const std::size_t step = run->step_marks()[mark].second;
    story += fmt::format("  step {}: {}\n", step, (*steps)[step].text);
  }
}

void tell_expectation(const Run& run, std::size_t at, const Expected& expected, const Recovered& recovered,
                      std::string& story) {
  const std::vector<const Commit*> commits = run.history.commits(at);
  story += fmt::format("  expected: the state after one of the commits {} to {}\n", expected.first, expected.last);
  const std::size_t from = expected.first > 3 ? expected.first - 3 : 0;
  for (std::size_t i = from; i < std::min(expected.last + 1, commits.size()); ++i) {
    story += fmt::format("    {:>4}  {}{}\n", i + 1, commits[i]->text,
                         i < expected.first  ? ", acknowledged"
                         : i < expected.last ? ", started"
                                             : ", not started yet");
  }
  if (!recovered.ok) return;
  for (std::size_t p = 0; p < expected.contents.size(); ++p) {
    if (expected.contents[p] == recovered.found) story += fmt::format("  it is the state after commit {}\n", p);
  }
  story += fmt::format("  against commit {}: {}\n", expected.first,
                       describe_difference(run.history.content(at, expected.first), recovered.content));
  if (expected.last != expected.first) {
    story += fmt::format("  against commit {}: {}\n", expected.last,
                         describe_difference(run.history.content(at, expected.last), recovered.content));
  }
}

struct Replayed {
  std::string wrong;  // empty: nothing
  std::string story;
  std::string medium;
  bool lost = false;  // the run took another course than the line tells
};

// In a child, because what is wrong may be an abort or a hang.
Answer in_child(const std::function<void(json& report)>& act) {
  Answer result;
  bool asked = false;
  run_jobs(
      1,
      [&]() -> std::optional<Job> {
        if (std::exchange(asked, true)) return std::nullopt;
        Job job;
        job.seconds_max = 20;
        job.act = [&act](json& report, std::vector<std::uint64_t>&) { act(report); };
        return job;
      },
      [&](const Answer& answer) {
        result = answer;
        return true;
      });
  return result;
}

Replayed follow(const Case& the_case) {
  Replayed result;
  const Answer answer = in_child([&](json& report) {
    (void)set_mutant(the_case.mutant);
    Tally tally;
    Explorer explorer(*find_workload(the_case.workload), the_case, FaultSet::all(), {}, tally);
    std::string story;
    std::uint64_t image = 0;
    const std::string wrong = explorer.replay(the_case.cuts, story, image);
    report = {{"wrong", wrong}, {"story", story}, {"medium", text_of_medium(image)}};
  });
  if (!answer.died.empty()) {
    result.wrong = "the process " + answer.died + (answer.said.empty() ? "" : ": " + answer.said);
    return result;
  }
  result.wrong = answer.report["wrong"];
  result.story = answer.report["story"];
  result.medium = answer.report["medium"];
  result.lost = result.wrong.starts_with("another course");
  return result;
}

bool check_names(const Case& the_case) {
  if (find_workload(the_case.workload) == nullptr) {
    fmt::print(stderr, "memlith-crashlab: there is no workload \"{}\"; `memlith-crashlab list` names them\n",
               the_case.workload);
    return false;
  }
  if (!set_mutant(the_case.mutant)) {
    fmt::print(stderr, "memlith-crashlab: there is no mutant \"{}\"\n", the_case.mutant);
    return false;
  }
  return true;
}

}  // namespace

// ---- following a line ------------------------------------------------------------------------------------------

std::string Explorer::replay(const Cuts& cuts, std::string& story, std::uint64_t& image_hash) {
  std::unique_ptr<Run> run = run_workload();
  if (base_.fault.has_value()) {
    story += fmt::format("fault: {} (n = {}), {}\n", sentence_of(*base_.fault), base_.nth,
                         run->volume.faults().fired() > 0 ? "it struck" : "it did not strike");
  }
  if (cuts.empty()) {
    story += "the run:\n";
    for (std::size_t i = 0; i < steps_.size(); ++i) story += fmt::format("  step {}: {}\n", i, steps_[i].text);
    return run->broken().empty() ? "" : run->broken().front();
  }
  const std::string another = "another course: the line does not fit this run; the code or the workload has changed";
  SimImage image;
  Recovered recovered;
  SimTrace recovery;
  Expected expected;
  Expected earlier;
  std::vector<Fingerprint> earlier_contents;
  SimTrace continued;  // of the second life, behind what was done before a kill
  std::size_t before_this_life = 0;
  std::size_t at = 0;
  for (std::size_t level = 0; level < cuts.size(); ++level) {
    const Cut& cut = cuts[level];
    if (cut.link == '>' || cut.link == '+') {
      const std::size_t step = run->step_at(at);
      story += fmt::format("second life, from step {} on{}:\n", step, cut.link == '+' ? ", with other bytes" : "");
      set_identity(kIdentity);
      path_ = {cuts[level - 1]};
      auto next = next_life(*run, image, recovered.content, cut.link == '+');
      if (cuts[level - 1].killed) {
        before_this_life = cuts[level - 1].at;
        continued = run->volume.trace().continued(before_this_life, next->volume.trace());
        earlier = expected;
        earlier_contents.assign(expected.contents.begin(), expected.contents.end());
        earlier.contents = earlier_contents;
        also_allowed_ = &earlier;
        also_until_ = next->step_marks().empty() ? next->volume.operations() : next->step_marks().front().first;
      } else {
        before_this_life = 0;
        continued = next->volume.trace();
      }
      run = std::move(next);
      if (!run->broken().empty()) return "in its second life, " + run->broken().front();
    } else {
      story += cut.link == '/' ? "the recovery:\n" : "the run:\n";
    }
    const SimTrace& trace = cut.link == '/' ? recovery : level == 0 ? run->volume.trace() : continued;
    const std::size_t before = cut.link == '/' ? 0 : before_this_life;
    const std::size_t until = before + cut.at;
    if (until > trace.records.size()) return another;
    const SimMedium medium(trace, until);
    std::vector<SimChoice> choices = cut.choices;
    if (cut.killed) choices.assign(medium.pending_count(), {});  // for the story
    if (choices.size() != medium.pending_count()) return another;
    tell_operations(trace, medium, cut, before, until, cut.link == '/' ? nullptr : run.get(), &steps_, story);
    image = cut.killed ? medium.cached() : medium.cut(choices, kGarbageSeed);
    if (cut.killed) {
      story += fmt::format("  the program is killed after operation {}, with the power on\n", cut.at);
    } else {
      story += fmt::format("  power cut after operation {}; {} items were unflushed\n", cut.at, choices.size());
    }
    if (!cut.rotten_file.empty()) {
      if (!let_rot(image, cut)) return another;
      story +=
          fmt::format("  then bit {} of byte {} of {} flips\n", cut.rotten_bit, cut.rotten_offset, cut.rotten_file);
    }
    if (!cut.older_file.empty()) {
      if (!put_older_file(image, trace, cut)) return another;
      story += fmt::format("  then {} is replaced by a copy as of operation {}\n", cut.older_file, cut.older_at);
    }
    const Fingerprint found_before = recovered.found;
    if (cut.link != '/') {
      at = cut.at;
      expected = run->history.expected(at);
    }
    SimVolume volume(image, true);
    if (cut.flipped_read.has_value()) {
      story += fmt::format("  in what read {} of the recovery returns, a bit flips\n", *cut.flipped_read);
      volume.faults().plan(SimFaults::Kind::flip_bit, *cut.flipped_read);
    }
    set_identity(kIdentity);
    recovered = recover(volume, options_);
    recovery = volume.trace();
    image_hash = image.hash();
    if (level + 1 < cuts.size()) continue;

    story += fmt::format("  medium: {:016x}\n", image_hash);
    story += recovered.ok ? "  recovered: " + describe(recovered.content) + "\n"
                          : "  recovery says: " + recovered.error + "\n";
    std::string wrong;
    const bool misdirected = std::any_of(cut.choices.begin(), cut.choices.end(),
                                         [](const SimChoice& choice) { return choice.fate >= SimFate::elsewhere; });
    path_ = {cut};
    if (cut.link == '/') {
      if (!recovered.ok || recovered.found != found_before) wrong = "the crash of the recovery changed what comes back";
    } else if (!cut.older_file.empty()) {
      FaultCount unused;
      wrong = moment_verdict(*run, recovered, expected, unused);
    } else if (misdirected || !cut.rotten_file.empty() || cut.flipped_read.has_value()) {
      bool may_go = cut.flipped_read.has_value();
      if (!cut.rotten_file.empty()) may_go = cut.rotten_file != "objects/0" && cut.rotten_offset >= kSlotsOffset;
      for (std::size_t i = 0; misdirected && i < cut.choices.size(); ++i) {
        if (cut.choices[i].fate < SimFate::elsewhere) continue;
        may_go = medium.name_of_file(medium.pending(i).file) != "objects/0" && cut.choices[i].offset >= kSlotsOffset;
      }
      FaultCount unused;
      wrong = lie_verdict(*run, at, recovered, expected, may_go, unused);
    } else {
      wrong = verdict(recovered, expected);
      if (wrong.empty() && expected.closed && expected.first == expected.last && options_.kind == StoreKind::one_file &&
          fingerprint(read_file_alone(image)) != recovered.found) {
        wrong = "the store was closed, but the file by itself is not complete";
      }
      if (wrong.empty()) wrong = copy_wrong(image, recovered);
      if (wrong.empty()) {
        SimVolume again(volume.image());
        const Recovered second = recover(again, options_);
        if (!second.ok || second.found != recovered.found) wrong = "a second recovery gives something else";
      }
      if (wrong.empty()) wrong = look_wrong(image, options_, recovered);
    }
    if (cut.link != '/') tell_expectation(*run, at, expected, recovered, story);
    return wrong;
  }
  return {};
}

int replay_command(const std::string& line, bool as_json) {
  std::string why;
  const std::optional<Case> the_case = parse_case(line, why);
  if (!the_case.has_value()) {
    fmt::print(stderr, "memlith-crashlab: {}\n", why);
    return 2;
  }
  if (!check_names(*the_case)) return 2;
  const Replayed replayed = follow(*the_case);
  if (as_json) {
    const json result{{"replay", format_case(*the_case)},
                      {"violation", replayed.wrong},
                      {"followed", !replayed.lost},
                      {"medium", replayed.medium}};
    fmt::print("{}\n", result.dump());
  } else {
    fmt::print("{}\n{}", format_case(*the_case), replayed.story);
    fmt::print("{}\n", replayed.wrong.empty() ? "nothing is wrong" : "VIOLATION: " + replayed.wrong);
  }
  return replayed.lost ? 2 : replayed.wrong.empty() ? 0 : 1;
}

bool replays(const std::string& line, const std::string& medium) {
  if (line.starts_with("schedule ")) {
    const Answer answer = in_child([&](json& report) { report = schedule_goes_wrong(line); });
    return !answer.died.empty() || answer.report == json(true);
  }
  std::string why;
  const std::optional<Case> the_case = parse_case(line, why);
  if (!the_case.has_value()) return false;
  const Replayed replayed = follow(*the_case);
  return !replayed.wrong.empty() && !replayed.lost && (medium.empty() || replayed.medium == medium);
}

// ---- making it smaller -----------------------------------------------------------------------------------------

namespace {

// Something wrong with fewer steps, or nothing.
std::optional<Case> explore_with(Case the_case, const std::vector<std::size_t>& steps) {
  the_case.steps = steps;
  const Answer answer = in_child([&](json& report) {
    Budget budget;
    budget.violations_max = 1;
    budget.life_every = 10;
    budget.states_max = 60'000;
    Tally tally;
    work(the_case, FaultSet::all(), budget, tally);
    if (!tally.violations.empty()) report = format_case(tally.violations.front().replay);
  });
  if (answer.died.empty() && answer.report.is_null()) return std::nullopt;
  std::string why;
  std::optional<Case> found = parse_case(answer.died.empty() ? answer.report.get<std::string>() : answer.position, why);
  if (found.has_value()) found->mutant = the_case.mutant;
  return found;
}

bool still_wrong(const Case& the_case) {
  const Replayed replayed = follow(the_case);
  return !replayed.wrong.empty() && !replayed.lost;
}

}  // namespace

int shrink_command(const std::string& line) {
  std::string why;
  std::optional<Case> best = parse_case(line, why);
  if (!best.has_value()) {
    fmt::print(stderr, "memlith-crashlab: {}\n", why);
    return 2;
  }
  if (!check_names(*best)) return 2;
  if (!still_wrong(*best)) {
    fmt::print(stderr, "memlith-crashlab: nothing is wrong with this line\n");
    return 2;
  }
  // Fewer steps: leave out stretches, half of them first, then single ones.
  Random random(0);
  std::vector<std::size_t> steps = best->steps;
  if (steps.empty()) {
    Tally unused;
    Explorer explorer(*find_workload(best->workload), *best, FaultSet::all(), {}, unused);
    for (std::size_t i = 0; i < explorer.step_count(); ++i) steps.push_back(i);
  }
  for (std::size_t stretch = std::max<std::size_t>(1, steps.size() / 2);; stretch = (stretch + 1) / 2) {
    bool again = true;
    while (again) {
      again = false;
      for (std::size_t end = steps.size(); end > 0; end = end > stretch ? end - stretch : 0) {
        const std::size_t begin = end > stretch ? end - stretch : 0;
        std::vector<std::size_t> fewer = steps;
        fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(begin),
                    fewer.begin() + static_cast<std::ptrdiff_t>(end));
        if (fewer.empty()) continue;
        std::optional<Case> found = explore_with(*best, fewer);
        if (!found.has_value()) continue;
        best = std::move(found);
        steps = std::move(fewer);
        again = stretch == 1;
        if (end > steps.size()) end = steps.size();
        if (end == 0) break;
      }
    }
    if (stretch == 1) break;
  }
  // Fewer losses: keep what need not be lost, an item at a time.
  for (Cut& cut : best->cuts) {
    for (SimChoice& choice : cut.choices) {
      if (choice.fate == SimFate::kept) continue;
      const SimChoice old = std::exchange(choice, SimChoice{});
      if (!still_wrong(*best)) choice = old;
    }
  }
  fmt::print("memlith-crashlab replay '{}'\n\n", format_case(*best));
  std::fflush(stdout);
  return replay_command(format_case(*best), false);
}

}  // namespace memlith::lab
