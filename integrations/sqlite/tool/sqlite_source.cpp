// Opening a database for a copy: its header, the locks, the log.
#include "sqlite_source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "sqlite_lock.hpp"

namespace memlith::tool {

namespace {

constexpr int kLooksMax = 8;  // how often the database may change between reading its header and locking it
constexpr std::uint64_t kHeaderBytes = 100;

Failure no_database(const std::string& path) {
  return tool_failure(MEMLITH_NOT_FOUND, fmt::format("there is no database at {}", path),
                      "Check the path: name the file of a SQLite database.");
}

Failure not_to_be_copied(const std::string& path, const SqliteLook& look) {
  if (look.is(MEMLITH_SQLITE_EMPTY)) {
    return tool_failure(MEMLITH_INVALID, fmt::format("{} is empty", path),
                        "An empty file is a database without tables; there is nothing to copy.");
  }
  if (look.is(MEMLITH_SQLITE_ZEROS)) {
    return tool_failure(MEMLITH_INCOMPATIBLE, fmt::format("{} has only zeros at its beginning", path),
                        "If a crash interrupted its creation, it has no tables yet: open it once with memlith's VFS. "
                        "Otherwise check the path.");
  }
  return tool_failure(MEMLITH_INCOMPATIBLE, fmt::format("{} is not a SQLite database", path), "Check the path.");
}

// Its first `bytes`, as many as there are.
Result<std::string> beginning_of(const std::string& path, std::size_t bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.ok() && errno == ENOENT) return std::string();
  if (!file.ok()) return errno_failure(errno, fmt::format("cannot open {}", path));
  std::string begin(bytes, '\0');
  const ssize_t got = ::pread(file.get(), begin.data(), bytes, 0);
  if (got < 0) return errno_failure(errno, fmt::format("cannot read {}", path));
  begin.resize(static_cast<std::size_t>(got));
  return begin;
}

std::uint32_t big_endian(const std::byte* bytes, int count) {
  std::uint32_t value = 0;
  for (int i = 0; i < count; ++i) value = value << 8 | static_cast<std::uint32_t>(bytes[i]);
  return value;
}

// Tells whether a file of that name was made since.
class NameWatch {
 public:
  explicit NameWatch(const std::string& path)
      : name_(std::filesystem::path(path).filename().string()), events_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    watches_ = events_.ok() && ::inotify_add_watch(events_.get(), folder.c_str(), IN_CREATE | IN_MOVED_TO) >= 0;
  }
  // Where the system cannot tell: yes.
  [[nodiscard]] bool was_made() const {
    alignas(inotify_event) char buffer[4096];
    for (;;) {
      const ssize_t got = watches_ ? ::read(events_.get(), buffer, sizeof buffer) : 0;
      if (got <= 0) return !watches_;
      for (ssize_t at = 0; at < got;) {
        const auto* const event = reinterpret_cast<const inotify_event*>(buffer + at);
        if ((event->mask & IN_Q_OVERFLOW) != 0 || (event->len > 0 && name_ == event->name)) return true;
        at += static_cast<ssize_t>(sizeof *event) + event->len;
      }
    }
  }

 private:
  std::string name_;
  Descriptor events_;
  bool watches_ = false;
};

}  // namespace

MaybeFailure check_sqlite_left_over(const std::string& path) {
  Result<std::string> wal = beginning_of(path + "-wal", 1);
  if (!wal.ok()) return std::move(wal.failure());
  Result<std::string> journal = beginning_of(path + "-journal", 8);
  if (!journal.ok()) return std::move(journal.failure());
  // journal_mode=PERSIST leaves a journal that begins with zeros.
  const bool hot = std::any_of(journal->begin(), journal->end(), [](char c) { return c != 0; });
  if (wal->empty() && !hot) return {};
  return tool_failure(MEMLITH_INVALID,
                      fmt::format("{}{} holds changes that plain SQLite has not yet written to the database; nothing "
                                  "was changed",
                                  path, hot ? "-journal" : "-wal"),
                      fmt::format("Open {0} once with plain SQLite (sqlite3 {0} \"PRAGMA wal_checkpoint(TRUNCATE)\") "
                                  "and close it there; or, if that database is gone, remove the file.",
                                  path));
}

