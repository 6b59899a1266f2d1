// A database that moves between processes: how this process takes it, gives it up, and makes an idle one ordinary.
//
// What connections keep while another process has the database: SQLite's caches, the memory of the wal-index, and in
// WAL mode SQLite's lock SHARED. When this process takes the database again, SQLite gives its caches up: in WAL mode
// because the index has another header, otherwise because the change counter in page 1 is another one.
#include <fmt/format.h>

#include <new>

#include "database.hpp"
#include "log/log.hpp"

namespace memlith::sqlite {

using core::Detail;
using core::Errc;
using core::fail;
using core::kOk;
using core::LockGuard;
using core::Status;

// ---- which connections use it --------------------------------------------------------------------------------------

Status Database::begin_use(Holder& holder, std::chrono::milliseconds wait) {
  if (holder.in_use) return kOk;
  const Status status = lease_->enter(wait);
  if (status.category == Errc::busy) note_lease_refused(lease_);
  MEMLITH_TRY(status);
  holder.in_use = true;
  return kOk;
}

// In WAL mode a connection holds SHARED from its first transaction until it is closed, and uses nothing in between.
void Database::end_use_if_idle(Holder& holder) {
  if (!holder.in_use || holder.pinned) return;
  if ((holder.index_locks.shared | holder.index_locks.exclusive) != 0) return;
  const bool is_idle = holder.level == SQLITE_LOCK_NONE || (holder.level == SQLITE_LOCK_SHARED && holder.maps_index);
  if (!is_idle) return;
  holder.in_use = false;
  lease_->leave();
}

Database::Use::Use(Database& database, Holder& holder, std::chrono::milliseconds wait)
    : database_(database), holder_(holder), began_(!holder.in_use), status_(database.begin_use(holder, wait)) {}

Database::Use::~Use() {
  if (!began_ || !status_.ok()) return;
  holder_.in_use = false;
  database_.lease_->leave();
}

Status Database::pin(Holder& holder) {
  MEMLITH_TRY(begin_use(holder, std::chrono::milliseconds(options_.open_wait_ms)));
  holder.pinned = true;
  return kOk;
}

// ---- take ----------------------------------------------------------------------------------------------------------

Status Database::take() {
  try {
    const Status status = try_to_take();
    if (status.ok()) return kOk;
    // A failed opening leaves no log that it created.
    const core::KeptSentence why;
    image_ = nullptr;
    if (store_ != nullptr && !read_only_ && status.category != Errc::io) store_->undo_creation();
    store_ = nullptr;
    plain_ = nullptr;
    locks_.release_host();
    if (status.category != Errc::busy) stop_waiting();
    return status;
  } catch (const std::bad_alloc&) {
    image_ = nullptr;
    store_ = nullptr;
    plain_ = nullptr;
    locks_.release_host();
    return fail(Errc::no_memory, Detail::open, "{}: no memory to open it", path_);
  }
}

Status Database::try_to_take() {
  if (!broken_.ok()) return broken_.tell();
  if (locks_.host() == nullptr) {
    MEMLITH_TRY_ASSIGN(auto host, world_.host(*volume_, file_name_, !wants_read_only_));
    locks_.set_host(std::move(host));
  }
  HostLock& host = *locks_.host();
  const LockGuard guard(busy_mutex_);
  busy_text_.clear();
  MEMLITH_TRY_ASSIGN(const bool next, host.stand_in_line());
  if (!next) return kBusyHere;
  MEMLITH_TRY_ASSIGN(const bool leased, host.take_lease(wants_read_only_));
  if (!leased) return kBusyHere;
  MEMLITH_TRY(check_place());
  forget_memory();
  Status status = host.share();
  if (status.ok()) status = open_it();
  if (status.category == Errc::busy) busy_text_ = core::last_error_text();
  MEMLITH_TRY(status);
  MEMLITH_TRY(locks_.host()->show_presence(false));
  index_.restart();
  locks_.host()->leave_line();
  return kOk;
}

// A file that was moved or removed while another process could have it has nothing to do with these connections.
Status Database::check_place() {
  MEMLITH_TRY_ASSIGN(const auto now, volume_->identity_of(file_name_));
  if (now == file_identity_) return kOk;
  return fail(Errc::not_found, Detail::open,
              "{}: the database was moved, renamed or removed while another process had it; close this connection and "
              "open the database where it is now",
              path_);
}

Status Database::tell_holder() {
  {
    const LockGuard guard(busy_mutex_);
    if (!busy_text_.empty()) return fail(Errc::busy, Detail::lock, "{}", busy_text_);
  }
  const Status told = check_free(core::file_log_name(file_name_));
  if (told.category == Errc::busy) return told;
  return fail(Errc::busy, Detail::lock, "{}: the database is in use by another process; try again, or close it there",
              path_);
}

// ---- give up -------------------------------------------------------------------------------------------------------

Status Database::give_up(bool for_good) {
  try {
    return leave_for_next(for_good);
  } catch (const std::bad_alloc&) {
    return fail(Errc::no_memory, Detail::open, "{}: no memory to close it", path_);
  }
}

Status Database::leave_for_next(bool for_good) {
  if (store_ != nullptr && !read_only_) {
    // After these the database stays as it is until all connections are closed. An undecided part is decided by the
    // next transaction here.
    if (lags_.load(std::memory_order_relaxed) || part_.is_open || part_.end_failed) return kBusyHere;
    if (wal_.unpublished_slots.load(std::memory_order_relaxed) != 0) return kBusyHere;
    MEMLITH_TRY(store_->failure());
    if (!in_wal()) roll_back();
    // What SQLite would undo with a journal that a failed rollback has left is undone.
    if (const auto left = journal(); left != nullptr) left->truncate(0);
    // Plain SQLite, which does not see that there are connections in WAL mode, must not change the journal mode.
    if (!for_good && locks_.held()) MEMLITH_TRY(mark());
    MEMLITH_TRY(persist());
  }
  if (locks_.held()) MEMLITH_TRY(locks_.host()->show_presence(true));
  Status closed = kOk;
  if (store_ != nullptr) {
    forget_slots();
    wal_.file->truncate(0);
    closed = close_store(for_good);
  }
  if (!closed.ok()) broken_.keep(closed);
  image_ = nullptr;
  store_ = nullptr;
  plain_ = nullptr;
  forget_memory();
  // ORDER closed-before-release: the next process continues with the log, so nothing of this one is under way.
  // [test Files.ASecondProcessGetsTheDatabase]
  locks_.release_host();
  return kOk;
}

// Nothing of what memory knows of the file is right any more when another process has had it.
void Database::forget_memory() {
  undo_.clear();
  changes_.clear();
  size_.store(0, std::memory_order_release);
  committed_.store(0, std::memory_order_relaxed);
  reserved_.store(0, std::memory_order_release);
  stored_ = stale_end_ = captured_bytes_ = 0;
  marked_ = false;
  mark_is_home_ = false;
  part_ = Part();
  (void)left_journal_.take();
  forget_slots();
  wal_.in_use.store(false, std::memory_order_release);
  // Places in the log that another process may have removed.
  last_lsn_.store(0, std::memory_order_relaxed);
  page_one_lsn_.store(0, std::memory_order_release);
  visible_lsn_.store(0, std::memory_order_release);
  {
    const LockGuard guard(holders_mutex_);
    for (const auto& [number, holder] : holders_) {
      holder->unwaited_lsn = holder->cached_lsn = holder->begun_at_lsn = 0;
      holder->timer.reset();
    }
  }
  read_only_.store(wants_read_only_, std::memory_order_relaxed);
}

// ---- idle ----------------------------------------------------------------------------------------------------------

bool Database::is_unsettled() const { return store_ != nullptr && !read_only_ && mark_is_home_; }

// The mark is the exception: a program that is killed while its database is idle leaves an ordinary file. The next
// commit puts the mark back.
Status Database::settle() {
  if (!is_unsettled() || lags_.load(std::memory_order_relaxed) || part_.is_open || part_.end_failed) return kOk;
  if (!in_wal() && !unchanged()) return kOk;
  // Older snapshots may be longer than what is committed, and the file is about to be cut.
  const std::uint64_t bytes = committed_.load(std::memory_order_relaxed);
  if (bytes == 0 || size() > bytes) return kOk;
  MEMLITH_TRY(store_->failure());
  MEMLITH_TRY(close_marked());
  image_->note_cut(bytes);
  reserved_.store(stored_, std::memory_order_release);
  return kOk;
}

}  // namespace memlith::sqlite
