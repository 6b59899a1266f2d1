// memlith sqlite export and import: a SQLite database to an ordinary file, from a database of memlith's or to one.
//
// Both copy what is committed to a file that appears as a whole and on the medium, and change nothing of the source.
// Import makes an ordinary file, too: memlith takes that over in place when it is first opened (docs/sqlite.md).
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "cli/new_file.hpp"
#include "cli/progress.hpp"
#include "commands.hpp"
#include "sqlite_head.hpp"
#include "sqlite_lock.hpp"
#include "sqlite_source.hpp"

namespace memlith::tool {

namespace {

// The target of the copy and an existing file there, locked against other users meanwhile.
struct Target {
  std::string path;
  Replace replace = Replace::no;
  Descriptor held;
  bool removes_log = false;
};

Failure exists(std::string message) {
  return tool_failure(MEMLITH_EXISTS, std::move(message), "Choose another name, or use --force to replace it.");
}

// A log beside the target that may hold commits would be of no account beside a file that is complete by itself.
// `replace` is `no` only where there is no file.
MaybeFailure examine_log(Target& target, Replace replace) {
  const std::string log_path = target.path + ".memlith";
  Result<bool> log_there = file_is_there(log_path);
  if (!log_there.ok()) return std::move(log_there.failure());
  if (!*log_there) return {};
  Result<StoreHandle> store = open_store_read_only({target.path, StoreKind::one_file, true});
  if (store.ok()) {
    Result<memlith_store_info> info = info_of(store->get());
    if (!info.ok()) return std::move(info.failure());
    if (info->was_clean != 0) return {};
  } else {
    // A log that is damaged, or waits for another file, may hold commits. What kept us from looking is another matter.
    const std::int32_t category = memlith_category(store.failure().code);
    const bool judged = category == MEMLITH_CORRUPT || category == MEMLITH_INCOMPATIBLE ||
                        category == MEMLITH_INVALID || category == MEMLITH_NOT_FOUND;
    if (!judged) return std::move(store.failure());
  }
  if (replace == Replace::no) {
    return exists(fmt::format("{} is the log of a missing database, and may hold its commits", log_path));
  }
  target.removes_log = true;
  return {};
}

Result<Target> examine_target(const SqliteSource& source, const std::string& path, Replace replace) {
  Target target;
  target.path = path;
  std::error_code error;
  if (std::filesystem::exists(path, error)) target.path = std::filesystem::canonical(path, error).string();
  if (error) return errno_failure(error.value(), fmt::format("cannot examine {}", path));
  struct stat status{};
  const bool there = ::stat(target.path.c_str(), &status) == 0;
  if (there && source.is_file(status.st_dev, status.st_ino)) {
    return tool_failure(MEMLITH_INVALID, fmt::format("{} is the source itself", path));
  }
  if (there && !S_ISREG(status.st_mode)) {
    return tool_failure(MEMLITH_INVALID, fmt::format("{} is not a regular file", path), "Name a file for the copy.");
  }
  for (const std::string_view suffix : {".memlith", ".memlith.new", ".memlith-stats", ".memlith-archived",
                                        ".memlith-journal", "-journal", "-wal", "-shm"}) {
    if (std::filesystem::weakly_canonical(target.path, error) != source.path() + std::string(suffix)) continue;
    return tool_failure(MEMLITH_INVALID, fmt::format("{} is the name of a file that belongs to the source", path),
                        "Name a file for the copy.");
  }
  if (there && replace == Replace::no) return exists(fmt::format("{} exists", path));
  if (there) {
    Result<SqliteLook> look = look_at_sqlite(target.path);
    if (!look.ok()) return std::move(look.failure());
    // A log of memlith's begins like a marked database, which has its log beside it.
    Result<bool> has_log = file_is_there(target.path + ".memlith");
    if (!has_log.ok()) return std::move(has_log.failure());
    if (look->is(MEMLITH_SQLITE_FOREIGN) || (look->is(MEMLITH_SQLITE_MARKED) && !*has_log)) {
      return tool_failure(MEMLITH_INVALID, fmt::format("{} is not a SQLite database, so it is not replaced", path),
                          "If you do not need it, remove it first.");
    }
    target.held = Descriptor(::open(target.path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!target.held.ok()) return errno_failure(errno, fmt::format("cannot open {}", path));
    target.replace = replace;
    if (MaybeFailure failure = lock_sqlite(target.held.get(), target.path, SqliteLock::exclusive)) return *failure;
  }
  if (MaybeFailure failure = examine_log(target, replace)) return *failure;
  if (MaybeFailure failure = check_sqlite_left_over(target.path)) return *failure;
  return target;
}

MaybeFailure copy_bytes(SqliteSource& source, NewFile& file) {
  ProgressBar bar("copying");
  for (std::uint64_t done = 0; done < source.bytes();) {
    if (interrupted()) return interrupted_failure();
    const std::uint64_t step = std::min(source.bytes() - done, SqliteSource::kStepBytes);
    Result<std::span<const std::byte>> bytes = source.read(done, step);
    if (!bytes.ok()) return std::move(bytes.failure());
    if (MaybeFailure failure = file.write(done, *bytes)) return failure;
    done += step;
    ProgressBar::update(&bar, done, source.bytes());
  }
  if (source.bytes() == 0) return {};
  Result<std::vector<std::byte>> begin =
      source.beginning(std::min<std::uint64_t>(source.bytes(), MEMLITH_SQLITE_CHANGED_BYTES));
  if (!begin.ok()) return std::move(begin.failure());
  return file.write(0, *begin);
}

MaybeFailure remove_log(const Target& target) {
  if (!target.removes_log) return {};
  // ORDER file-before-log: it goes when the new file is there for good. A crash in between leaves a file that is
  // complete by itself beside a log of no account.
  const std::string log_path = target.path + ".memlith";
  if (::unlink(log_path.c_str()) == 0 || errno == ENOENT) return {};
  Failure failure = errno_failure(errno, fmt::format("cannot remove {}", log_path));
  failure.advice = fmt::format("{} is complete; remove the log of the database that it replaced by hand.", target.path);
  return failure;
}

MaybeFailure copy(const SqliteCopyArguments& arguments, SqliteSource::Kinds kinds) {
  catch_interrupts();
  const std::uint64_t start = now_ns();
  Result<SqliteSource> source = SqliteSource::open(arguments.source, kinds);
  if (!source.ok()) return std::move(source.failure());
  if (MaybeFailure failure = source->check_header()) return failure;
  Result<Target> target = examine_target(*source, arguments.target, arguments.force ? Replace::yes : Replace::no);
  if (!target.ok()) return std::move(target.failure());
  Result<NewFile> file = NewFile::create(target->path, source->bytes(), source->mode());
  if (!file.ok()) return std::move(file.failure());
  if (MaybeFailure failure = copy_bytes(*source, *file)) return failure;
  if (MaybeFailure failure = file->publish(target->replace)) return failure;
  if (MaybeFailure failure = remove_log(*target)) return failure;
  const double seconds = seconds_of(now_ns() - start);
  if (arguments.format == Format::json) {
    write_json({{"source", arguments.source},
                {"target", arguments.target},
                {"bytes", source->bytes()},
                {"seconds", seconds}});
  } else {
    write_line(fmt::format("{}: copied to {}; {} bytes ({}) in {:.3f} s, {:.0f} MB/s, on the medium",
                           printable(arguments.source), printable(arguments.target), source->bytes(),
                           human_bytes(source->bytes()), seconds,
                           static_cast<double>(source->bytes()) / 1e6 / std::max(seconds, 1e-9)));
  }
  return {};
}

}  // namespace

MaybeFailure run_sqlite_export(const SqliteCopyArguments& arguments) {
  return copy(arguments, SqliteSource::Kinds::any);
}

MaybeFailure run_sqlite_import(const SqliteCopyArguments& arguments) {
  return copy(arguments, SqliteSource::Kinds::ordinary);
}

}  // namespace memlith::tool