Result<SqliteSource> SqliteSource::open(const std::string& path, Kinds kinds) {
  Result<StorePath> named = resolve_store_path(path);
  if (!named.ok() && memlith_category(named.failure().code) == MEMLITH_NOT_FOUND) return no_database(path);
  if (!named.ok()) return std::move(named.failure());
  if (named->kind == StoreKind::folder) {
    return tool_failure(MEMLITH_INVALID, fmt::format("{} is a folder", path), "Name the database file.");
  }
  std::error_code error;
  const std::string real = std::filesystem::canonical(path, error).string();
  if (error) return errno_failure(error.value(), fmt::format("cannot open {}", path));
  for (int attempt = 0; attempt < kLooksMax; ++attempt) {
    Result<SqliteLook> look = look_at_sqlite(real);
    if (!look.ok()) return std::move(look.failure());
    const bool marked = look->is(MEMLITH_SQLITE_MARKED);
    if (!marked && !look->is(MEMLITH_SQLITE_PLAIN)) return not_to_be_copied(real, *look);
    if (marked && kinds == Kinds::ordinary) {
      return tool_failure(MEMLITH_INVALID,
                          fmt::format("{} has memlith's mark already: its newest commits may be in its log", real),
                          "Use it where it is, or make an ordinary file with `memlith sqlite export`.");
    }
    Result<std::optional<SqliteSource>> source = open_as_it_is(real, *look, kinds);
    if (!source.ok()) {
      // The file was cut while it was copied, because the process that has it became idle.
      if (memlith_category(source.failure().code) == MEMLITH_IO && attempt + 1 < kLooksMax) continue;
      // Closed in between, and the log removed with that?
      Result<SqliteLook> again = look_at_sqlite(real);
      if (marked && again.ok() && again->is(MEMLITH_SQLITE_PLAIN)) continue;
      return std::move(source.failure());
    }
    if (source->has_value()) return std::move(**source);
  }
  return tool_failure(MEMLITH_BUSY, fmt::format("{}: another program opens and closes the database all the time", real),
                      "Try again, or stop that program.");
}

Result<std::optional<SqliteSource>> SqliteSource::open_as_it_is(const std::string& path, const SqliteLook& look,
                                                                Kinds kinds) {
  if (look.is(MEMLITH_SQLITE_MARKED)) return open_marked(path);
  Result<std::optional<SqliteSource>> ordinary = open_ordinary(path, look);
  if (ordinary.ok() || memlith_category(ordinary.failure().code) != MEMLITH_BUSY) return ordinary;
  // The file is ordinary, and locked, while a process that has it open with memlith is idle.
  Result<bool> log_there = file_is_there(path + ".memlith");
  if (kinds == Kinds::ordinary || !log_there.ok() || !*log_there) return ordinary;
  Result<std::optional<SqliteSource>> beside = open_with_log(path, true);
  if (beside.ok() && !beside->has_value()) return ordinary;
  return beside;
}

MaybeFailure SqliteSource::remember_file() {
  struct stat status{};
  if (::fstat(file_.get(), &status) != 0) return errno_failure(errno, fmt::format("cannot examine {}", path_));
  bytes_ = static_cast<std::uint64_t>(status.st_size);
  mode_ = status.st_mode;
  device_ = status.st_dev;
  number_ = status.st_ino;
  return {};
}

// ---- an ordinary file ------------------------------------------------------------------------------------------

