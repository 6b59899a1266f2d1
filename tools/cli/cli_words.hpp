// Words for describing a command line.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "failure.hpp"
#include "interrupt.hpp"
#include "memlith/memlith.h"
#include "output.hpp"

namespace memlith::tool {

// The result of parsing: the command that was typed, and how it prints.
struct CommandLine {
  Format format = Format::text;
  std::function<MaybeFailure()> run;
};

// Before a command or behind it, `--json` means the same.
inline void add_json(CLI::App* command, CommandLine& line) {
  command->add_flag_callback("--json", [&line] { line.format = Format::json; }, "Print one JSON object per line");
}

// Makes `function` with these arguments the command that runs once `command` was typed.
template <class Arguments>
void add_command(CLI::App* command, CommandLine& line, std::shared_ptr<Arguments> arguments,
                 MaybeFailure (*function)(const Arguments&)) {
  add_json(command, line);
  command->callback([&line, arguments, function] {
    line.run = [&line, arguments, function] {
      arguments->format = line.format;
      return function(*arguments);
    };
  });
}

// CLI11's own range lets what is no number at all through.
inline CLI::Validator seconds_between(double low, double high) {
  return CLI::Range(low, high) & CLI::Validator(
                                     [](std::string& text) -> std::string {
                                       double seconds = 0;
                                       const bool fine =
                                           CLI::detail::lexical_cast(text, seconds) && std::isfinite(seconds);
                                       return fine ? "" : text + " is not a number";
                                     },
                                     "");
}

inline CLI::Range between(std::uint64_t low, std::uint64_t high) { return {low, high}; }

// An option that takes a number, or several: `target` is a number or a vector of them, and holds the default.
template <class Target>
CLI::Option* add_number(CLI::App* command, const std::string& name, Target& target, std::uint64_t low,
                        std::uint64_t high, const std::string& what) {
  return command->add_option(name, target, what)->check(between(low, high))->capture_default_str();
}

// A sentence on the faulty words. For a word that is no command CLI11 only says that a subcommand is required.
inline std::string parse_problem(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string typed = app.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    typed += " " + command->get_name();
  }
  if (error.get_name() != "RequiredError" || command->get_require_subcommand_min() == 0) return error.what();

  std::string known;
  for (const CLI::App* each : command->get_subcommands([](const CLI::App*) { return true; })) {
    known += (known.empty() ? "" : ", ") + each->get_name();
  }
  const std::vector<std::string> rest = command->remaining();
  if (rest.empty() || rest.front().starts_with('-')) return typed + " needs one of its commands: " + known;
  return "\"" + rest.front() + "\" is none of the commands of " + typed + ": " + known;
}

// The exit code of a program that has been asked for its help or version, which CLI11 tells as if they were errors.
inline int show(const CLI::App& app, const CLI::ParseError& help) {
  app.exit(help);
  std::cout.flush();
  return exit_code_of({}, Format::text);
}

// Parses what was typed and runs it: the main part of a program of benchmarks. `run` and `format` are what parsing
// sets. Returns the exit code.
inline int parse_and_run(CLI::App& app, int count, char** words, const std::function<MaybeFailure()>& run,
                         const Format& format) {
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return show(app, error);
    const std::string_view where = app.get_subcommands([](const CLI::App*) { return true; }).empty()
                                       ? "Run it with --help for the options."
                                       : "Run it with --help, also after a command, for the options.";
    return report_failure(tool_failure(MEMLITH_INVALID, parse_problem(app, error), std::string(where)), Format::text);
  }
  catch_interrupts();
  return exit_code_of(run(), format);
}

}  // namespace memlith::tool
