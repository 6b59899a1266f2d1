// memlith-sqlite-bench: SQLite on memlith against SQLite as it is, for people who want to know what a commit costs.
//
// Exit codes: 0 done, and everything that was written could be read back; 1 failed, or typed wrong; 130 stopped by a
// signal.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>

#include "cli/cli_words.hpp"
#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "memlith/memlith.h"
#include "workloads.hpp"

namespace memlith::sqlite_bench {

namespace {

using tool::add_number;
using tool::between;

struct CommandLine {
  Settings settings;
  UpdateSizes update;
  DbbenchSizes dbbench;
  TatpSizes tatp;
  SpeedSizes speed;
  WritersSizes writers;
  ProcessesSizes processes;
  std::function<MaybeFailure()> run;
};

std::string usual_plugin() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path().parent_path() / "lib" / "memlith_sqlite.so").string();
}

template <class Sizes>
CLI::App* add(CLI::App& app, CommandLine& line, const char* name, const char* what, Sizes CommandLine::* sizes,
              MaybeFailure (*function)(const Settings&, const Sizes&)) {
  CLI::App* const command = app.add_subcommand(name, what);
  Settings& settings = line.settings;
  command->add_option("--dir", settings.folder, "Folder for the temporary databases")->capture_default_str();
  command
      ->add_option("--systems", settings.systems,
                   "Systems to compare: memlith, memlith-weak (with /MODE appended: in that journal mode), "
                   "memlith-shared, memlith-latest (its readers do not wait), wal-full, wal-normal, wal-off, "
                   "delete-full")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--memlith-journal", settings.memlith_journal, "Journal mode on memlith; all are equally durable")
      ->check(CLI::IsMember({"delete", "truncate", "persist", "memory", "off", "wal"}))
      ->capture_default_str();
  add_number(command, "--repetitions", settings.repetitions, 1, 1000, "Number of turns of each system");
  add_number(command, "--window-ms", settings.window_ms, 0, 86'400'000, "Of memlith-weak");
  add_number(command, "--log-mib", settings.log_mib, 0, 1024 * 1024, "Size of memlith's log; 0: memlith chooses");
  add_number(command, "--cache-kib", settings.cache_kib, 0, 1u << 30,
             "SQLite's page cache, for all systems; 0: SQLite chooses");
  add_number(command, "--mmap-mib", settings.mmap_mib, 0, 1024 * 1024, "PRAGMA mmap_size, for all systems");
  command->add_flag("--calls", settings.calls, "Count and time SQLite's calls to its VFS, for all systems");
  command->add_option("--plugin", settings.plugin, "memlith_sqlite.so")->capture_default_str();
  command->add_option("--record", settings.record, "Append the JSON lines to this file, too");
  command
      ->add_flag_callback("--json", [&settings] { settings.format = Format::json; }, "Print one JSON object per line");
  command->callback([&line, sizes, function] {
    line.run = [&line, sizes, function] { return function(line.settings, line.*sizes); };
  });
  return command;
}

