// The commands of the tool: what each takes, and one function each.
//
// A command prints its results itself, in the format it was asked for, and returns its failure to main(), which shows
// it and turns it into an exit code.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "cli/store_path.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

struct StoreArguments {
  std::string path;
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_info(const StoreArguments& arguments);
[[nodiscard]] MaybeFailure run_browse(const StoreArguments& arguments);

struct RecoverArguments {
  std::string path;
  std::string collect;  // empty: nothing is collected
  bool accept_copy = false;
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_recover(const RecoverArguments& arguments);

struct VerifyArguments {
  std::string path;
  bool pointers = false;
  bool leaks = false;
  bool data = false;
  bool complete = false;
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_verify(const VerifyArguments& arguments);

// A SQLite database is known by its own bytes, or by those of the mark.
Result<bool> is_sqlite(const StorePath& path);

struct CopyArguments {
  std::string path;
  std::string target;
  bool verify = false;
  bool damaged = false;
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_copy(const CopyArguments& arguments);

struct FormatArguments {
  std::string path;
  bool force = false;
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_format(const FormatArguments& arguments);

struct KeeperArguments {
  std::string path;
  bool create = false;
  double grace_s = 0;          // 0: the library's
  std::int64_t ready_fd = -1;  // none
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_keeper(const KeeperArguments& arguments);

struct StatArguments {
  std::string path;
  bool watch = false;
  bool prometheus = false;
  std::string archive;  // the folder of an archive of the store; empty: none
  double interval_s = 1;
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_stat(const StatArguments& arguments);
// An archive's state, beside the store's counters.
struct ArchiveLag {
  std::uint64_t archived_lsn = 0;
  std::uint64_t archived_ns = 0;         // since 1970, when the last segment was archived
  std::uint64_t not_archived_bytes = 0;  // of the store's log: what is durable there and not archived
};
// `lag` may be null.
void print_prometheus(const std::string& path, const memlith_stats& stats, const ArchiveLag* lag);

struct RunArguments {
  std::vector<std::string> patterns;
  std::string commit = "auto";
  std::uint64_t weak_ms = 0;
  double commit_every_s = 0;  // 0: only the program commits
  bool report = false;
  bool guard = false;
  bool one_commit = false;
  std::vector<std::string> command;  // the program and its arguments
  Format format = Format::text;
};

// Prints a command, and each below it, as data: one JSON object a command. `name` is what is typed behind `memlith`.
void describe_command(const CLI::App& app, const std::string& name);

// Returns only if the program was not started.
[[nodiscard]] MaybeFailure run_run(const RunArguments& arguments);

}  // namespace memlith::tool
