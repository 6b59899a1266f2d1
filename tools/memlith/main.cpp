// The memlith command line: what may be typed, and exit codes.
//
// 0: done. 1: failed, or typed wrong. 2: `verify` found damage. 3: `verify` found a store of another format version.
// 130: stopped by a signal. The tool uses only the public C interface, so whatever it can do a program of yours can do too.
#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli_words.hpp"
#include "commands.hpp"
#include "io_names.hpp"
#include "memlith/memlith.h"
#include "trackers.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kRegionMibMax = 256 * 1024;
constexpr std::uint64_t kLogMibMin = 16;
constexpr std::uint64_t kLogMibMax = 64 * 1024;

// Everything that may be typed lands here; `run` is the command that was.
struct CommandLine {
  StoreArguments store;
  StatArguments stat;
  SqliteCopyArguments sqlite;
  BenchPersistArguments persist;
  BenchTailArguments tail;
  BenchRecoveryArguments recovery;
  BenchOpenArguments open;
  std::vector<std::string> help_words;
  Format format = Format::text;
  std::function<MaybeFailure()> run;
};

std::vector<std::string> tracker_names() {
  std::vector<std::string> names;
  for (const TrackerName& tracker : kTrackers) names.emplace_back(tracker.name);
  return names;
}

void add_io(CLI::App* command, std::string& io) {
  command
      ->add_option("--io", io,
                   "How the store uses the disk: auto, posix (system calls only) or uring (io_uring for all)")
      ->check(CLI::IsMember(std::vector<std::string>(kIoNames.begin(), kIoNames.end())))
      ->capture_default_str();
}

// Before a command or behind it, `--json` means the same.
void add_json(CLI::App* command, CommandLine& line) {
  command->add_flag_callback("--json", [&line] { line.format = Format::json; }, "One JSON object a line");
}

template <class Arguments>
void add_command(CLI::App* command, CommandLine& line, Arguments& arguments,
                 MaybeFailure (*function)(const Arguments&)) {
  add_json(command, line);
  command->callback([&line, &arguments, function] {
    line.run = [&line, &arguments, function] {
      arguments.format = line.format;
      return function(arguments);
    };
  });
}

void add_store_command(CLI::App& app, CommandLine& line, const char* name, const char* what,
                       MaybeFailure (*function)(const StoreArguments&)) {
  CLI::App* command = app.add_subcommand(name, what);
  command->add_option("STORE", line.store.path, "A store's folder, or a file with its log FILE.memlith beside it")
      ->required();
  add_command(command, line, line.store, function);
}

void add_stat(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand(
      "stat", "Show what the process that has a store open is doing with it: persists, latencies, log, checkpoint");
  command->add_option("STORE", line.stat.path, "A store's folder, or a file with its log FILE.memlith beside it")
      ->required();
  command->add_flag("--watch", line.stat.watch,
                    "A line each interval, of what happened in it, but latencies of all persists so far; until "
                    "interrupted or until the store is closed");
  command->add_option("--interval", line.stat.interval_s, "Seconds between the lines of --watch")
      ->check(seconds_between(0.01, 3600.0))
      ->capture_default_str();
  add_command(command, line, line.stat, run_stat);
}

void add_sqlite_copy(CLI::App* sqlite, CommandLine& line, const char* name, const char* what,
                     std::pair<const char*, const char*> source, std::pair<const char*, const char*> target,
                     MaybeFailure (*function)(const SqliteCopyArguments&)) {
  CLI::App* command = sqlite->add_subcommand(name, what);
  command->add_option(source.first, line.sqlite.source, source.second)->required();
  command
      ->add_option(target.first, line.sqlite.target,
                   fmt::format("{}, which is there as a whole and on the medium or not at all", target.second))
      ->required();
  command->add_flag("--force", line.sqlite.force, "Replace what is there, and commits in a log that was left there");
  add_command(command, line, line.sqlite, function);
}

