// memlith rocksdb release: makes the logs of a crashed database ordinary files (docs/rocksdb.md).
#include "commands.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "rocksdb/src/give_back.hpp"

namespace memlith::tool {

namespace {

struct ReleaseArguments {
  std::string folder;
  bool accept_damage = false;
  Format format = Format::text;
};

MaybeFailure run_release(const ReleaseArguments& arguments) {
  using memlith_rocksdb::Damage;
  std::error_code error;
  if (!std::filesystem::is_directory(arguments.folder, error)) {
    return tool_failure(MEMLITH_NOT_FOUND, fmt::format("{} is not a folder", arguments.folder),
                        "Name the folder of a RocksDB database, or that of its option wal_dir.");
  }
  const auto given =
      memlith_rocksdb::give_back(arguments.folder, arguments.accept_damage ? Damage::accept : Damage::refuse);
  if (!given) return tool_failure(given.error().category(), given.error().message());
  if (arguments.format == Format::json) {
    write_json({{"folder", arguments.folder}, {"logs", given->logs}, {"replayed_bytes", given->replayed_bytes}});
  } else if (given->logs == 0) {
    write_line(fmt::format("{}: no log was left with memlith", printable(arguments.folder)));
  } else {
    write_line(fmt::format("{}: {} log{} given back, {} bytes from the journal", printable(arguments.folder),
                           given->logs, given->logs == 1 ? "" : "s", given->replayed_bytes));
  }
  return {};
}

}  // namespace

void add_rocksdb_commands(CLI::App& app, CommandLine& line) {
  CLI::App* rocksdb = app.add_subcommand("rocksdb", "Give the logs of a crashed RocksDB database back");
  rocksdb->require_subcommand(1);
  add_json(rocksdb, line);
  const auto arguments = std::make_shared<ReleaseArguments>();
  CLI::App* command = rocksdb->add_subcommand("release",
                                              "Make the logs of a database ordinary files again, with all that was "
                                              "acknowledged, for a RocksDB without memlith. A clean close does so, "
                                              "too");
  command->add_option("DB", arguments->folder, "The database's folder, or that of its option wal_dir")->required();
  command->add_flag("--accept-damage", arguments->accept_damage,
                    "Also if acknowledged bytes are damaged or missing: gives back what there is. RocksDB then takes "
                    "the damage for the end of the log");
  add_command(command, line, arguments, run_release);
}

}  // namespace memlith::tool
