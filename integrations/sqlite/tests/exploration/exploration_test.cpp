// Mode shared, explored: every order of the steps of small cases that deviates once from the default order, and a drawn
// part of those that deviate at two or three steps (MEMLITH_EXPLORE_SAMPLES of each case; ./dev soak
// sqlite-exploration), over a disk that loses what was not flushed. A deviation may be the death or the stop of a
// process.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "lab/exploration.hpp"
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
void write_meanwhile(Schedule& s, int me) {
  s.pause(302);  // the flush of the log's header is over, and the first process commits without one
  s.write(me);
}
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
      {"turns",
       "two processes want the write lock while another one commits again and again",
       {{0, Kind::normal, three_writes}, {1, Kind::normal, write_meanwhile}, {2, Kind::normal, write_meanwhile}},
       -1,
       9,
       false,
       true},
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

std::uint64_t number_in(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string word_of(const char* name) {
  std::string word = name;
  std::replace(word.begin(), word.end(), ' ', '_');
  return word;
}

lab::Explored explore(const Case& its, const lab::Act& act) {
  return lab::explore(act, number_in("MEMLITH_EXPLORE_DEVIATIONS", its.takes_turns ? 2 : 1), UINT64_MAX);
}
std::uint64_t samples() { return number_in("MEMLITH_EXPLORE_SAMPLES", 300); }

// Adds to `blocked_max_ns`, the longest time that an operation took.
lab::Act act_of(const Case& its, std::uint64_t& blocked_max_ns) {
  return [&](lab::Scheduler& scheduler) {
    Schedule schedule(its, scheduler);
    std::string wrong = schedule.run();
    blocked_max_ns = std::max(blocked_max_ns, schedule.blocked_max_ns());
    return wrong;
  };
}

class Explored : public ::testing::TestWithParam<Case> {};

TEST_P(Explored, KeepsItsPromisesInEveryOrder) {
  std::uint64_t blocked_max_ns = 0;
  const lab::Act act = act_of(GetParam(), blocked_max_ns);
  const lab::Explored all = explore(GetParam(), act);
  EXPECT_EQ(all.wrong, "");
  const std::uint64_t seed = number_in("MEMLITH_SEED", std::random_device{}());
  fmt::print("seed {}: MEMLITH_SEED={} replays the choices\n", seed, seed);
  const lab::Explored some = lab::sample(act, samples(), seed);
  EXPECT_EQ(some.wrong, "");
  fmt::print(
      "{} schedules and {} drawn, {} steps, {} deaths; without a stopped process no operation took longer than {} "
      "us\n",
      all.schedules, some.schedules, all.steps + some.steps, all.deaths + some.deaths, blocked_max_ns / 1000);
}

INSTANTIATE_TEST_SUITE_P(Shared, Explored, ::testing::ValuesIn(cases()),
                         [](const auto& each) { return word_of(each.param.name); });

struct Noticed {
  const char* name;
  core::Mutant mutant;
  const char* found_in;  // a case
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
    {"ignore_promise", Mutant::shared_ignore_promise, "turns"},
    {"promise_for_ever", Mutant::shared_promise_for_ever, "line"},
    {"close_beside_checkpoint", Mutant::shared_close_beside_checkpoint, "closing behind"},
    {"follow_without_look", Mutant::shared_follow_without_look, "commits"},
    {"wake_no_leader", Mutant::shared_wake_no_leader, "commits"},
};

class Mutants : public ::testing::TestWithParam<Noticed> {};

TEST_P(Mutants, AreNoticed) {
  for (const Case& each : cases()) {
    if (std::string_view(each.name) != GetParam().found_in) continue;
    std::uint64_t blocked_max_ns = 0;
    const lab::Act act = act_of(each, blocked_max_ns);
    core::active_mutant = GetParam().mutant;
    lab::Explored found = explore(each, act);
    if (found.wrong.empty()) found = lab::sample(act, 3 * samples(), 1);
    core::active_mutant = core::Mutant::none;
    EXPECT_NE(found.wrong, "");
    fmt::print("schedule {} of \"{}\": {}\n", found.schedules, each.name,
               found.wrong.substr(0, found.wrong.find('\n')));
  }
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
