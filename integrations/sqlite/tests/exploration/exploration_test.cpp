// Mode shared, explored: every order of the steps of small cases within a bound of deviations from the default order,
// with a process killed or stopped at every step, over a disk that loses what was not flushed.
//
// MEMLITH_EXPLORE_DEVIATIONS=2 tries everything with two deviations (./dev soak sqlite-exploration); otherwise
// everything with one, and a random part of those with two and three.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "mutants/mutants.hpp"
#include "schedule.hpp"

namespace memlith::test::exploration {
namespace {

using Kind = Actor::Kind;

void two_writes(Schedule& s, int me) {
  s.write(me);
  s.write(me);
}
void three_writes(Schedule& s, int me) {
  two_writes(s, me);
  s.write(me);
}
void write_then_read(Schedule& s, int me) {
  s.write(me);
  s.read(me);
}
void two_reads(Schedule& s, int me) {
  s.read(me);
  s.read(me);
}
void many_writes(Schedule& s, int me) {
  for (int i = 0; i < 12 && s.write(me); ++i) {
  }
}
void one_write(Schedule& s, int me) { s.write(me); }
void deferred_writes(Schedule& s, int me) {
  s.write(me, "begin");
  s.write(me, "begin");
}
void checkpoint_between(Schedule& s, int me) {
  s.write(me);
  s.checkpoint(me, "restart");
  s.write(me);
  s.read(me);
}
void truncate_between(Schedule& s, int me) {
  s.checkpoint(me, "truncate");
  s.write(me);
}
void roll_back_and_read(Schedule& s, int me) {
  s.read_and_roll_back(me);
  s.read(me);
}
void come_and_go(Schedule& s, int me) {
  s.open(me);
  s.write(me);
  s.close(me);
  s.open(me);
  s.read(me);
  s.close(me);
}
void come_once_more(Schedule& s, int me) {
  for (int i = 0; i < 2; ++i) {
    s.open(me);
    s.write(me);
    s.write(me);
    s.read(me);
    s.close_last(me);
  }
}
void make_checkpoints(Schedule& s, int me) { s.make_checkpoints(me); }
void come_late(Schedule& s, int me) {
  s.pause(680);  // the flush has failed when it opens the database
  s.open(me);
  s.write(me);
  s.read(me);
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"commits",
       "two processes commit, a third reads",
       {{0, Kind::shared, two_writes}, {1, Kind::shared, write_then_read}, {2, Kind::shared, two_reads}}},
      {"threads",
       "two threads of a process commit beside another process",
       {{0, Kind::shared, two_writes}, {0, Kind::shared, write_then_read}, {1, Kind::shared, write_then_read}}},
      {"restart",
       "a process restarts the log while others commit and read",
       {{0, Kind::shared, checkpoint_between}, {1, Kind::shared, two_writes}, {2, Kind::shared, two_reads}}},
      {"truncate",
       "a process truncates the log beside one that commits with synchronous=NORMAL, and a reader",
       {{0, Kind::shared, truncate_between}, {1, Kind::normal, two_writes}, {2, Kind::shared, two_reads}}},
      {"plain",
       "plain SQLite commits and restarts the log beside a process that commits, and a reader",
       {{0, Kind::plain, checkpoint_between}, {1, Kind::shared, two_writes}, {2, Kind::shared, two_reads}}},
      {"normal",
       "synchronous=NORMAL beside full commits, a reader, and a transaction that is rolled back",
       {{0, Kind::normal, two_writes}, {1, Kind::shared, one_write}, {2, Kind::shared, roll_back_and_read}}},
      {"deferred",
       "transactions that read before they write",
       {{0, Kind::shared, deferred_writes}, {1, Kind::shared, deferred_writes}, {2, Kind::shared, two_reads}}},
      {"line",
       "three processes want the write lock again and again; a waiter is not passed over more than nine times",
       {{0, Kind::normal, many_writes}, {1, Kind::normal, many_writes}, {2, Kind::shared, two_writes}},
       -1,
       9,  // promised after eight, when one more may have the lock already
       false},
      {"threads in line",
       "two threads of a process pass the write lock to each other; the other process is not passed over more often",
       {{0, Kind::normal, many_writes}, {0, Kind::normal, many_writes}, {1, Kind::shared, two_writes}},
       -1,
       9,
       false},
      {"coming and going",
       "processes open the database and close it, beside one that commits",
       {{0, Kind::shared, come_and_go, true}, {1, Kind::shared, come_and_go, true}, {2, Kind::plain, two_writes}}},
      {"checkpoints behind",
       "a thread makes the checkpoints of commits, beside a process that commits and restarts the log, and a reader",
       {{0, Kind::automatic, three_writes},
        {0, Kind::checkpointer, make_checkpoints, true},
        {1, Kind::shared, checkpoint_between},
        {2, Kind::shared, two_reads}}},
      {"line held",
       "commits of two processes keep the line for their checkpoints, beside a reader, and the log begins anew",
       {{0, Kind::automatic, many_writes},
        {0, Kind::checkpointer, make_checkpoints, true},
        {1, Kind::automatic, three_writes},
        {2, Kind::shared, two_reads}}},
      {"closing behind",
       "a thread makes the checkpoints of a connection that is closed, and opened once more",
       {{0, Kind::automatic, come_once_more, true}, {0, Kind::checkpointer, make_checkpoints, true}}},
      {"header flush fails",
       "the flush of the log's header fails",
       {{0, Kind::shared, two_writes}, {1, Kind::shared, write_then_read}, {2, Kind::shared, two_reads}},
       0},
      {"commit flush fails",
       "the first commit's flush fails",
       {{0, Kind::shared, two_writes}, {1, Kind::shared, two_writes}, {2, Kind::shared, two_reads}},
       1},
      {"late after a failure",
       "the first commit's flush fails, and a process opens the database afterwards",
       {{0, Kind::shared, one_write}, {1, Kind::shared, two_writes}, {2, Kind::shared, come_late, true}},
       1},
      {"alone after a failure",
       "the first commit's flush fails, and the only other process opens the database afterwards",
       {{0, Kind::shared, one_write}, {1, Kind::shared, come_late, true}},
       1},
  };
  return all;
}

