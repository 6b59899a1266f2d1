// memlith copy STORE DEST: a whole store as one durable commit left it, while a process writes to it. Of a SQLite
// database it makes an ordinary one, as `memlith sqlite export` does.
#include "memlith/copy.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "cli/clock.hpp"
#include "cli/progress.hpp"
#include "cli/store_path.hpp"
#include "commands.hpp"
#include "sqlite/tool/commands.hpp"
#include "sqlite/tool/sqlite_head.hpp"

namespace memlith::tool {

namespace {

struct Done {
  memlith_copy_report report{};
  std::uint64_t ns = 0;
};

Result<Done> copy(const CopyArguments& arguments) {
  ProgressBar bar("copying");
  memlith_copy_options options{};
  options.struct_size = sizeof options;
  if (arguments.damaged) options.flags = MEMLITH_COPY_DAMAGED;
  options.progress = &ProgressBar::update;
  options.progress_context = &bar;
  Done done;
  done.report.struct_size = sizeof done.report;
  const std::uint64_t start = now_ns();
  const std::int32_t code =
      memlith_store_copy(arguments.path.c_str(), arguments.target.c_str(), &options, &done.report);
  done.ns = now_ns() - start;
  if (code != MEMLITH_OK) return library_failure(code, {});
  return done;
}

void print(const CopyArguments& arguments, const Done& done) {
  const double seconds = seconds_of(done.ns);
  if (arguments.format == Format::json) {
    write_json({{"source", arguments.path},
                {"target", arguments.target},
                {"lsn", done.report.ticket},
                {"bytes", done.report.bytes},
                {"shared_bytes", done.report.shared_bytes},
                {"seconds", seconds},
                {"verified", arguments.verify}});
    return;
  }
  write_line(fmt::format("{}: a copy of {} as of LSN {}, {} in {:.1f} s{}{}", printable(arguments.target),
                         printable(arguments.path), done.report.ticket, human_bytes(done.report.bytes), seconds,
                         done.report.shared_bytes > 0 ? fmt::format("; {} of it share their blocks with the original",
                                                                    human_bytes(done.report.shared_bytes))
                                                      : "",
                         arguments.verify ? "; verified" : ""));
}

// A copy that failed leaves nothing; and a device cannot be removed.
void remove_copy(const std::string& target, Failure& failure) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(target, error) && !std::filesystem::is_directory(target, error)) return;
  std::filesystem::remove_all(target, error);
  if (!error) std::filesystem::remove(target + ".memlith", error);
  failure.message += error ? fmt::format("; the copy {} cannot be removed: {}", printable(target), error.message())
                           : "; the copy was removed";
}

MaybeFailure copy_sqlite(const CopyArguments& arguments) {
  std::error_code error;
  const bool is_shared = std::filesystem::exists(arguments.path + "-memlith", error) &&
                         !std::filesystem::exists(arguments.path + ".memlith", error);
  if (is_shared) {
    return tool_failure(MEMLITH_UNSUPPORTED,
                        fmt::format("{0} is a SQLite database in mode shared, so its newest commits are in SQLite's "
                                    "own {0}-wal",
                                    arguments.path),
                        fmt::format("Copy it as plain SQLite does, while programs use it: sqlite3 {} \".backup {}\"",
                                    arguments.path, arguments.target));
  }
  if (arguments.verify) {
    return tool_failure(MEMLITH_INVALID,
                        fmt::format("{} is a SQLite database, which --verify cannot check", printable(arguments.path)),
                        fmt::format("Copy it without --verify, and check the copy: sqlite3 {} \"PRAGMA "
                                    "integrity_check\"",
                                    arguments.target));
  }
  return run_sqlite_export({arguments.path, arguments.target, false, arguments.format});
}

}  // namespace

Result<bool> is_sqlite(const StorePath& path) {
  if (path.kind != StoreKind::one_file) return false;
  Result<SqliteLook> look = look_at_sqlite(path.path);
  if (!look.ok()) return std::move(look.failure());
  return look->is(MEMLITH_SQLITE_PLAIN) || look->is(MEMLITH_SQLITE_MARKED);
}

MaybeFailure run_copy(const CopyArguments& arguments) {
  Result<StorePath> path = resolve_store_path(arguments.path);
  if (!path.ok()) return std::move(path.failure());
  Result<bool> sqlite = is_sqlite(*path);
  if (!sqlite.ok()) return std::move(sqlite.failure());
  if (*sqlite) return copy_sqlite(arguments);
  Result<Done> done = copy(arguments);
  if (!done.ok()) return std::move(done.failure());
  if (arguments.verify) {
    memlith_report report{};
    report.struct_size = sizeof report;
    if (const std::int32_t code = memlith_verify(arguments.target.c_str(), &report); code != MEMLITH_OK) {
      Failure failure = library_failure(code, "verifying the copy");
      if (memlith_category(code) == MEMLITH_CORRUPT) failure.exit_code = kExitDamaged;
      // With --damaged the copy is wanted as it is.
      if (!arguments.damaged) remove_copy(arguments.target, failure);
      return failure;
    }
  }
  print(arguments, *done);
  return {};
}

}  // namespace memlith::tool
