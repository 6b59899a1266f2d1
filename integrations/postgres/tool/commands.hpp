// The commands `memlith postgres ...`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/cli_words.hpp"

namespace memlith::tool {

// Adds `postgres` with its commands; `line` outlives the parsing and the run.
void add_postgres_commands(CLI::App& app, CommandLine& line);

// For `memlith recover`, which takes the data directory of a server that crashed, too.
bool is_postgres_to_recover(const std::string& path);
MaybeFailure recover_postgres(const std::string& data, Format format);

}  // namespace memlith::tool