void add_commands(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      add(app, line, "update", "Update single rows, each a transaction", &CommandLine::update, run_update);
  add_number(command, "--rows", line.update.rows, 1, 100'000'000, "Rows of the table");
  add_number(command, "--commits", line.update.commits, 1, 100'000'000, "In a repetition");
  add_number(command, "--indexes", line.update.indexes, 0, 1, "Number of indexes on the column that changes");
  command->add_flag_callback("--paper", [&line] { line.update.commits = 100'000; }, "100,000 commits per repetition");

  command = add(app, line, "dbbench", "Write values to keys, many per transaction", &CommandLine::dbbench, run_dbbench);
  add_number(command, "--keys", line.dbbench.keys, 1, 1'000'000'000, "Keys in the table");
  command->add_option("--value-bytes", line.dbbench.value_bytes, "A multiple of 8")
      ->check(between(8, 64 * 1024))
      ->check([](const std::string& text) {
        return text.find_first_not_of("0123456789") == std::string::npos && std::stoull(text) % 8 == 0
                   ? std::string()
                   : "must be a multiple of 8: " + text;
      })
      ->capture_default_str();
  add_number(command, "--writes", line.dbbench.writes, 1, 1'000'000'000,
             "Writes per repetition of each size; at least four transactions");
  add_number(command, "--transaction-kib", line.dbbench.transaction_kib, 1, 1024 * 1024,
             "KiB of values per transaction; or several: 4,64")
      ->delimiter(',');
  command->add_option("--pattern", line.dbbench.patterns, "random, sequential, or both")
      ->delimiter(',')
      ->check(CLI::IsMember({"random", "sequential"}))
      ->capture_default_str();
  command->add_flag_callback(
      "--paper",
      [&line] {
        line.dbbench.writes = 2'000'000;
        line.dbbench.transaction_kib = {4, 16, 64, 256, 1024};
      },
      "2,000,000 writes per repetition in transactions of 4 KiB to 1 MiB: takes hours");

  command = add(app, line, "tatp", "The telecom benchmark: 80 % reads", &CommandLine::tatp, run_tatp);
  add_number(command, "--subscribers", line.tatp.subscribers, 1, 10'000'000, "Or several: 1000,10000")->delimiter(',');
  command->add_option("--seconds", line.tatp.seconds, "Of a repetition")
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str();
  add_number(command, "--transactions", line.tatp.transactions, 0, 1'000'000'000,
             "Transactions per repetition, instead of a time; all systems must then end with the same content");
  command->add_flag_callback("--paper", [&line] { line.tatp.seconds = 60; }, "60 seconds per repetition: takes hours");

  command = add(app, line, "speed", "A mix of statements, each part timed", &CommandLine::speed, run_speed);
  add_number(command, "--size", line.speed.size, 1, 10'000, "Number of rows in each part");
  command->add_flag_callback("--paper", [&line] { line.speed.size = 200; }, "Size 200");
}

// Options that `writers` and `processes` share.
void add_sizes(CLI::App* command, WritersSizes& sizes) {
  add_number(command, "--readers", sizes.readers, 0, 256, "Readers beside them; several: 0,4")->delimiter(',');
  command->add_option("--workload", sizes.workloads, "one-row, 4-kib, select-update (BEGIN; SELECT; UPDATE; COMMIT)")
      ->delimiter(',')
      ->check(CLI::IsMember({"one-row", "4-kib", "select-update"}))
      ->capture_default_str();
  command->add_option("--seconds", sizes.seconds, "Of a run")->check(CLI::Range(0.001, 86400.0))->capture_default_str();
  add_number(command, "--rows", sizes.rows, 32, 100'000'000, "Rows of the table");
  add_number(command, "--busy-timeout-ms", sizes.busy_timeout_ms, 0, 86'400'000, "Of all connections");
  add_number(command, "--think-us", sizes.think_us, 0, 10'000'000, "Between a writer's transactions");
  add_number(command, "--flush-delay-us", sizes.flush_delay_us, 0, 10'000'000,
             "Added to each flush of all systems, as a slower disk would");
}

void add_writers(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      add(app, line, "writers", "Threads or processes that commit at once", &CommandLine::writers, run_writers);
  add_number(command, "--threads", line.writers.threads, 1, 256, "Writing threads; several: 1,2,4,8,16")
      ->delimiter(',');
  CLI::Option* const processes =
      add_number(command, "--processes", line.writers.processes, 1, 64, "Writing processes; several: 1,2,4")
          ->delimiter(',');
  // Processes alone, unless threads are asked for, too.
  command->parse_complete_callback([command, processes, &line] {
    if (processes->count() > 0 && command->get_option("--threads")->count() == 0) line.writers.threads.clear();
  });
  add_sizes(command, line.writers);

  command = add(app, line, "processes", "Processes that write to one database: mode shared, the engine, plain SQLite",
                &CommandLine::processes, run_processes);
  add_number(command, "--processes", line.processes.processes, 1, 64, "Writing processes; several: 1,2,4")
      ->delimiter(',');
  add_sizes(command, line.processes);
}

int run(int count, char** words) {
  CLI::App app(
      "Measures SQLite on memlith against plain SQLite, in turns; states what each promises; reads everything back");
  app.name("memlith-sqlite-bench");
  app.require_subcommand(1);
  CommandLine line;
  line.settings.plugin = usual_plugin();
  add_commands(app, line);
  add_writers(app, line);
  return tool::parse_and_run(app, count, words, line.run, line.settings.format);
}

}  // namespace

}  // namespace memlith::sqlite_bench

int main(int count, char** words) {
  return memlith::tool::run_program("memlith-sqlite-bench", count, words, memlith::sqlite_bench::run);
}
