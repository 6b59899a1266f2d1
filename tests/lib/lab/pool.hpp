// Does pieces of work in child processes, a few at a time, so that a crash or a hang of one is a result like any other.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace memlith::lab {

struct Answer {
  nlohmann::json report;              // null if the child did not come to its end
  std::vector<std::uint64_t> hashes;  // of the distinct states it saw
  std::string died;                   // "aborted (SIGABRT)", "hung for 20 s", ...
  std::string position;               // where it was then
  std::string said;                   // the last it wrote to its standard error
  double seconds = 0;
};

struct Job {
  std::function<void(nlohmann::json& report, std::vector<std::uint64_t>& hashes)> act;  // in the child
  double seconds_max = 600;
};

// Asks `next` for jobs until it gives none, runs `processes` of them at a time, and hands the answers to `done` in the
// order of the jobs. Once `done` returns false, no more jobs are asked for, and later answers are dropped.
void run_jobs(std::size_t processes, const std::function<std::optional<Job>()>& next,
              const std::function<bool(const Answer&)>& done);

}  // namespace memlith::lab
