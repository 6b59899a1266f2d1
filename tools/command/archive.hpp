// The commands of archives: archive, archive list, restore, promote.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "cli/cli_words.hpp"

namespace memlith::tool {

struct ArchiveArguments {
  std::string from;  // the store; with --follow, and of list and restore, the archive
  std::string to;    // the archive; with --follow, and of restore, the destination
  std::string put_command;
  std::string get_command;
  std::string remove_command;
  bool is_new = false;
  bool damaged = false;
  bool follow = false;
  bool once = false;
  std::uint64_t wait_ms = 500;
  std::uint64_t full_every_s = 86400;
  std::uint64_t keep_s = 7 * 86400;
  std::uint64_t keep_log_bytes = 0;
  std::string at = "latest";
  bool dry_run = false;
  bool as_far_as_possible = false;
  Format format = Format::text;
};

void add_archive_commands(CLI::App& app, CommandLine& line);

}  // namespace memlith::tool
