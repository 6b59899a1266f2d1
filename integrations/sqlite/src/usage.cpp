#include "usage.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/process.hpp"

namespace memlith::sqlite {

using core::Detail;
using core::Errc;
using core::kOk;
using core::LockGuard;
using core::Status;
using std::chrono::milliseconds;

Usage::Usage(Used& used, milliseconds idle)
    : used_(used), idle_(idle), process_mark_(core::process_mark()), idle_since_(Clock::now()) {}

// A child has the memory as it was, and no thread that tends the database; its parent may hold the mutex forever.
bool Usage::in_forked_child() const { return core::process_mark() != process_mark_; }

Status Usage::enter() {
  if (in_forked_child()) return kOk;  // reads what it inherited, and is refused where it writes
  const LockGuard guard(mutex_);
  if (closed_) return Status{Errc::busy, Detail::none, 0, 0};
  ++users_;
  ++entries_;
  return kOk;
}

void Usage::leave() {
  if (in_forked_child()) return;
  const LockGuard guard(mutex_);
  --users_;
}

std::optional<Usage::Time> Usage::tend() {
  const LockGuard guard(mutex_);
  const Time now = Clock::now();
  const bool idle = users_ == 0 && entries_ == std::exchange(entries_seen_, entries_);
  if (!idle) idle_since_ = now;
  if (closed_ || idle_ == milliseconds(0) || !used_.is_not_ordinary()) return std::nullopt;
  if (idle && now - idle_since_ >= idle_) {
    (void)used_.make_ordinary();  // a failure poisons the database, whose next commit tells it
    return std::nullopt;
  }
  return now + std::max(idle_ / 2, milliseconds(1));
}

void Usage::end_process() {
  if (in_forked_child() || !mutex_.try_lock()) return;
  const LockGuard guard(mutex_, std::adopt_lock);
  if (!closed_ && users_ == 0) closed_ = used_.end().ok();
}

void Usage::close() {
  if (in_forked_child()) return;
  const LockGuard guard(mutex_);
  closed_ = true;
}

}  // namespace memlith::sqlite
