// The commands of `memlith sqlite`.
#include "commands.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>

namespace memlith::tool {

namespace {

void add_sqlite_copy(CLI::App* sqlite, CommandLine& line, const char* name, const char* what,
                     std::pair<const char*, const char*> source, std::pair<const char*, const char*> target,
                     MaybeFailure (*function)(const SqliteCopyArguments&)) {
  const auto arguments = std::make_shared<SqliteCopyArguments>();
  CLI::App* command = sqlite->add_subcommand(name, what);
  command->add_option(source.first, arguments->source, source.second)->required();
  command->add_option(target.first, arguments->target, fmt::format("{}; a failed copy leaves none", target.second))
      ->required();
  command->add_flag("--force", arguments->force, "Replace an existing target, and commits in a log left beside it");
  add_command(command, line, arguments, function);
}

}  // namespace

void add_sqlite_commands(CLI::App& app, CommandLine& line) {
  CLI::App* sqlite =
      app.add_subcommand("sqlite", "SQLite on memlith: copy databases, and find out which programs reach it");
  sqlite->require_subcommand(1);
  add_json(sqlite, line);
  add_sqlite_copy(sqlite, line, "export",
                  "Copy the last committed state of a database, clean or crashed, to an ordinary file; does not change "
                  "the database",
                  {"DB", "The database; its log DB.memlith beside it"}, {"TARGET", "The new file"}, run_sqlite_export);
  add_sqlite_copy(sqlite, line, "import",
                  "Check an ordinary database and copy it, for memlith to take over at the first opening; does not "
                  "change the source",
                  {"SOURCE", "An ordinary SQLite database"}, {"DB", "The new database"}, run_sqlite_import);
  const auto doctor = std::make_shared<SqliteDoctorArguments>();
  CLI::App* command = sqlite->add_subcommand(
      "doctor", "Say whether a program or a process reaches memlith, why not, and what to do; changes nothing");
  command->add_option("TARGET", doctor->target, "A program, the number of a process, or a database")->required();
  add_command(command, line, doctor, run_sqlite_doctor);
}

}  // namespace memlith::tool
