// WAL mode: commits that other connections see before they are durable, so that writers share a flush.
//
// A commit is logged under SQLite's write lock (wal.cpp). SQLite then publishes it, releases the lock, and sends
// SQLITE_FCNTL_COMMIT_PHASETWO, where the connection waits until the commit is durable; meanwhile the next connection
// commits on top of it. The log is flushed in order, so a durable commit's predecessors are durable.
//
// A reader must not return rows that a crash takes back. When its transaction begins it notes the newest commit that it
// may see (Holder::unwaited_lsn), and it waits for that commit before it gets its first page. One page is excepted:
// SQLite reads page 1 before it asks for the write lock, and a writer must not wait here. For page 1 the connection
// waits only if a commit in doubt changed what page 1 says. What a connection read without waiting, as a writer, may
// stay in its cache (Holder::cached_lsn); it waits for that when its next transaction begins.
//
// If a flush fails, nothing in doubt becomes durable any more: waiting calls fail, and no transaction begins, because
// it would see commits in doubt. Only recovery, when all connections are closed, tells which of them took effect. The
// wal-index that shows them is gone by then, because it belongs to this object.
//
// No lock that the flush needs is held by SQLite: a thread that waits here may hold any of SQLite's locks.
#include <algorithm>
#include <utility>

#include "database.hpp"
#include "wal_format.hpp"

namespace memlith::sqlite {

using core::kOk;
using core::LockGuard;
using core::Lsn;
using core::Status;

namespace {
// The read locks among the wal-index's locks.
constexpr std::uint8_t kReadLocks = 0xff & (0xff << kFirstReadLock);
constexpr std::uint8_t kCheckpointBit = 1 << kCheckpointLock;
}  // namespace

// ---- the write lock ------------------------------------------------------------------------------------------------

Status Database::lock_for_writing(Holder& holder, int count) {
  const auto lock = [&] { return index_.lock(holder.index_locks, kWriteLock, count, true); };
  const bool got = writers_->try_lock(*holder.waiter, lock);
  const bool transaction = (holder.index_locks.shared & kReadLocks) != 0;
  if (!got) {
    // A connection that rebuilds the index, with neither of these locks, finds it rebuilt and does not ask again.
    const bool comes_again = transaction || (holder.index_locks.exclusive & kCheckpointBit) != 0;
    if (comes_again) note_refused(writers_, holder.waiter);
    return kBusyHere;
  }
  if (read_only_) return kOk;
  const std::uint64_t seen = visible_lsn_.load(std::memory_order_acquire);
  const bool in_doubt = durability() == Durability::full && !is_durable(seen);
  Status status = begin_writing();
  if (status.ok() && in_doubt) status = store()->failure();
  if (!status.ok()) {
    writers_->unlock([&] { index_.unlock(holder.index_locks, kWriteLock, count); });
    return status;
  }
  holder.writes = transaction;
  holder.begun_at_lsn = content_.last_lsn();
  // The transaction sees the newest commit, and its COMMIT waits for that, even if it changes nothing.
  if (in_doubt) holder.unwaited_lsn = seen;
  return kOk;
}

void Database::unlock_for_writing(Holder& holder, int count) {
  note_publication(false);
  const bool wrote = holder.begun_at_lsn != content_.last_lsn();
  const bool tries_again = std::exchange(holder.writes, false) && !wrote;
  holder.cached_lsn = std::max(holder.cached_lsn, holder.unwaited_lsn);
  writers_->unlock([&] { index_.unlock(holder.index_locks, kWriteLock, count); });
  // If SQLite found its snapshot out of date, it releases the lock at once, and its busy handler is next.
  if (tries_again) note_refused(writers_, holder.waiter);
}

// ---- waiting -------------------------------------------------------------------------------------------------------

Status Database::begin_reading(Holder& holder) {
  if (store() == nullptr || read_only_ || durability() == Durability::weak) return kOk;
  if (holder.writes) return kOk;  // a writer that restarts SQLite's log asks again
  holder.unwaited_lsn = 0;
  const std::uint64_t seen = visible_lsn_.load(std::memory_order_acquire);
  if (is_durable(seen)) return kOk;
  // SQLite may have all pages in its cache, those of a failed commit among them, and ask for none.
  MEMLITH_TRY(store()->failure());
  holder.unwaited_lsn = seen;
  if (holder.reads_latest) {
    holder.cached_lsn = seen;
    return kOk;
  }
  if (holder.has_wal) return store()->sync(Lsn{holder.cached_lsn});
  // Nothing tells whose log is read, so no page is waited for later.
  holder.unwaited_lsn = 0;
  return store()->sync(Lsn{seen});
}

Status Database::await_seen(Holder& holder, bool page_one) {
  if (holder.reads_latest) return kOk;
  const std::uint64_t seen = holder.unwaited_lsn;
  if (page_one) return store()->sync(Lsn{std::min(seen, page_one_lsn_.load(std::memory_order_acquire))});
  // ORDER durable-before-read: a page reaches a reader only when every commit that may be in it is durable.
  // [mutant skip_reader_wait]
  MEMLITH_TRY(store()->sync(Lsn{seen}));
  holder.unwaited_lsn = 0;
  return kOk;
}

Status Database::end_commit(Holder& holder) {
  const std::optional<core::PersistTimer> timer = std::exchange(holder.timer, std::nullopt);
  if (holder.unwaited_lsn == 0 || store() == nullptr) return kOk;
  // ORDER durable-before-return: a commit returns only when it, and whatever it saw, is durable.
  // [mutant skip_commit_wait, mutant skip_seen_wait]
  MEMLITH_TRY(store()->sync(Lsn{holder.unwaited_lsn}));
  holder.unwaited_lsn = 0;
  if (core::StatsPage* const page = store()->stats(); timer.has_value() && page != nullptr) timer->note_persist(*page);
  return kOk;
}

// SQLite chooses what to store after it got the checkpoint lock, and before its first store.
Status Database::await_checkpoint(Holder& holder) {
  if (store() == nullptr || !in_wal() || durability() == Durability::weak) return kOk;
  // Alone with the database, it takes no such lock.
  const bool has_lock = (holder.index_locks.exclusive & kCheckpointBit) != 0;
  if (has_lock && !std::exchange(holder.checkpoint_waits, false)) return kOk;
  // ORDER durable-before-checkpoint: memory outside SQLite's log, which is all that a connection in another journal
  // mode reads, has durable commits only. [test InDoubt.NoCheckpointStoresWhatIsInDoubt]
  return store()->sync(Lsn{visible_lsn_.load(std::memory_order_acquire)});
}

// ---- connections ---------------------------------------------------------------------------------------------------

std::uint64_t Database::join(Holder& holder) {
  static std::atomic<std::uint64_t> numbers{0};  // of all databases of the process
  const std::uint64_t number = numbers.fetch_add(1, std::memory_order_relaxed) + 1;
  const LockGuard guard(holders_mutex_);
  holders_[number] = &holder;
  return number;
}

void Database::leave(Holder& holder, std::uint64_t number) {
  if (std::exchange(holder.in_use, false)) usage_->leave();
  writers_->leave(*holder.waiter);
  const LockGuard guard(holders_mutex_);
  holders_.erase(number);
}

Holder* Database::find(std::uint64_t number) {
  const LockGuard guard(holders_mutex_);
  const auto found = holders_.find(number);
  return found != holders_.end() ? found->second : nullptr;
}

}  // namespace memlith::sqlite