struct Tally {
  std::uint64_t schedules = 0;
  std::uint64_t steps = 0;
  std::uint64_t blocked_max_ns = 0;
  std::string wrong;
  Plan plan;
};

class Explorer {
 public:
  explicit Explorer(const Case& its_case) : case_(its_case) {}

  Tally tally;

  // Everything within the bound; false when something is wrong.
  bool explore(std::size_t deviations) {
    if (deviations < 2) return extend({}, deviations);
    const auto choices = choices_of({});
    for (std::uint32_t step = 0; step < choices.size() && tally.wrong.empty(); ++step) {
      for (const std::uint16_t option : options_at(choices[step])) extend_in_child({{step, option}}, deviations - 1);
    }
    return tally.wrong.empty();
  }
  // Tries `count` plans of two and three deviations at random.
  bool sample(std::uint64_t count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto first = choices_of({});
    for (std::uint64_t i = 0; i < count && tally.wrong.empty(); ++i) {
      Plan plan = one_more({}, first, random);
      for (std::size_t more = 1 + random() % 2; more > 0 && tally.wrong.empty(); --more) {
        plan = one_more(plan, choices_of(plan), random);
      }
      if (tally.wrong.empty()) (void)choices_of(plan);
    }
    return tally.wrong.empty();
  }
  std::vector<std::uint16_t> choices_of(const Plan& plan, std::vector<std::string>* story = nullptr) {
    Schedule schedule(case_, stage_);
    stage_.story = story;
    const std::string wrong = schedule.run(plan);
    ++tally.schedules;
    tally.steps += schedule.outcome().choices.size();
    tally.blocked_max_ns = std::max(tally.blocked_max_ns, schedule.blocked_max_ns());
    if (!wrong.empty() && tally.wrong.empty()) {
      tally.wrong = wrong;
      tally.plan = plan;
    }
    return schedule.outcome().choices;
  }

