// Which connections use a database, and what is done with it while none does.
#include <new>

#include "database.hpp"

namespace memlith::sqlite {

using core::Detail;
using core::Errc;
using core::fail;
using core::kOk;
using core::Status;

// ---- which connections use it --------------------------------------------------------------------------------------

Status Database::begin_use(Holder& holder) {
  if (holder.in_use) return kOk;
  MEMLITH_TRY(usage_->enter());
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
  usage_->leave();
}

Database::Use::Use(Database& database, Holder& holder)
    : database_(database), holder_(holder), began_(!holder.in_use), status_(database.begin_use(holder)) {}

Database::Use::~Use() {
  if (!began_ || !status_.ok()) return;
  holder_.in_use = false;
  database_.usage_->leave();
}

Status Database::pin(Holder& holder) {
  MEMLITH_TRY(begin_use(holder));
  holder.pinned = true;
  return kOk;
}

// ---- idle ----------------------------------------------------------------------------------------------------------

bool Database::is_not_ordinary() const { return store() != nullptr && !read_only_ && content_.mark_is_home(); }

// The mark is the exception: a program that is killed while its database is idle leaves an ordinary file. The next
// commit puts the mark back.
Status Database::make_ordinary() {
  if (!is_not_ordinary() || lags_.load(std::memory_order_relaxed) || part_.is_open || part_.end_failed) return kOk;
  if (!in_wal() && !content_.unchanged()) return kOk;
  // Older snapshots may be longer than what is committed, and the file is about to be cut.
  const std::uint64_t bytes = content_.committed();
  if (bytes == 0 || content_.size() > bytes) return kOk;
  MEMLITH_TRY(store()->failure());
  return content_.make_ordinary();
}

// ---- the end of the process ----------------------------------------------------------------------------------------

Status Database::end() {
  // Recovery decides these.
  if (store() == nullptr || read_only_ || lags_.load(std::memory_order_relaxed) || part_.is_open || part_.end_failed) {
    return kBusyHere;
  }
  if (wal_.unpublished() != 0) return kBusyHere;
  MEMLITH_TRY(store()->failure());
  try {
    if (!in_wal()) roll_back();
    // The changes that SQLite would undo with the journal of a failed rollback are undone.
    if (const auto left = journal(); left != nullptr) left->truncate(0);
    MEMLITH_TRY(persist());
    wal_.forget_slots();
    wal_.truncate(0);
    // Whatever the result, there is no store any more for a transaction.
    (void)close_store();
    return kOk;
  } catch (const std::bad_alloc&) {
    return fail(Errc::no_memory, Detail::open, "{}: no memory to close it", path_);
  }
}

}  // namespace memlith::sqlite
