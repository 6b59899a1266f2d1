// The commands `memlith rocksdb ...`.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/cli_words.hpp"

namespace memlith::tool {

// Adds `rocksdb` with its commands; `line` outlives the parsing and the run.
void add_rocksdb_commands(CLI::App& app, CommandLine& line);

}  // namespace memlith::tool