 private:
  [[nodiscard]] std::vector<std::uint16_t> options_at(std::uint16_t choices) const {
    std::vector<std::uint16_t> options;
    for (std::uint16_t thread = 0; thread < 15; ++thread) {
      if ((choices >> thread & 1) != 0) options.push_back(thread);
    }
    if ((choices & Stage::kKillable) != 0) options.push_back(kKill);
    if ((choices & Stage::kKillable) != 0 && case_.stops) options.insert(options.end(), {kStop, kStopForLong});
    return options;
  }
  // In a process of its own, whose end gives the memory of killed processes back.
  void extend_in_child(const Plan& plan, std::size_t deviations) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    std::fflush(stdout);  // or the child prints it again
    const pid_t child = ::fork();
    if (child == 0) {
      tally = {};
      const bool fine = extend(plan, deviations);
      if (!fine) fmt::print("MEMLITH_EXPLORE_PLAN={}: {}\n", describe(tally.plan), tally.wrong);
      std::fflush(stdout);
      const std::uint64_t told[] = {tally.schedules, tally.steps, tally.blocked_max_ns};
      ::_exit(::write(ends[1], told, sizeof told) == sizeof told && fine ? 0 : 1);
    }
    ::close(ends[1]);
    std::uint64_t told[3] = {};
    const bool is_told = ::read(ends[0], told, sizeof told) == sizeof told;
    ::close(ends[0]);
    int status = 1;
    ::waitpid(child, &status, 0);
    tally.schedules += told[0];
    tally.steps += told[1];
    tally.blocked_max_ns = std::max(tally.blocked_max_ns, told[2]);
    if (is_told && status == 0) return;
    tally.wrong = "as the process for this deviation said";
    tally.plan = plan;
  }
  bool extend(const Plan& plan, std::size_t deviations) {
    const auto choices = choices_of(plan);
    if (!tally.wrong.empty()) return false;
    if (deviations == 0) return true;
    for (std::uint32_t step = plan.empty() ? 0 : plan.back().step + 1; step < choices.size(); ++step) {
      for (const std::uint16_t option : options_at(choices[step])) {
        Plan next = plan;
        next.push_back({step, option});
        if (!extend(next, deviations - 1)) return false;
      }
    }
    return true;
  }
  [[nodiscard]] Plan one_more(Plan plan, const std::vector<std::uint16_t>& choices, std::mt19937_64& random) const {
    const std::uint32_t from = plan.empty() ? 0 : plan.back().step + 1;
    for (int i = 0; i < 50 && from < choices.size(); ++i) {
      const auto step = static_cast<std::uint32_t>(from + random() % (choices.size() - from));
      const auto options = options_at(choices[step]);
      if (options.empty()) continue;
      plan.push_back({step, options[random() % options.size()]});
      break;
    }
    return plan;
  }

  const Case& case_;
  Stage stage_;
};