Result<std::optional<SqliteSource>> SqliteSource::open_ordinary(const std::string& path, const SqliteLook& seen) {
  SqliteSource source;
  source.path_ = path;
  // In WAL mode a checkpoint writes into the file while others read, so everybody is kept out.
  SqliteLock lock = seen.head.wal_mode != 0 ? SqliteLock::exclusive : SqliteLock::shared;
  const int kept = O_CLOEXEC | O_NONBLOCK;
  source.file_ = Descriptor(::open(path.c_str(), (lock == SqliteLock::exclusive ? O_RDWR : O_RDONLY) | kept));
  if (!source.file_.ok() && errno == EROFS) {  // if writing is impossible
    lock = SqliteLock::shared;
    source.file_ = Descriptor(::open(path.c_str(), O_RDONLY | kept));
  }
  if (!source.file_.ok()) {
    Failure failure = errno_failure(errno, fmt::format("cannot open {}", path));
    if (lock == SqliteLock::exclusive) {
      failure.advice =
          "The database is in WAL mode; the lock that keeps others from changing it needs permission to write, "
          "although nothing is written.";
    }
    return failure;
  }
  if (MaybeFailure failure = lock_sqlite(source.file_.get(), path, lock)) return *failure;
  // Read it again, now that it cannot change.
  Result<SqliteLook> look = look_at_sqlite(source.file_.get(), path);
  if (!look.ok()) return std::move(look.failure());
  if (!look->is(MEMLITH_SQLITE_PLAIN) || look->head.wal_mode != seen.head.wal_mode)
    return std::optional<SqliteSource>();
  if (MaybeFailure failure = check_sqlite_left_over(path)) return *failure;
  if (MaybeFailure failure = source.remember_file()) return *failure;
  Result<HugeBuffer> buffer = HugeBuffer::zeros(kStepBytes);
  if (!buffer.ok()) return std::move(buffer.failure());
  source.buffer_.emplace(std::move(*buffer));
  return std::optional<SqliteSource>(std::move(source));
}

// ---- memlith's mark --------------------------------------------------------------------------------------------

Result<std::optional<SqliteSource>> SqliteSource::open_marked(const std::string& path) {
  SqliteSource source;
  source.path_ = path;
  Result<bool> log_there = file_is_there(path + ".memlith");
  if (!log_there.ok()) return std::move(log_there.failure());
  if (!*log_there) {
    return tool_failure(MEMLITH_CORRUPT,
                        fmt::format("{0}: the database's newest commits are in the log {0}.memlith, which is missing; "
                                    "without the log the file may be incomplete",
                                    path),
                        "The two files belong together: put the log back, or restore both from a backup.");
  }
  return open_with_log(path, false);
}

// Beside a writer the store is followed: the copy is one durable commit's. Empty: the database has changed since its
// header was read.
Result<std::optional<SqliteSource>> SqliteSource::open_with_log(const std::string& path, bool may_be_ordinary) {
  SqliteSource source;
  source.path_ = path;
  // A part of a transaction over several databases has a journal from before its commit until it is decided.
  const NameWatch journal(undecided_journal_of(path));
  Result<bool> before = file_is_there(undecided_journal_of(path));
  if (!before.ok()) return std::move(before.failure());
  Result<StoreHandle> store = open_store_to_look({path, StoreKind::one_file, true});
  if (!store.ok()) return std::move(store.failure());
  source.store_ = std::move(*store);
  Result<memlith_store_info> info = info_of(source.store_.get());
  if (!info.ok()) return std::move(info.failure());
  const bool follows = info->follows != 0 && info->writer != 0;
  if (may_be_ordinary && !follows) return std::optional<SqliteSource>();
  // If the store is not followed, no writer has it from here on.
  source.file_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!source.file_.ok()) return errno_failure(errno, fmt::format("cannot open {}", path));
  Result<SqliteLook> look = look_at_sqlite(source.file_.get(), path);
  if (!look.ok()) return std::move(look.failure());
  if (!follows && !look->is(MEMLITH_SQLITE_MARKED)) return std::optional<SqliteSource>();
  if (MaybeFailure failure = source.remember_file()) return *failure;
  if (MaybeFailure failure = source.map_region()) return *failure;
  Result<bool> undecided = file_is_there(undecided_journal_of(path));
  if (!undecided.ok()) return std::move(undecided.failure());
  if (follows && !*undecided && (*before || journal.was_made())) return std::optional<SqliteSource>();
  if (*undecided) {
    return tool_failure(follows ? MEMLITH_BUSY : MEMLITH_INVALID,
                        fmt::format("{}: the database is in a transaction over several databases that is undecided",
                                    undecided_journal_of(path)),
                        follows ? "Try again."
                                : "Open it once with memlith's VFS while the other databases are in their places, and "
                                  "close it.");
  }
  return std::optional<SqliteSource>(std::move(source));
}

