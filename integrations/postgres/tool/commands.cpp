// memlith postgres run: starts a program with the library that keeps PostgreSQL's pages whole (docs/postgres.md).
// memlith postgres recover: makes the data directory of a server that crashed an ordinary one.
#include "commands.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "postgres/src/cluster.hpp"
#include "postgres/src/keeper.hpp"

namespace memlith::tool {

namespace {

constexpr int kExitRefused = 126;  // as shells say of a program that cannot be started
constexpr int kExitNotFound = 127;

struct ClusterArguments {
  std::string data;
  std::string log;
  std::vector<std::string> command;
  Format format = Format::text;
};

std::string find_library() {
  const std::string own = memlith_postgres::real_path("/proc/self/exe");
  const std::string folder = memlith_postgres::folder_of(own);
  for (const char* place : {"/../lib/", "/../" MEMLITH_LIBRARY_FOLDER "/"}) {
    const std::string path = memlith_postgres::real_path(folder + place + "memlith_postgres.so");
    if (!path.empty()) return path;
  }
  return {};
}

MaybeFailure run_postgres(const ClusterArguments& arguments) {
  const std::string library = find_library();
  if (library.empty()) {
    return tool_failure(MEMLITH_NOT_FOUND, "memlith_postgres.so is not in the folder of memlith's libraries",
                        "Install memlith with its plugins.");
  }
  const auto cluster = memlith_postgres::Cluster::open(arguments.data, arguments.log);
  if (!cluster) return tool_failure(cluster.error().category(), cluster.error().message());
  const char* const before = std::getenv("LD_PRELOAD");
  const std::string preloaded = before == nullptr || *before == '\0' ? library : library + ":" + before;
  ::setenv("LD_PRELOAD", preloaded.c_str(), 1);
  ::setenv("PGDATA", cluster->data().c_str(), 1);
  ::setenv(memlith_postgres::kLogVariable, cluster->log().c_str(), 1);
  std::vector<std::string> copies = arguments.command;
  std::vector<char*> words;
  for (std::string& each : copies) words.push_back(each.data());
  words.push_back(nullptr);
  ::execvp(words.front(), words.data());
  Failure failure = errno_failure(errno, fmt::format("cannot start {}", arguments.command.front()));
  failure.exit_code = errno == ENOENT ? kExitNotFound : kExitRefused;
  return failure;
}

MaybeFailure run_recover_postgres(const ClusterArguments& arguments) {
  const auto recovered = memlith_postgres::recover(arguments.data, arguments.log);
  if (!recovered) return tool_failure(recovered.error().category(), recovered.error().message());
  if (arguments.format == Format::json) {
    write_json({{"data", arguments.data},
                {"recovered", recovered->was_marked},
                {"batches", recovered->replayed.batches},
                {"pages", recovered->replayed.pages},
                {"skipped", recovered->replayed.skipped},
                {"bytes", recovered->replayed.bytes}});
  } else if (!recovered->was_marked) {
    write_line(fmt::format("{}: nothing to recover; it is an ordinary data directory", printable(arguments.data)));
  } else {
    write_line(fmt::format("{}: recovered, {}; it is an ordinary data directory now", printable(arguments.data),
                           memlith_postgres::describe(recovered->replayed)));
  }
  return {};
}

CLI::App* add_cluster_command(CLI::App* postgres, const char* name, const char* what,
                              const std::shared_ptr<ClusterArguments>& arguments) {
  CLI::App* command = postgres->add_subcommand(name, what);
  command->add_option("--log", arguments->log, "The folder of the log; DATA.memlith if it is not given");
  command->add_option("DATA", arguments->data, "The data directory of a cluster of PostgreSQL 15 or 17")->required();
  return command;
}

}  // namespace

bool is_postgres_to_recover(const std::string& path) { return memlith_postgres::Cluster::is_marked(path); }

MaybeFailure recover_postgres(const std::string& data, Format format) {
  return run_recover_postgres({.data = data, .log = {}, .command = {}, .format = format});
}

void add_postgres_commands(CLI::App& app, CommandLine& line) {
  CLI::App* postgres = app.add_subcommand("postgres", "Run PostgreSQL without full page writes, and recover its pages");
  postgres->require_subcommand(1);
  add_json(postgres, line);
  const auto run = std::make_shared<ClusterArguments>();
  CLI::App* command = add_cluster_command(postgres, "run",
                                          "Run `postgres` or `pg_ctl` with pages that cannot tear, and with "
                                          "full_page_writes off. Exit codes: those of the program; 126, it cannot be "
                                          "started; 127, there is no such program",
                                          run);
  command->add_option("PROGRAM", run->command, "The program and its arguments, after --")->required();
  add_command(command, line, run, run_postgres);
  const auto recover = std::make_shared<ClusterArguments>();
  command =
      add_cluster_command(postgres, "recover",
                          "Bring the pages of a server that crashed home, for a PostgreSQL without memlith, which "
                          "refuses the data directory before. A clean stop does so, too",
                          recover);
  add_command(command, line, recover, run_recover_postgres);
}

}  // namespace memlith::tool
