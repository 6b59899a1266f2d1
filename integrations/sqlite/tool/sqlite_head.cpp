// The first bytes of a SQLite database, and the log that they name.
#include "sqlite_head.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cli/descriptor.hpp"

namespace memlith::tool {

Result<SqliteLook> look_at_sqlite(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.ok()) return errno_failure(errno, fmt::format("cannot open {}", path));
  return look_at_sqlite(file.get(), path);
}

Result<SqliteLook> look_at_sqlite(int descriptor, const std::string& path) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return errno_failure(errno, fmt::format("cannot examine {}", path));
  if (!S_ISREG(status.st_mode)) return tool_failure(MEMLITH_INVALID, fmt::format("{} is not a regular file", path));
  unsigned char first[MEMLITH_SQLITE_LOOK_BYTES] = {};
  const ssize_t got = ::pread(descriptor, first, sizeof first, 0);
  if (got < 0) return errno_failure(errno, fmt::format("cannot read {}", path));
  SqliteLook look;
  look.bytes = static_cast<std::uint64_t>(status.st_size);
  // A file that was cut short between the two calls is judged by its bytes.
  const auto seen = static_cast<std::uint64_t>(got);
  look.head = memlith_sqlite_look(first, seen < sizeof first ? seen : look.bytes);
  return look;
}

std::string undecided_journal_of(const std::string& path) { return path + ".memlith-journal"; }

Result<bool> file_is_there(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) return true;
  if (errno == ENOENT) return false;
  return errno_failure(errno, fmt::format("cannot examine {}", path));
}

namespace {

Failure complete_by_itself(const std::string& path) {
  return tool_failure(
      MEMLITH_INVALID,
      fmt::format("{0}: this SQLite database is complete by itself, so the log {0}.memlith, which was not closed, does "
                  "not belong to it and must not be replayed into it; nothing was changed",
                  path),
      fmt::format("Open the database once with memlith's VFS, which discards the log, or remove {}.memlith.", path));
}

}  // namespace

MaybeFailure check_log_not_missed(const StorePath& path) {
  if (path.kind != StoreKind::one_file) return {};
  Result<SqliteLook> look = look_at_sqlite(path.path);
  if (!look.ok() || !look->is(MEMLITH_SQLITE_MARKED)) return {};
  return tool_failure(MEMLITH_CORRUPT,
                      fmt::format("{0}: the database's newest commits are in its log {0}.memlith, which is missing; "
                                  "without the log the file may be incomplete",
                                  path.path),
                      "The two files belong together: put the log back, or restore both from a backup.");
}

MaybeFailure check_sqlite_before_replay(const StorePath& path) {
  if (path.kind != StoreKind::one_file) return {};
  Result<bool> there = file_is_there(path.path);
  if (!there.ok()) return std::move(there.failure());
  if (!*there) return {};
  Result<SqliteLook> look = look_at_sqlite(path.path);
  if (!look.ok()) return std::move(look.failure());
  if (!look->is(MEMLITH_SQLITE_PLAIN) && !look->is(MEMLITH_SQLITE_MARKED)) return {};
  Result<StoreHandle> store = open_store_read_only(path);
  if (!store.ok()) {
    // The log expects another file: a longer one, say.
    const bool misfit = memlith_category(store.failure().code) == MEMLITH_CORRUPT;
    if (misfit && look->is(MEMLITH_SQLITE_PLAIN)) return complete_by_itself(path.path);
    return std::move(store.failure());
  }
  // Again, now that no writer has it: it may have been closed, or opened and killed, in between.
  look = look_at_sqlite(path.path);
  if (!look.ok()) return std::move(look.failure());
  Result<memlith_store_info> info = info_of(store->get());
  if (!info.ok()) return std::move(info.failure());
  // A log of the VFS counts only while the file is marked. Other logs, as `memlith run` makes them, always count.
  const bool does_not_count = info->marks_sqlite != 0 && info->was_clean == 0;
  if (look->is(MEMLITH_SQLITE_PLAIN) && does_not_count) return complete_by_itself(path.path);
  return {};
}

}  // namespace memlith::tool