MaybeFailure SqliteSource::map_region() {
  memlith_region_info info{};
  info.struct_size = sizeof info;
  if (const std::int32_t code = memlith_store_region_at(store_.get(), 0, &info); code != MEMLITH_OK) {
    return library_failure(code, "examining the database");
  }
  // An empty database under the mark has the mark and nothing else.
  bytes_ = 0;
  if (info.size <= MEMLITH_SQLITE_MARK_BYTES) return {};
  memlith_region* region = nullptr;
  if (const std::int32_t code = memlith_region_open(store_.get(), "file", nullptr, &region); code != MEMLITH_OK) {
    return library_failure(code, "mapping the database");
  }
  // Beside a writer opening a region shows a newer commit than the one that was looked at, so the size is asked now.
  // The file itself may be longer.
  bytes_ = memlith_region_size(region);
  memory_ = static_cast<const std::byte*>(memlith_region_address(region));  // closed with the store
  const bool marked = std::memcmp(memory_, MEMLITH_SQLITE_MARK, MEMLITH_SQLITE_MARK_BYTES / 2) == 0;
  if (marked || std::memcmp(memory_, MEMLITH_SQLITE_MAGIC, MEMLITH_SQLITE_MARK_BYTES) == 0) return {};
  return tool_failure(MEMLITH_INCOMPATIBLE, fmt::format("{}: the committed content is not a SQLite database", path_));
}

// ---- what is in it ---------------------------------------------------------------------------------------------

Result<std::span<const std::byte>> SqliteSource::read(std::uint64_t offset, std::uint64_t count) {
  if (memory_ != nullptr) return std::span(memory_ + offset, count);
  const std::span<std::byte> target = buffer_->span().first(count);
  for (std::uint64_t done = 0; done < count;) {
    const ssize_t got = ::pread(file_.get(), target.data() + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_failure(errno, fmt::format("cannot read {} at offset {}", path_, offset + done));
    if (got == 0) {
      return tool_failure(MEMLITH_IO,
                          fmt::format("{} was cut short while it was copied, by a program that ignores locks", path_));
    }
    done += static_cast<std::uint64_t>(got);
  }
  return std::span<const std::byte>(target);
}

Result<std::vector<std::byte>> SqliteSource::beginning(std::uint64_t count) {
  Result<std::span<const std::byte>> bytes = read(0, count);
  if (!bytes.ok()) return std::move(bytes.failure());
  std::vector<std::byte> begin(bytes->begin(), bytes->end());
  memlith_sqlite_unmark(begin.data(), begin.size());
  return begin;
}

MaybeFailure SqliteSource::check_header() {
  if (bytes_ == 0) return {};
  if (bytes_ < kHeaderBytes) {
    return tool_failure(MEMLITH_CORRUPT, fmt::format("{}: expected a header of {} bytes, found {} bytes in all", path_,
                                                     kHeaderBytes, bytes_));
  }
  Result<std::vector<std::byte>> header = beginning(kHeaderBytes);
  if (!header.ok()) return std::move(header.failure());
  const std::byte* const bytes = header->data();
  const std::uint32_t told = big_endian(bytes + 16, 2);
  const std::uint32_t page_bytes = told == 1 ? 65536 : told;
  const bool power_of_two = (page_bytes & (page_bytes - 1)) == 0;
  std::string wrong;
  if (page_bytes < 512 || !power_of_two) {
    wrong = fmt::format("offset 16: {} is no page size", told);
  } else if (bytes_ % page_bytes != 0) {
    wrong = fmt::format("its {} bytes are not whole pages of {} bytes", bytes_, page_bytes);
  } else if (const std::uint64_t pages = big_endian(bytes + 28, 4);
             big_endian(bytes + 24, 4) == big_endian(bytes + 92, 4) && bytes_ / page_bytes < pages) {
    // Where the two counters differ, an old SQLite wrote it last and left the page count alone.
    wrong = fmt::format("its header says {} pages, but the file has {}", pages, bytes_ / page_bytes);
  }
  if (wrong.empty()) return {};
  return tool_failure(MEMLITH_CORRUPT, fmt::format("{}: {}", path_, wrong),
                      "The file is damaged or was cut short: check it with plain SQLite's PRAGMA integrity_check, or "
                      "use a backup.");
}

}  // namespace memlith::tool
