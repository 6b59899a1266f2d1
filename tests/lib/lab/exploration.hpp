// Every schedule of a small case of processes, for tests of their protocol: each order within a bound of preemptions,
// and the death of a process at each of its steps, which counts as one. A test prints each step of a bad schedule.
#pragma once

#include <algorithm>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lab/scheduler.hpp"

namespace memlith::lab {

struct Explored {
  std::uint64_t schedules = 0;
  std::uint64_t deaths = 0;  // schedules in which a process died
  bool complete = false;     // everything within the bound was tried
  std::string wrong;         // the first thing that was wrong, and how it came about
};

// `act` runs one schedule: it starts threads, lets the scheduler decide, joins them, and returns what is wrong, or
// nothing. Stops at the first schedule with something wrong, and after `schedules_max`.
inline Explored explore(const std::function<std::string(Scheduler&)>& act, std::size_t preemptions,
                        std::uint64_t schedules_max) {
  const auto run = [&act](std::unique_ptr<Scheduler>& scheduler, const std::vector<Decision>& like, std::string& wrong,
                          std::vector<std::string>* story) {
    std::vector<std::uint16_t> choices;
    for (const Decision& decision : like) choices.push_back(decision.chosen);
    scheduler->story = story;
    scheduler->timeouts_count = true;
    Scheduler::Outcome outcome = scheduler->run([&] { wrong = act(*scheduler); }, choices);
    if (outcome.stuck.empty()) return outcome.decisions;
    wrong = outcome.stuck;
    (void)scheduler.release();  // its threads are stuck
    scheduler = std::make_unique<Scheduler>();
    return outcome.decisions;
  };
  auto scheduler = std::make_unique<Scheduler>();
  Explored explored;
  std::vector<Decision> decisions;
  while (explored.schedules < schedules_max) {
    decisions = run(scheduler, decisions, explored.wrong, nullptr);
    ++explored.schedules;
    if (scheduler->has_died()) ++explored.deaths;
    if (!explored.wrong.empty()) {
      std::vector<std::string> story;
      std::string again;
      (void)run(scheduler, decisions, again, &story);
      constexpr std::size_t kLinesMax = 200;
      for (std::size_t i = story.size() - std::min(story.size(), kLinesMax); i < story.size(); ++i) {
        explored.wrong += "\n" + story[i];
      }
      return explored;
    }
    if (!next_schedule(decisions, preemptions)) {
      explored.complete = true;
      return explored;
    }
  }
  return explored;
}

}  // namespace memlith::lab
