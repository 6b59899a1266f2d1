#include "file_locks.hpp"

#include <sqlite3.h>

#include <algorithm>

namespace memlith::sqlite {

using core::kOk;
using core::LockGuard;
using core::Status;

Status FileLocks::keep_others_out(const Check& check) {
  const LockGuard guard(host_mutex_);
  if (host_exclusive_ || host_ == nullptr) return kOk;
  MEMLITH_TRY(host_->make_exclusive());
  if (const Status checked = check(); !checked.ok()) {
    (void)host_->share();
    return checked;
  }
  host_exclusive_ = true;
  return kOk;
}

Status FileLocks::lock(Holder& holder, int level, const Check& begin_writing) {
  const LockGuard guard(mutex_);
  if (holder.level >= level) return kOk;
  const auto of_another = [&holder](const Holder* who) { return who != nullptr && who != &holder; };
  if (holder.level == SQLITE_LOCK_NONE) {
    if (pending_ != nullptr) return kBusyHere;
    ++shared_;
    holder.level = SQLITE_LOCK_SHARED;
  }
  if (level == SQLITE_LOCK_SHARED) return kOk;
  if (of_another(writer_) || of_another(pending_)) return kBusyHere;
  MEMLITH_TRY(begin_writing());
  writer_ = &holder;
  holder.level = std::max(holder.level, SQLITE_LOCK_RESERVED);
  if (level == SQLITE_LOCK_RESERVED) return kOk;
  // From here on no new reader is admitted; existing readers continue.
  pending_ = &holder;
  holder.level = SQLITE_LOCK_PENDING;
  if (shared_ > 1) return kBusyHere;
  holder.level = SQLITE_LOCK_EXCLUSIVE;
  return kOk;
}

void FileLocks::unlock(Holder& holder, int level) {
  const LockGuard guard(mutex_);
  if (holder.level <= level) return;
  if (writer_ == &holder) writer_ = nullptr;
  if (pending_ == &holder) pending_ = nullptr;
  if (level == SQLITE_LOCK_NONE) --shared_;
  holder.level = level;
}

bool FileLocks::held() const {
  const LockGuard guard(mutex_);
  return shared_ > 0;
}

bool FileLocks::reserved() const {
  const LockGuard guard(mutex_);
  return writer_ != nullptr;
}

}  // namespace memlith::sqlite
