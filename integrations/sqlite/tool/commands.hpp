// The commands `memlith sqlite ...`: what each takes, and one function each.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/cli_words.hpp"
#include "cli/failure.hpp"
#include "cli/output.hpp"

namespace memlith::tool {

// A SQLite database and the file that the copy shall be.
struct SqliteCopyArguments {
  std::string source;
  std::string target;
  bool force = false;
  Format format = Format::text;
};

// A program, the number of a process, or a database.
struct SqliteDoctorArguments {
  std::string target;
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_sqlite_doctor(const SqliteDoctorArguments& arguments);
[[nodiscard]] MaybeFailure run_sqlite_export(const SqliteCopyArguments& arguments);
[[nodiscard]] MaybeFailure run_sqlite_import(const SqliteCopyArguments& arguments);

// Adds `sqlite` with its commands; `line` outlives the parsing and the run.
void add_sqlite_commands(CLI::App& app, CommandLine& line);

}  // namespace memlith::tool
