// Commits of rollback journals, and locks. Memory is in content.cpp, opening and closing in database_open.cpp, WAL in
// wal.cpp.
#include "database.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>

#include "wal_format.hpp"

namespace memlith::sqlite {

using core::Detail;
using core::Errc;
using core::fail;
using core::kOk;
using core::Lsn;
using core::Status;

namespace {
// One word of a line: blanks, control characters and backslashes of a path as \xNN.
std::string one_word(std::string_view path) {
  std::string word;
  for (const char each : path) {
    const auto byte = static_cast<unsigned char>(each);
    if (byte <= ' ' || byte == 0x7f || byte == '\\') {
      word += fmt::format("\\x{:02x}", byte);
    } else {
      word += each;
    }
  }
  return word;
}

}  // namespace

// ---- the file ----------------------------------------------------------------------------------------------------

Status Database::write(std::uint64_t offset, const void* source, std::uint64_t bytes) {
  if (read_only_) return fail(Errc::read_only, Detail::open, "{}: opened read-only", path_);
  return content_.write(offset, source, bytes, !in_wal());
}

Status Database::truncate(std::uint64_t bytes) {
  if (read_only_) return fail(Errc::read_only, Detail::open, "{}: opened read-only", path_);
  return content_.truncate(bytes, !in_wal());
}

// ---- commit --------------------------------------------------------------------------------------------------------

Status Database::commit() {
  // Between a part and its end there is nothing else to commit.
  part_.is_undone = part_.is_open;
  return commit_stored();
}

Status Database::commit_stored() {
  if (in_wal() || read_only_ || content_.unchanged()) return kOk;
  // If SQLite rolled back by storing the old pages again, there is nothing to do, even if the database has failed.
  if (content_.collect()) MEMLITH_TRY(commit_changes(content_.size(), nullptr));
  content_.clear_undo();
  return kOk;
}

// True if further commits are possible.
Status Database::check_commits() {
  if (lags_.load(std::memory_order_relaxed)) return memory_lags();
  if (!part_.end_failed) return kOk;
  return fail(Errc::poisoned, Detail::flush,
              "{}: the journal of a transaction over several databases could not be removed durably; close all "
              "connections and reopen",
              path_);
}

Status Database::commit_changes(std::uint64_t new_size, Holder* later) {
  const core::PersistTimer timer;
  MEMLITH_TRY(check_commits());
  const bool full = durability() == Durability::full;
  using Wait = Content::Wait;
  const Wait wait = !full ? Wait::never : later != nullptr ? Wait::later : Wait::now;
  // An undo works even if the log cannot grow. A crash in between leaves the journal, which undoes all of it.
  MEMLITH_TRY(content_.commit(new_size, wait, part_.is_undone));
  if (wait == Wait::later) {
    later->unwaited_lsn = content_.last_lsn();
    later->timer.emplace(timer);
  } else if (core::StatsPage* const page = store()->stats(); page != nullptr) {
    full ? timer.note_persist(*page) : timer.note_capture(*page);
  }
  return kOk;
}

// ---- a transaction over several databases --------------------------------------------------------------------------

Status Database::commit_part(const MemoryFile& journal) {
  if (in_wal() || read_only_ || content_.unchanged() || !names_super_journal(journal)) return commit();
  MEMLITH_TRY(check_commits());
  // SQLite has created the super-journal at the path, and would look for it there.
  MEMLITH_TRY_ASSIGN(const std::string identity_now, world_.identity_of(path_));
  if (identity_now != identity_) {
    return fail(Errc::read_only, Detail::open,
                "{}: the database was moved or renamed while it was open; a transaction over several databases needs "
                "it in its old place; put it back there, or close and open it",
                path_);
  }
  // ORDER mark-before-journal: a journal beside a file that plain SQLite may change would not count.
  // [test CrashSeveral.EveryOperation]
  MEMLITH_TRY(content_.mark());
  // ORDER journal-before-commit: the journal that undoes the commit is on the medium before the commit.
  // [mutant skip_journal_flush]
  part_.is_open = true;
  part_.is_undone = false;
  // ORDER earlier-before-journal: weak commits are durable before a journal that has their pages. Otherwise, after a
  // crash, the journal could not be used, and its super-journal would be left. [mutant skip_earlier_sync]
  const Lsn begin = store()->log().head();
  MEMLITH_TRY(store()->sync(begin));
  // The frame that the weak commits share is complete now: the next one begins at the head.
  // ORDER nothing-before-the-part: a log that goes on behind the origin has the transaction's frame there. With a mark
  // of time instead, a journal that was cut in the making would keep the database from being opened.
  // [test TimeMarkerTest.PutsNoMarkWhileOneMustNotCome]
  const core::TimeMarker::Pause commits_only = store()->without_time_marks();
  const JournalOrigin origin{store()->log().log_id(), store()->log().head().value};
  MEMLITH_TRY_ASSIGN(part_.journal, make_disk_journal(*volume_, file_name_));
  MEMLITH_TRY(store()->match_permissions(*part_.journal));  // before there are old pages in it for others to read
  MEMLITH_TRY(write_disk_journal(*volume_, *part_.journal, origin, journal));
  MEMLITH_TRY(commit_stored());
  // ORDER parts-before-outcome: SQLite removes the super-journal when all parts have returned; its absence means that
  // all parts took effect. [mutant skip_part_persist]
  return persist();
}

Status Database::end_part() {
  if (!part_.is_open) return kOk;
  // ORDER outcome-before-journal-is-gone: if SQLite put the old pages back, that is durable.
  // [test CrashSeveralParts.OneFails]
  MEMLITH_TRY(persist());
  // A failed flush of the folder is not retried. SQLite asks again and may forget its journal, but nothing is committed
  // any more that the journal on the disk could undo.
  if (part_.end_failed) return kOk;
  const Status removed = remove_disk_journal(*volume_, file_name_, part_.journal.get());
  part_.journal = nullptr;
  part_.is_open = part_.end_failed = !removed.ok();
  return removed;
}

// ---- locks ---------------------------------------------------------------------------------------------------------

Status Database::begin_writing() {
  if (read_only_) return fail(Errc::read_only, Detail::open, "{}: opened read-only", path_);
  // While this process held a shared lock, a writer of plain SQLite may have begun a journal and died. Plain SQLite
  // would replay that journal into the file after memlith's commits.
  return locks_.keep_others_out([this] { return content_.is_marked() ? kOk : check_nothing_left(); });
}

Status Database::lock(Holder& holder, int level) {
  MEMLITH_TRY(begin_use(holder));
  const Status status = locks_.lock(holder, level, [this] { return begin_writing(); });
  if (!status.ok()) end_use_if_idle(holder);
  return status;
}

void Database::unlock(Holder& holder, int level) {
  // journal_mode=OFF has no journal for a rollback: pages that were spilled and not committed are undone here.
  const bool wrote = holder.level == SQLITE_LOCK_EXCLUSIVE && level <= SQLITE_LOCK_SHARED && !in_wal();
  if (wrote && !content_.unchanged()) roll_back();
  locks_.unlock(holder, level);
  end_use_if_idle(holder);
}

Status Database::lock_index(Holder& holder, int first, int count, int flags) {
  if ((flags & SQLITE_SHM_UNLOCK) == 0) MEMLITH_TRY(begin_use(holder));
  const Status status = lock_index_here(holder, first, count, flags);
  end_use_if_idle(holder);
  return status;
}

Status Database::lock_index_here(Holder& holder, int first, int count, int flags) {
  const bool exclusive = (flags & SQLITE_SHM_EXCLUSIVE) != 0;
  if ((flags & SQLITE_SHM_UNLOCK) != 0) {
    if (first == kWriteLock && (holder.index_locks.exclusive & 1) != 0) {
      unlock_for_writing(holder, count);
    } else {
      index_.unlock(holder.index_locks, first, count);
    }
    return kOk;
  }
  if (exclusive && first == kWriteLock) return lock_for_writing(holder, count);
  if (!index_.lock(holder.index_locks, first, count, exclusive)) return kBusyHere;
  if (exclusive && first == kCheckpointLock) holder.checkpoint_waits = true;
  if (exclusive || first < kFirstReadLock) return kOk;
  const Status status = begin_reading(holder);
  if (!status.ok()) index_.unlock(holder.index_locks, first, count);
  return status;
}

// ---- state ---------------------------------------------------------------------------------------------------------

bool Database::same_file() const {
  if (store() != nullptr) {
    // A process that gave up the right to look must still be able to continue.
    const auto named = store()->file_has_its_name();
    return named.ok() ? *named : named.error().category == core::Errc::permission;
  }
  if (content_.plain() == nullptr) return false;
  const auto own = content_.plain()->identity();
  const auto named = volume_->identity_of(file_name_);
  return own.ok() && named.ok() && *named == *own;
}

std::string Database::describe() const {
  std::string text = fmt::format("database={} size_bytes={} read_only={} durability={} journal={}", one_word(path_),
                                 content_.size(), read_only_ ? 1 : 0,
                                 durability() == Durability::full ? "full" : "weak", in_wal() ? "wal" : "rollback");
  if (store() == nullptr || read_only_) return text;
  store()->publish_stats();
  const core::StatsPage& page = *store()->stats();
  const auto value = [](const core::Counter& counter) { return counter.load(std::memory_order_relaxed); };
  text += fmt::format(
      " commits={} commit_p50_ns={} commit_p99_ns={} commit_max_ns={} weak_commits={} changed_bytes={} "
      "log_written_bytes={} log_bytes={} log_used_bytes={} checkpoints={} home_written_bytes={} replayed_commits={} "
      "not_yet_durable_bytes={} failed={}",
      page.persists.count(), page.persists.percentile_ns(0.5), page.persists.percentile_ns(0.99),
      page.persists.percentile_ns(1), page.captures.count(), value(page.captured_bytes), value(page.logged_bytes),
      value(page.log_bytes), value(page.log_used_bytes), value(page.checkpoints), value(page.home_bytes),
      store()->counters().replayed_commits,
      std::max(content_.last_lsn(), value(page.durable_lsn)) - value(page.durable_lsn), value(page.poisoned));
  return text;
}

}  // namespace memlith::sqlite
