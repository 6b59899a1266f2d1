// memlith disktest: does a disk keep what it said was durable?
#pragma once

#include <CLI/CLI.hpp>

#include "cli/cli_words.hpp"

namespace memlith::tool {

void add_disktest_commands(CLI::App& app, CommandLine& line);

}  // namespace memlith::tool
