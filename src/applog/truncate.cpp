// Entries by their numbers: reading them, and cutting the log at either end.
//
// A cut is one frame, behind the frames of the entries that it drops and before those of the entries that take their
// place. At the newer end the frame has an end mark where the first dropped entry began; at the older end it has the
// position of the first entry that stays, as consuming has.
#include <algorithm>

#include "applog/applog.hpp"

namespace memlith::core::applog {

Result<bool> AppLog::read_at(std::uint64_t number, std::vector<std::byte>& content) {
  if (!not_followed_.ok()) return not_followed_.tell();
  MEMLITH_TRY(region_.store().check_homes());
  const LockGuard lock(mutex_);
  if (number < consumed_.number || number > durable_number()) return false;
  const std::uint64_t at = index_.find(ring_, consumed_, number);
  if (read_entry(ring_, at, number, appended_ - at, seed_, content) != Found::entry) {
    return damaged(ring_.offset_of(at), "an entry of the application log is damaged");
  }
  return true;
}

Status AppLog::truncate_after(std::uint64_t last) {
  MEMLITH_TRY(need_writable());
  Collectors& collectors = region_.store().collectors();
  const LockGuard handing(collectors.mutex());
  bool is_logged = false;
  {
    const LockGuard lock(mutex_);
    if (last >= number_) return kOk;
    if (last + 1 < consumed_.number) {
      return fail(Errc::invalid, Detail::argument, "entry {} was consumed, and so was entry {}; nothing was truncated",
                  last + 1, consumed_.number - 1);
    }
    is_logged = last < numbers_.logged();
  }
  // A frame follows; or what was set aside, and refused, lies where the ring has it now.
  if (is_logged || collectors.refused()) MEMLITH_TRY(collectors.close_held(false).status());
  const LockGuard lock(mutex_);
  cuts_.reserve(cuts_.size() + 1);
  const std::uint64_t at = index_.find(ring_, consumed_, last + 1);
  MEMLITH_ASSERT(consumed_.at <= at && at <= appended_);
  const EntryHeader mark = end_mark(last + 1, seed_);
  Lsn end;
  if (last < numbers_.logged()) {
    Changes changes;
    add_end_mark(changes, at, mark);
    // ORDER cut-before-replacement: the frame of the cut lies before those of the entries that take the place of what
    // is dropped. Without it a crash before them brings the dropped entries back. [mutant applog_cut_in_memory]
    MEMLITH_TRY_ASSIGN(end, region_.commit_bytes(changes.extents, changes.sources, false));
    handed_ = at;
    lowest_handed_ = std::min(lowest_handed_, at);
    (void)durable_number();
    numbers_.cut(last);
    dropped_end_ = end;
  }
  // Before the mark lies where a reader of another process may be. [mutant applog_changes_not_shown]
  const Board::Changing changing(options_.board.get());
  put(at, &mark, sizeof mark);
  appended_ = at;
  number_ = last;
  if (read_.number > last + 1) read_ = {at, last + 1, 0};
  index_.drop_from(last + 1, at);
  note_cut(last + 1);
  show_numbers();
  if (end != Lsn{0}) region_.store().flush_soon(end);
  tell_freed();
  return kOk;
}

Status AppLog::truncate_before(std::uint64_t first) {
  MEMLITH_TRY(need_writable());
  if (first == 0) return kOk;
  if (const std::uint64_t known = newest(); first > known + 1) {
    return fail(Errc::invalid, Detail::argument, "there is no entry {} yet; the newest is {}", first - 1, known);
  }
  // The entries go to the redo log before the position behind them does.
  MEMLITH_TRY(region_.store().close_collectors());
  Position position{};
  {
    const LockGuard lock(mutex_);
    if (first <= consumed_.number) return kOk;
    position = {index_.find(ring_, consumed_, first), first, 0};
    position.checksum = sum_of(position, seed_);
  }
  Changes changes;
  add(changes, kPositionOffset, &position, sizeof position);
  MEMLITH_TRY_ASSIGN(const Lsn end, region_.commit_bytes(changes.extents, changes.sources, false));
  move_consumed(position, end);
  region_.store().flush_soon(end);
  return kOk;
}

Status AppLog::restart(std::uint64_t next) {
  MEMLITH_TRY(need_writable());
  if (next == 0) return fail(Errc::invalid, Detail::argument, "entries have numbers from 1 on, not 0");
  Collectors& collectors = region_.store().collectors();
  const LockGuard handing(collectors.mutex());
  MEMLITH_TRY(collectors.close_held(false).status());
  const LockGuard lock(mutex_);
  if (number_ + 1 == next && consumed_.number == next) return kOk;
  cuts_.reserve(cuts_.size() + 1);
  // Behind everything that is in the redo log, so that no byte in use is overwritten before the position has moved.
  Position position{handed_, next, 0};
  position.checksum = sum_of(position, seed_);
  const EntryHeader mark = end_mark(next, seed_);
  Changes changes;
  add(changes, kPositionOffset, &position, sizeof position);
  // ORDER position-with-mark: one frame has both, because a position is found again only with the entry or the mark
  // of its number behind it. [mutant applog_restart_in_two]
  add_end_mark(changes, handed_, mark);
  MEMLITH_TRY_ASSIGN(const Lsn end, region_.commit_bytes(changes.extents, changes.sources, false));
  const Board::Changing changing(options_.board.get());
  put(handed_, &mark, sizeof mark);
  std::memcpy(memory_ + kPositionOffset, &position, sizeof position);
  consumed_ = read_ = position;
  appended_ = handed_;
  give_up(position.at, end);
  number_ = next - 1;
  numbers_.begin(number_);
  index_.clear();
  note_cut(next);
  show_numbers();
  region_.store().flush_soon(end);
  tell_freed();
  return kOk;
}

// ---- for readers of other processes ----------------------------------------------------------------------------

void AppLog::show_numbers() {
  if (options_.board == nullptr) return;
  options_.board->show_consumed(consumed_.number - 1);
  options_.board->show_logged(numbers_.logged());
  (void)durable_number();
}

// Cuts before what is consumed are alike: a reader goes on behind that.
void AppLog::note_cut(std::uint64_t first) {
  if (options_.board == nullptr) return;
  while (!cuts_.empty() && cuts_.back().first >= first) cuts_.pop_back();
  cuts_.push_back({options_.board->head().changes.load(std::memory_order_relaxed), first});
  while (cuts_.size() > 1 && cuts_[1].first <= consumed_.number) cuts_.erase(cuts_.begin());
}

Place AppLog::place_of(std::uint64_t number, std::uint64_t changes, Lsn& due) {
  MEMLITH_ASSERT(options_.board != nullptr);
  const LockGuard lock(mutex_);
  (void)durable_number();
  const auto cut = std::find_if(cuts_.begin(), cuts_.end(), [&](const Cut& each) { return each.changes > changes; });
  if (cut != cuts_.end()) number = std::min(number, cut->first);
  const std::uint64_t found = std::clamp(number, consumed_.number, numbers_.logged() + 1);
  due = found <= numbers_.logged() ? numbers_.end_of(found) : Lsn{0};
  return {found, index_.find(ring_, consumed_, found), ring_.capacity(), ring_.shape().base,
          options_.board->head().changes.load(std::memory_order_relaxed)};
}

}  // namespace memlith::core::applog