void add_sqlite(CLI::App& app, CommandLine& line) {
  CLI::App* sqlite = app.add_subcommand("sqlite", "Copy SQLite databases out of memlith and into it");
  sqlite->require_subcommand(1);
  add_json(sqlite, line);
  add_sqlite_copy(sqlite, line, "export",
                  "Copy the last committed state of a database, clean or crashed, to an ordinary file; changes nothing "
                  "of the database",
                  {"DB", "The database; its log DB.memlith beside it"}, {"TARGET", "The new file"}, run_sqlite_export);
  add_sqlite_copy(sqlite, line, "import",
                  "Copy an ordinary database, checked, to where memlith shall take it over when it is first opened; "
                  "changes nothing of the source",
                  {"SOURCE", "An ordinary SQLite database"}, {"DB", "The new database"}, run_sqlite_import);
}

// `--peers`, and what goes with it only. The defaults are those of the table then.
void add_peers(CLI::App* command, BenchPersistArguments& arguments) {
  CLI::Option* const peers = command->add_flag_callback(
      "--peers",
      [command, &arguments] {
        arguments.peers = true;
        if (command->count("--pages") == 0) arguments.pages = {1, 4, 16, 64, 256, 1024};
        if (command->count("--tracker") == 0) arguments.trackers = {"explicit", "fault", "scan"};
      },
      "Instead: 4 KiB to 4 MiB of random pages, by memlith with each tracker, pwrite + fsync, msync and raw, in turn");
  for (const char* other : {"--threads", "--scope", "--async", "--raw", "--same-pages", "--breakdown", "--io"})
    peers->excludes(command->get_option(other));
  command
      ->add_option("--fsync-dir", arguments.fsync_folders,
                   "With --peers: a folder on another file system to measure pwrite + fsync in as well; may be "
                   "repeated")
      ->needs(peers);
  command->add_option("--record", arguments.record, "With --peers: a file that takes the JSON lines as well")
      ->needs(peers);
}

