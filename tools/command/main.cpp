// The memlith command line: what may be typed, and exit codes.
//
// `run` exits as the program that it starts does, or with 126 or 127 if it starts none. The others:
// 0: done. 1: failed, or typed wrong. 2: `verify` found damage or pointers, or `disktest check` losses. 3: `verify`
// found a store of another format version. 4: `dump --skip` left something out. 130: stopped by a signal. The tool uses
// only the public C interface, so whatever it can do a program of yours can do too.
#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "archive.hpp"
#include "cli/bad_sector.hpp"
#include "cli/cli_words.hpp"
#include "commands.hpp"
#include "disktest.hpp"
#include "dump.hpp"
#include "engine/commands.hpp"
#include "kv.hpp"
#include "memlith/memlith.h"
#include "postgres/tool/commands.hpp"
#include "rocksdb/tool/commands.hpp"
#include "sqlite/tool/commands.hpp"
#include "steps.hpp"

namespace memlith::tool {

namespace {

void add_store_command(CLI::App& app, CommandLine& line, const char* name, const char* what,
                       MaybeFailure (*function)(const StoreArguments&)) {
  const auto arguments = std::make_shared<StoreArguments>();
  CLI::App* command = app.add_subcommand(name, what);
  command
      ->add_option("STORE", arguments->path,
                   "A store's folder or block device, or a file with its log FILE.memlith beside it")
      ->required();
  add_command(command, line, arguments, function);
}

void add_verify(CLI::App& app, CommandLine& line) {
  const auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* command = app.add_subcommand(
      "verify",
      "Check every structure of a store; changes nothing. Exit codes: 0, intact; 1, not examined; 2, "
      "damaged, or --pointers found some; 3, another format version, which this version of memlith does not read");
  command
      ->add_option("STORE", arguments->path,
                   "A store's folder or block device, or a file with its log FILE.memlith beside it")
      ->required();
  command->add_flag("--pointers", arguments->pointers,
                    "Also list the words that look like addresses of a process, which lead nowhere in the next run");
  command->add_flag("--leaks", arguments->leaks,
                    "Also list the blocks of heaps that nothing leads to: what a program that was killed held outside "
                    "of its heap. `recover --collect` frees them");
  CLI::Option* const data = command->add_flag("--data", arguments->data,
                                              "Also read the data of every region of a folder store, and compare it "
                                              "with the checksums that are kept of it");
  command
      ->add_flag("--complete", arguments->complete,
                 "With --data: keep checksums from now on of what has none, as it is now. Opens the store for writing")
      ->needs(data);
  add_command(command, line, arguments, run_verify);
}

void add_recover(CLI::App& app, CommandLine& line) {
  const auto arguments = std::make_shared<RecoverArguments>();
  CLI::App* command = app.add_subcommand("recover", "Replay the log of a store that was not closed, and close it");
  command
      ->add_option("STORE", arguments->path,
                   "A store's folder or block device, or a file with its log FILE.memlith beside it")
      ->required();
  command->add_flag("--accept-copy", arguments->accept_copy,
                    "Take the files of a store that were copied one by one while it was not closed. Only sound if no "
                    "program had the store open meanwhile: after a crash, or from a snapshot");
  command->add_option("--collect", arguments->collect,
                      "Also free the blocks that `verify --leaks` lists, in one commit. The value plain-pointers says "
                      "that no pointer in the heaps is compressed, combined with another or tagged in its upper bytes, "
                      "and that no other store leads into them");
  add_command(command, line, arguments, run_recover);
}

void add_copy(CLI::App& app, CommandLine& line) {
  const auto arguments = std::make_shared<CopyArguments>();
  CLI::App* command = app.add_subcommand("copy",
                                         "Copy a whole store as one durable commit left it, also while a process "
                                         "writes to it. A SQLite database becomes an ordinary file");
  command
      ->add_option("STORE", arguments->path,
                   "A store's folder or block device, or a file with its log FILE.memlith beside it")
      ->required();
  command
      ->add_option("DEST", arguments->target,
                   "The copy, which must not exist; of a folder store also a formatted block device without a store. "
                   "It appears when it is whole, or not at all")
      ->required();
  command->add_flag("--verify", arguments->verify, "Also check every structure of the copy, as `memlith verify` does");
  command->add_flag("--damaged", arguments->damaged,
                    "Also copy data that is not as it was written, which else ends the copy (verify --data)");
  add_command(command, line, arguments, run_copy);
}

void add_format(CLI::App& app, CommandLine& line) {
  const auto arguments = std::make_shared<FormatArguments>();
  CLI::App* command = app.add_subcommand("format",
                                         "Prepare a block device or an NVMe namespace, without a file system, for one "
                                         "store; every command then takes its path");
  command
      ->add_option("DEVICE", arguments->path,
                   "A block device, such as /dev/vdb or /dev/loop0, or an NVMe namespace, such as /dev/ng0n1")
      ->required();
  command->add_flag("--force", arguments->force, "Also if the device holds something; everything on it is lost");
  add_command(command, line, arguments, run_format);
}

void add_keeper(CLI::App& app, CommandLine& line) {
  const auto arguments = std::make_shared<KeeperArguments>();
  CLI::App* command = app.add_subcommand("keeper",
                                         "Keep a store open for processes that share its regions, until the last one "
                                         "has gone; memlith_shared_open starts this by itself");
  command->add_option("STORE", arguments->path, "A store's folder")->required();
  command->add_flag("--create", arguments->create, "Create the store, if it does not exist");
  command
      ->add_option("--grace", arguments->grace_s,
                   "Seconds without a process, after which the keeper ends; without this option 0.2, and 5 before the "
                   "first process")
      ->check(seconds_between(0.01, 86400.0));
  command
      ->add_option("--ready-fd", arguments->ready_fd,
                   "Leave the process that has started this one, and write to this descriptor \"ready\", or why not")
      ->check(CLI::Range(3, 1 << 20));
  add_command(command, line, arguments, run_keeper);
}

void add_stat(CLI::App& app, CommandLine& line) {
  const auto arguments = std::make_shared<StatArguments>();
  CLI::App* command = app.add_subcommand(
      "stat", "Show the counters of the process that has a store open: persists, latencies, log, checkpoint");
  command
      ->add_option("STORE", arguments->path,
                   "A store's folder or block device, or a file with its log FILE.memlith beside it")
      ->required();
  command->add_flag("--watch", arguments->watch,
                    "Print one line per interval: what happened in it, and latencies since opening; until interrupted "
                    "or the store is closed");
  command
      ->add_flag("--prometheus", arguments->prometheus, "Print in Prometheus's text format, for a collector of files")
      ->excludes("--watch");
  command
      ->add_option("--archive", arguments->archive,
                   "Also print what of the store is not yet in the archive in this folder")
      ->excludes("--watch");
  command->add_option("--interval", arguments->interval_s, "Seconds between the lines of --watch")
      ->check(seconds_between(0.01, 3600.0))
      ->capture_default_str();
  add_command(command, line, arguments, run_stat);
}

void add_run(CLI::App& app, CommandLine& line) {
  const auto arguments = std::make_shared<RunArguments>();
  CLI::App* command = app.add_subcommand("run",
                                         "Run a program, unchanged, whose files are always as its last fsync left "
                                         "them. Exit codes: those of the program; 126, memlith cannot run it; 127, "
                                         "there is no such program");
  command
      ->add_option("--match", arguments->patterns,
                   "The files to keep, a pattern like the shell's: of a name ('*.kch'), or of a path with a slash; "
                   "may be repeated")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);  // it would swallow the -- before the program
  command
      ->add_option("--commit", arguments->commit,
                   "What commits a file, whole: fsync (and fdatasync), msync (and fsync), or auto: fsync, and msync "
                   "until the program has called fsync for the file")
      ->check(CLI::IsMember({"fsync", "msync", "auto"}))
      ->capture_default_str();
  add_number(command, "--weak", arguments->weak_ms, 0, 86400000,
             "Return from a commit when it is captured; it is durable at most this many milliseconds later. 0: durable "
             "on return");
  command
      ->add_option("--commit-every", arguments->commit_every_s,
                   "For programs that never call fsync: also commit every changed file each time this many seconds "
                   "have passed, between two of the program's calls. A change that takes several calls may be cut in "
                   "two")
      ->check(seconds_between(0.01, 86400.0));
  command->add_flag("--guard", arguments->guard,
                    "While a file is in use, its first 16 bytes are memlith's, so that no copy of it alone is taken "
                    "for current");
  command->add_flag("--one-commit", arguments->one_commit,
                    "Each commit of a file is one of all changed files in its folder: after a crash all of them are as "
                    "one and the same commit left them");
  command->add_flag("--report", arguments->report, "Print what was committed, file by file, when files are closed");
  command->add_option("PROGRAM", arguments->command, "The program and its arguments, after --")->required();
  add_command(command, line, arguments, run_run);
}

MaybeFailure print_help(CLI::App& app, const std::vector<std::string>& words, Format format) {
  app.clear();  // or it would take `help` for the command whose help is wanted
  const CLI::App* command = &app;
  std::string parents;
  for (const std::string& word : words) {
    const auto found = command->get_subcommands([&word](const CLI::App* each) { return each->get_name() == word; });
    if (found.empty()) {
      return tool_failure(MEMLITH_INVALID, fmt::format("there is no command {} to help with", word),
                          "Run `memlith help` for the list of commands.");
    }
    parents += (parents.empty() ? "" : " ") + command->get_name();
    command = found.front();
  }
  if (format == Format::json) {
    describe_command(*command, fmt::format("{}", fmt::join(words, " ")));
    return {};
  }
  std::string text = command->help(parents);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  write_line(text);
  return {};
}

// The program of `memlith run` does not wait until the other commands are described.
void describe(CLI::App& app, CommandLine& line, bool run_only) {
  app.set_version_flag("--version", fmt::format("memlith {}", memlith_version()));
  app.require_subcommand(1);
  add_json(&app, line);
  if (run_only) return add_run(app, line);
  add_store_command(app, line, "info", "Show the content of a store; changes nothing", run_info);
#ifdef MEMLITH_BROWSE
  add_store_command(app, line, "browse", "Look around in a store, on a terminal; changes nothing", run_browse);
#endif
  add_verify(app, line);
  add_recover(app, line);
  add_copy(app, line);
  add_format(app, line);
  add_keeper(app, line);
  add_stat(app, line);
  add_run(app, line);
  add_kv_commands(app, line);
  add_steps_commands(app, line);
  add_dump_commands(app, line);
  add_archive_commands(app, line);
  add_disktest_commands(app, line);
  add_sqlite_commands(app, line);
  add_rocksdb_commands(app, line);
  add_postgres_commands(app, line);
  add_bench_commands(app, line);
  CLI::App* help = app.add_subcommand("help", "Show this help, or the options of a command");
  const auto words = std::make_shared<std::vector<std::string>>();
  help->add_option("COMMAND", *words, "For example: bench persist");
  add_json(help, line);
  help->callback([&app, &line, words] {
    line.run = [&app, &line, words] { return print_help(app, *words, line.format); };
  });
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
    return tool_failure(MEMLITH_INVALID, fmt::format("--watch takes no number, but {} was given", value),
                        "Set the seconds between two lines with --interval: memlith stat --watch --interval SECONDS "
                        "STORE");
  }
  return {};
}

int run_command_line(int argument_count, char** arguments) {
  CLI::App app{"memlith: memory that survives crashes", "memlith"};
  CommandLine line;
  const bool run_only = argument_count > 1 && std::string_view(arguments[1]) == "run";
  describe(app, line, run_only);
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
                     "Run `memlith help` for the commands, or `memlith help COMMAND` for the options of one command.");
    return report_failure(failure, json ? Format::json : Format::text);
  }
  if (!run_only) tell_bad_sectors(line.format);
  return exit_code_of(line.run(), line.format);
}

}  // namespace

}  // namespace memlith::tool

int main(int argument_count, char** arguments) {
  return memlith::tool::run_program("memlith", argument_count, arguments, memlith::tool::run_command_line);
}
