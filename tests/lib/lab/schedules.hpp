// `memlith-crashlab schedule`: tries the interleavings of small cases, one after another, and judges what a power cut
// at each operation of each would leave.
//
// A schedule is told in one line, which does it again:
//   schedule WORKLOAD [in_flight=N] [mutant=NAME] choices=INDEX:OPTION,... [cut=AT:none|all|0xMASK]
// At decision INDEX, counted from 0, option OPTION was taken instead of option 0 (scheduler.hpp). The power went after
// AT operations on the disk; MASK has a bit for each unflushed item that was kept.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedule_workloads.hpp"

namespace memlith::lab {

struct ScheduleOptions {
  std::string workload = "all";
  std::optional<std::size_t> preemptions;  // else what the case's row says
  std::uint32_t in_flight = core::LogOptions{}.in_flight_max;
  std::uint64_t schedules_max = 0;  // of a case; 0: all there are
  std::string mutant;
  bool json = false;
  bool markdown = false;
  std::size_t jobs = 0;
};

// 0 when nothing was wrong, and everything within the bound was tried or `schedules_max` said otherwise.
int schedule_run_command(const ScheduleOptions& options);
int schedule_replay_command(const std::string& line, bool as_json);
int schedule_list_command();
// True if the line's schedule shows something wrong. Only in a process that ends soon: threads may be stuck in the
// engine.
bool schedule_goes_wrong(const std::string& line);

// Looks for a schedule that shows the mutant that is switched on: {"schedules": N}, and if there is one its "workload",
// "what", "how" and "replay". `about`: only in cases whose name begins so.
void hunt_schedules(const std::string& mutant, std::string_view about, double seconds_max, nlohmann::json& report);

}  // namespace memlith::lab