void add_bench_persist(CLI::App* bench, CommandLine& line) {
  BenchPersistArguments& arguments = line.persist;
  CLI::App* command =
      bench->add_subcommand("persist",
                            "Time durable persists against raw writes and flushes of as many bytes, interleaved");
  command->add_option("--tracker", arguments.trackers, "auto, scan, explicit, fault; or several: a,b")
      ->delimiter(',')
      ->check(CLI::IsMember(tracker_names()))
      ->capture_default_str();
  add_number(command, "--pages", arguments.pages, 1, kRegionMibMax * 256,
             "Pages changed in a round; or several: 1,16,256")
      ->delimiter(',');
  add_number(command, "--bytes-per-page", arguments.bytes_per_page, 1, 4096, "Bytes changed in each of them");
  add_number(command, "--region-mib", arguments.region_mib, 1, kRegionMibMax, "Size of a thread's region");
  add_number(command, "--log-mib", arguments.log_mib, 0, kLogMibMax,
             "Size of the store's log; one whose half holds the whole run keeps checkpoints out of it. 0: as usual");
  add_number(command, "--threads", arguments.threads, 1, 64, "Threads, each with its own region and its own raw file");
  add_io(command, arguments.io);
  command->add_option("--dir", arguments.folder, "Where the temporary store and raw files go")->capture_default_str();
  CLI::Option* seconds =
      command->add_option("--seconds", arguments.seconds,
                          "Time for a line; at least 300 rounds, or 20 phases of each side, are done");
  seconds->check(seconds_between(0.0, 86400.0))->capture_default_str();
  command->add_option("--rounds", arguments.rounds, "Rounds for a line; with threads, phases of 100 ms of each side")
      ->check(between(1, 1'000'000'000))
      ->excludes(seconds);
  command
      ->add_option_function<std::string>(
          "--scope",
          [&arguments](const std::string& name) {
            arguments.scope = name == "stores" ? Scope::stores : Scope::persist;
          },
          "What a latency contains: stores (stores + persist) or persist (the call alone). "
          "Default: stores; for explicit, touch + persist")
      ->check(CLI::IsMember({"stores", "persist"}));
  command->add_flag("--async", arguments.asynchronous,
                    "Time memlith_persist_async, until the bytes are captured; each round then waits until they are "
                    "durable");
  command
      ->add_option_function<std::string>(
          "--raw",
          [&arguments](const std::string& name) {
            arguments.raw = name == "pages" ? RawSide::pages : name == "captured" ? RawSide::captured : RawSide::bytes;
          },
          "What the raw side does: bytes (writes as many as changed), pages (writes the whole pages they lie in) or "
          "captured (copies and checksums what changed, and writes that: the least of any program that copies)")
      ->check(CLI::IsMember({"bytes", "pages", "captured"}));
  command->add_flag("--same-pages", arguments.same_pages,
                    "Change the same bytes of the same pages in every round: how often do they go home?");
  CLI::Option* const breakdown = command->add_flag("--breakdown", arguments.breakdown,
                                                   "Instead: the steps of a persist one by one, synchronous, "
                                                   "asynchronous, and asynchronous within a flush window");
  for (const char* other : {"--threads", "--scope", "--async", "--raw", "--same-pages", "--io"}) {
    breakdown->excludes(command->get_option(other));
  }
  add_peers(command, arguments);
  add_command(command, line, arguments, run_bench_persist);
}

void add_bench_tail(CLI::App* bench, CommandLine& line) {
  BenchTailArguments& arguments = line.tail;
  CLI::App* command = bench->add_subcommand(
      "tail", "Time the slowest persists while checkpoints run, against raw writes and flushes beside the same load");
  command->add_option("--dir", arguments.folder, "Where the temporary store and raw files go")->capture_default_str();
  command->add_option("--tracker", arguments.tracker, "auto, scan, explicit or fault")
      ->check(CLI::IsMember(tracker_names()))
      ->capture_default_str();
  add_number(command, "--pages", arguments.pages, 1, kRegionMibMax * 256, "Pages changed in a round");
  add_number(command, "--bytes-per-page", arguments.bytes_per_page, 1, 4096, "Bytes changed in each of them");
  add_number(command, "--region-mib", arguments.region_mib, 1, kRegionMibMax, "Size of the region");
  add_number(command, "--log-mib", arguments.log_mib, 1, kLogMibMax,
             "Size of the log, and of the file that raw writes around in; a checkpoint begins at half of it");
  add_number(command, "--phases", arguments.phases, 1, 10'000, "How often each side has its turn");
  add_number(command, "--rate", arguments.rate, 0, 10'000'000,
             "Rounds a second on every side, for a load that the disk can carry for ever. 0: without a pause");
  CLI::Option* seconds = command->add_option("--seconds", arguments.seconds, "Time of each side, all phases together");
  seconds->check(seconds_between(0.0, 86400.0))->capture_default_str();
  command->add_option("--rounds", arguments.rounds, "Rounds of a phase that count")
      ->check(between(1, 1'000'000'000))
      ->excludes(seconds);
  add_command(command, line, arguments, run_bench_tail);
}

void add_bench_recovery(CLI::App* bench, CommandLine& line) {
  CLI::App* command =
      bench->add_subcommand("recovery", "Time recovery after a crash against a sequential write of as many bytes");
  command->add_option("--dir", line.recovery.folder, "Where the temporary store and raw file go")
      ->capture_default_str();
  add_number(command, "--log-mib", line.recovery.log_mib, kLogMibMin, kLogMibMax,
             "Size of the log, which is filled to about 90 %; a small one to 70 %, or what its segments allow");
  add_number(command, "--region-mib", line.recovery.region_mib, 1, kRegionMibMax,
             "Size of the region whose pages are committed at random; a small one is committed over and over");
  add_io(command, line.recovery.io);
  add_command(command, line, line.recovery, run_bench_recovery);
}

void add_bench_open(CLI::App* bench, CommandLine& line) {
  CLI::App* command = bench->add_subcommand("open", "Time opening a clean store with a large region");
  command->add_option("--dir", line.open.folder, "Where the temporary store goes")->capture_default_str();
  add_number(command, "--region-mib", line.open.region_mib, 1, kRegionMibMax,
             "Size of the region; its disk space is reserved");
  command->add_option("--tracker", line.open.tracker, "auto, scan, explicit or fault")
      ->check(CLI::IsMember(tracker_names()))
      ->capture_default_str();
  add_command(command, line, line.open, run_bench_open);
}

MaybeFailure print_help(CLI::App& app, const std::vector<std::string>& words) {
  app.clear();  // or it would take `help` for the command whose help is wanted
  const CLI::App* command = &app;
  std::string parents;
  for (const std::string& word : words) {
    const auto found = command->get_subcommands([&word](const CLI::App* each) { return each->get_name() == word; });
    if (found.empty()) {
      return tool_failure(MEMLITH_INVALID, fmt::format("there is no command {} to help with", word),
                          "memlith help lists what there is.");
    }
    parents += (parents.empty() ? "" : " ") + command->get_name();
    command = found.front();
  }
  std::string text = command->help(parents);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  write_line(text);
  return {};
}

void describe(CLI::App& app, CommandLine& line) {
  app.set_version_flag("--version", fmt::format("memlith {}", memlith_version()));
  app.require_subcommand(1);
  add_json(&app, line);
  add_store_command(app, line, "info", "Show what a store holds; changes nothing", run_info);
  add_store_command(app, line, "verify",
                    "Check every structure of a store; changes nothing. Exit codes: 0, sound; 1, not examined; 2, "
                    "damaged; "
                    "3, written in another format version, which this memlith does not read",
                    run_verify);
  add_store_command(app, line, "recover", "Replay the log of a store that was not closed, and close it", run_recover);
  add_stat(app, line);
  add_sqlite(app, line);
  CLI::App* bench = app.add_subcommand("bench", "Measure memlith on this machine");
  bench->require_subcommand(1);
  add_json(bench, line);
  add_bench_persist(bench, line);
  add_bench_tail(bench, line);
  add_bench_recovery(bench, line);
  add_bench_open(bench, line);
  CLI::App* help = app.add_subcommand("help", "Show this, or what a command takes");
  help->add_option("COMMAND", line.help_words, "For example: bench persist");
  help->callback([&app, &line] { line.run = [&app, &line] { return print_help(app, line.help_words); }; });
}

// `--watch 5`: to the parser the number is the store, and the store is one word too many.
MaybeFailure check_watch(std::span<char* const> arguments) {
  if (std::none_of(arguments.begin(), arguments.end(), [](std::string_view each) { return each == "stat"; })) return {};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    std::string value;
    if (word.starts_with("--watch=")) {
      value = word.substr(word.find('=') + 1);
    } else if (word == "--watch" && i + 1 < arguments.size()) {
      value = arguments[i + 1];
      double seconds = 0;
      struct stat ignored{};
      const bool is_store = ::stat(value.c_str(), &ignored) == 0;
      if (is_store || !CLI::detail::lexical_cast(value, seconds)) continue;
    } else {
      continue;
    }
    return tool_failure(MEMLITH_INVALID, fmt::format("--watch takes no number, and {} was given", value),
                        "The seconds between two lines are --interval's: memlith stat --watch --interval SECONDS "
                        "STORE");
  }
  return {};
}

int run_command_line(int argument_count, char** arguments) {
  CLI::App app{"memlith: plain memory that survives crashes", "memlith"};
  CommandLine line;
  describe(app, line);
  // Parsing may stop before it comes to this.
  const bool json = std::any_of(arguments, arguments + argument_count,
                                [](const char* argument) { return std::string_view(argument) == "--json"; });
  const std::span<char* const> words(arguments, static_cast<std::size_t>(argument_count));
  if (const MaybeFailure failure = check_watch(words)) {
    return report_failure(*failure, json ? Format::json : Format::text);
  }
  try {
    app.parse(argument_count, arguments);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return show(app, error);
    const Failure failure =
        tool_failure(MEMLITH_INVALID, parse_problem(app, error),
                     "memlith help says what may be typed; memlith help COMMAND says it of one command.");
    return report_failure(failure, json ? Format::json : Format::text);
  }
  return exit_code_of(line.run(), line.format);
}

}  // namespace

}  // namespace memlith::tool

int main(int argument_count, char** arguments) {
  return memlith::tool::run_program("memlith", argument_count, arguments, memlith::tool::run_command_line);
}
