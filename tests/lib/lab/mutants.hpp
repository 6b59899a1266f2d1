// `memlith-crashlab mutants`: switches on one planted fault after another and sees whether the laboratory notices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace memlith::lab {

struct MutantOptions {
  std::vector<std::string> only;  // none: all
  bool json = false;
  bool markdown = false;
  std::size_t jobs = 0;
  bool schedules = true;     // else without the scheduler
  double seconds_each = 40;  // a mutant not caught by then has survived, unless it hangs
};

// 0 when every one was caught.
int mutants_command(const MutantOptions& options);

// The names, each with its sentence, for `list`.
std::string describe_mutants();

}  // namespace memlith::lab