std::uint64_t number_in(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string word_of(const char* name) {
  std::string word = name;
  std::replace(word.begin(), word.end(), ' ', '_');
  return word;
}

class Explored : public ::testing::TestWithParam<Case> {};

// With MEMLITH_EXPLORE_PLAN: runs that one, and tells each step.
bool replayed(Explorer& explorer) {
  const char* const text = std::getenv("MEMLITH_EXPLORE_PLAN");
  if (text == nullptr) return false;
  std::vector<std::string> story;
  (void)explorer.choices_of(parse_plan(text), &story);
  for (const std::string& line : story) fmt::print("{}\n", line);
  return true;
}

TEST_P(Explored, KeepsItsPromisesInEveryOrder) {
  Explorer explorer(GetParam());
  if (!replayed(explorer)) {
    const std::uint64_t seed = number_in("MEMLITH_SEED", std::random_device{}());
    fmt::print("seed {}: MEMLITH_SEED={} replays the choices\n", seed, seed);
    (void)(explorer.explore(number_in("MEMLITH_EXPLORE_DEVIATIONS", 1)) &&
           explorer.sample(number_in("MEMLITH_EXPLORE_SAMPLES", 100), seed));
  }
  const Tally& tally = explorer.tally;
  EXPECT_EQ(tally.wrong, "") << "MEMLITH_EXPLORE_PLAN=" << describe(tally.plan) << " replays it";
  fmt::print("{} schedules, {} steps; without a stopped process no operation took longer than {} us\n", tally.schedules,
             tally.steps, tally.blocked_max_ns / 1000);
}

INSTANTIATE_TEST_SUITE_P(Shared, Explored, ::testing::ValuesIn(cases()),
                         [](const auto& each) { return word_of(each.param.name); });

struct Noticed {
  const char* name;
  core::Mutant mutant;
  const char* found_in;  // the case that is tried first
};
using core::Mutant;
constexpr Noticed kMutants[] = {
    {"skip_commit_wait", Mutant::shared_skip_commit_wait, "commits"},
    {"skip_reader_wait", Mutant::shared_skip_reader_wait, "commits"},
    {"look_after_flush", Mutant::shared_look_after_flush, "commits"},
    {"forget_failure", Mutant::shared_forget_failure, "commit flush fails"},
    {"flush_again", Mutant::shared_flush_again, "commit flush fails"},
    {"skip_checkpoint_flush", Mutant::shared_skip_checkpoint_flush, "truncate"},
    {"never_promise", Mutant::shared_never_promise, "line"},
    {"believe_another_leader", Mutant::shared_believe_another_leader, "alone after a failure"},
    {"pass_without_end", Mutant::shared_pass_without_end, "threads in line"},
    {"made_early", Mutant::shared_made_early, "commits"},
    {"skip_early_wait", Mutant::shared_skip_early_wait, "normal"},
    {"ignore_promise", Mutant::shared_ignore_promise, "line"},
    {"promise_for_ever", Mutant::shared_promise_for_ever, "line"},
    {"close_beside_checkpoint", Mutant::shared_close_beside_checkpoint, "closing behind"},
    {"follow_without_look", Mutant::shared_follow_without_look, "commits"},
    {"wake_no_leader", Mutant::shared_wake_no_leader, "commits"},
};

class Mutants : public ::testing::TestWithParam<Noticed> {};

TEST_P(Mutants, AreNoticed) {
  core::active_mutant = GetParam().mutant;
  std::uint64_t schedules = 0;
  for (const Case& each : cases()) {
    if (std::string_view(each.name) != GetParam().found_in) continue;
    Explorer explorer(each);
    (void)(replayed(explorer) ||
           (explorer.explore(1) && explorer.sample(number_in("MEMLITH_EXPLORE_SAMPLES", 100) * 10, 1)));
    schedules += explorer.tally.schedules;
    EXPECT_NE(explorer.tally.wrong, "") << schedules << " schedules show nothing";
    fmt::print("schedule {} of \"{}\", {}: {}\n", schedules, each.name, describe(explorer.tally.plan),
               explorer.tally.wrong);
  }
  core::active_mutant = core::Mutant::none;
}

INSTANTIATE_TEST_SUITE_P(Shared, Mutants, ::testing::ValuesIn(kMutants),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace memlith::test::exploration

int main(int argc, char** argv) {
  sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
  ::testing::InitGoogleTest(&argc, argv);
  memlith::test::exploration::Schedule::prepare();
  return RUN_ALL_TESTS();
}
