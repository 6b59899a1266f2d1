// memlith steps: the command, and the lines that `memlith browse` shows of runs, too.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/cli_words.hpp"
#include "memlith/steps_records.hpp"

namespace memlith::tool {

void add_steps_commands(CLI::App& app, CommandLine& line);

// A line for a run, whose name takes `width` columns, and for call `number` of one that a process executes or not.
[[nodiscard]] std::string line_of(const steps::RunInfo& run, const std::string& status, std::size_t width);
[[nodiscard]] std::string line_of(const steps::Call& call, std::size_t number, bool is_running);

}  // namespace memlith::tool
