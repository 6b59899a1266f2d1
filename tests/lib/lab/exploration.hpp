// Schedules of a small case of processes, for tests of their protocol: every order within a bound of preemptions, and
// the death of a process at each of its steps, which counts as one; or orders that are drawn. A test prints each step
// of a bad schedule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lab/scheduler.hpp"

namespace memlith::lab {

struct Explored {
  std::uint64_t schedules = 0;
  std::uint64_t steps = 0;
  std::uint64_t deaths = 0;  // schedules in which a process died
  bool complete = false;     // everything within the bound was tried
  std::string wrong;         // the first thing that was wrong, and how it came about
};

// Runs one schedule: starts threads, lets the scheduler decide, joins them, and returns what is wrong, or nothing.
using Act = std::function<std::string(Scheduler&)>;

// Runs schedules, and adds them up.
class Attempts {
 public:
  Attempts(const Act& act, Explored& explored) : act_(act), explored_(explored) {}
  // One that makes these decisions first, which become all that it made. False: something is wrong with it.
  bool run(std::vector<Decision>& decisions) {
    const std::vector<Decision> wanted = decisions;
    decisions = once(wanted, explored_.wrong, nullptr);
    ++explored_.schedules;
    if (scheduler_->has_died()) ++explored_.deaths;
    if (explored_.wrong.empty()) return true;
    std::vector<std::string> story;
    std::string again;
    (void)once(wanted, again, &story);
    constexpr std::size_t kLinesMax = 200;
    for (std::size_t i = story.size() - std::min(story.size(), kLinesMax); i < story.size(); ++i) {
      explored_.wrong += "\n" + story[i];
    }
    return false;
  }

 private:
  std::vector<Decision> once(const std::vector<Decision>& like, std::string& wrong, std::vector<std::string>* story) {
    std::vector<std::uint16_t> choices;
    for (const Decision& decision : like) choices.push_back(decision.chosen);
    scheduler_->story = story;
    scheduler_->timeouts_count = true;
    Scheduler::Outcome outcome = scheduler_->run([&] { wrong = act_(*scheduler_); }, choices);
    explored_.steps += outcome.steps;
    if (outcome.stuck.empty()) return outcome.decisions;
    wrong = outcome.stuck;
    (void)scheduler_.release();  // its threads are stuck
    scheduler_ = std::make_unique<Scheduler>();
    return outcome.decisions;
  }

  const Act& act_;
  Explored& explored_;
  std::unique_ptr<Scheduler> scheduler_ = std::make_unique<Scheduler>();
};

// Stops at the first schedule with something wrong, and after `schedules_max`.
inline Explored explore(const Act& act, std::size_t preemptions, std::uint64_t schedules_max) {
  Explored explored;
  Attempts attempts(act, explored);
  std::vector<Decision> decisions;
  while (explored.schedules < schedules_max && attempts.run(decisions)) {
    explored.complete = !next_schedule(decisions, preemptions);
    if (explored.complete) break;
  }
  return explored;
}

// `count` schedules, each of which takes another option than the default at two or three steps: each is drawn from
// those behind the one before, of the schedule that is tried up to there.
inline Explored sample(const Act& act, std::uint64_t count, std::uint64_t seed) {
  Explored explored;
  Attempts attempts(act, explored);
  std::mt19937_64 random(seed);
  std::vector<Decision> first;
  if (!attempts.run(first)) return explored;
  for (; count > 0; --count) {
    std::vector<Decision> drawn = first;
    std::size_t from = 0;
    for (std::size_t more = 2 + random() % 2; more > 0 && from < drawn.size(); --more) {
      from += random() % (drawn.size() - from) + 1;
      drawn.resize(from);
      drawn.back().chosen = static_cast<std::uint16_t>(1 + random() % (drawn.back().options - 1));
      if (!attempts.run(drawn)) return explored;
    }
  }
  explored.complete = true;
  return explored;
}

}  // namespace memlith::lab
