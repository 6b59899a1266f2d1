// Open file description locks: those of the process would go with any other descriptor of the file.
#include "sqlite_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "cli/store_path.hpp"
#include "memlith/memlith.h"
#include "sqlite_head.hpp"

namespace memlith::tool {

namespace {

// As SQLite has them: the byte PENDING, the byte RESERVED, and 510 bytes of which readers hold a shared lock.
constexpr off_t kPendingByte = 0x40000000;
constexpr off_t kReservedByte = kPendingByte + 1;
constexpr off_t kSharedFirst = kPendingByte + 2;
constexpr off_t kSharedBytes = 510;

struct flock range(int type, off_t begin, off_t bytes) {
  struct flock lock{};
  lock.l_type = static_cast<short>(type);
  lock.l_whence = SEEK_SET;
  lock.l_start = begin;
  lock.l_len = bytes;
  return lock;
}

Failure in_use(const std::string& path, pid_t process) {
  // memlith's own locks have no process, but its log names one.
  if (process <= 0) {
    Result<bool> log_there = file_is_there(path + ".memlith");
    if (log_there.ok() && *log_there) {
      Result<StoreHandle> store = open_store_read_only({path, StoreKind::one_file, true});
      if (!store.ok() && memlith_category(store.failure().code) == MEMLITH_BUSY) return std::move(store.failure());
    }
  }
  const std::string holder =
      process > 0 ? fmt::format("process {}, which opened it as plain SQLite does", process) : "another process";
  return tool_failure(MEMLITH_BUSY, fmt::format("{}: the database is in use by {}", path, holder),
                      std::string(advice_for(MEMLITH_BUSY)));
}

MaybeFailure set(int descriptor, const std::string& path, struct flock lock) {
  if (::fcntl(descriptor, F_OFD_SETLK, &lock) == 0) return {};
  if (errno != EAGAIN && errno != EACCES) return errno_failure(errno, fmt::format("cannot lock {}", path));
  struct flock holder = lock;
  holder.l_pid = 0;
  const bool told = ::fcntl(descriptor, F_OFD_GETLK, &holder) == 0 && holder.l_type != F_UNLCK;
  return in_use(path, told ? holder.l_pid : 0);
}

}  // namespace

MaybeFailure lock_sqlite(int descriptor, const std::string& path, SqliteLock lock) {
  if (lock == SqliteLock::exclusive) return set(descriptor, path, range(F_WRLCK, kPendingByte, 2 + kSharedBytes));
  // A writer that waits or works holds PENDING; a reader asks for it in passing, as SQLite's own do.
  if (MaybeFailure failure = set(descriptor, path, range(F_RDLCK, kPendingByte, 1))) return failure;
  MaybeFailure failure = set(descriptor, path, range(F_RDLCK, kSharedFirst, kSharedBytes));
  if (MaybeFailure released = set(descriptor, path, range(F_UNLCK, kPendingByte, 1))) return released;
  if (failure) return failure;
  // A writer in the middle of its transaction has a journal, which only that writer may judge.
  struct flock writer = range(F_WRLCK, kReservedByte, 1);
  if (::fcntl(descriptor, F_OFD_GETLK, &writer) != 0) return errno_failure(errno, fmt::format("cannot lock {}", path));
  if (writer.l_type != F_UNLCK) return in_use(path, writer.l_pid);
  return {};
}

}  // namespace memlith::tool
