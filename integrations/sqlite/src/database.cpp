// Memory, commits of rollback journals, and locks. Opening and closing are in database_open.cpp, WAL in wal.cpp.
#include "database.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/memory_budget.hpp"
#include "difference.hpp"
#include "wal_format.hpp"

namespace memlith::sqlite {

using core::Detail;
using core::Errc;
using core::Extent;
using core::fail;
using core::kFile;
using core::kMiB;
using core::kOk;
using core::kPageBytes;
using core::Lsn;
using core::ObjectId;
using core::round_up;
using core::SizeChange;
using core::Status;

namespace {
constexpr std::uint64_t kGrowthBytesMax = 64 * kMiB;

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

core::Result<std::uint64_t> Database::read(std::uint64_t offset, void* target, std::uint64_t bytes) const {
  const std::uint64_t end = size();
  const std::uint64_t got = offset < end ? std::min(bytes, end - offset) : 0;
  MEMLITH_TRY(image_->load(offset, got));
  image_->read(offset, target, got);
  return got;
}

const std::byte* Database::fetch(std::uint64_t offset, std::uint64_t bytes) const {
  return offset + bytes <= size() && image_->load(offset, bytes).ok() ? image_->find(offset, bytes) : nullptr;
}

Status Database::write(std::uint64_t offset, const void* source, std::uint64_t bytes) {
  if (read_only_) return fail(Errc::read_only, Detail::open, "{}: opened read-only", path_);
  const std::uint64_t now = size();
  const std::uint64_t end = offset + bytes;
  if (end > now) {
    MEMLITH_TRY(reserve(end));
    if (offset > now) zero_between(now, offset);
  }
  MEMLITH_TRY(image_->load(offset, bytes));
  const std::uint64_t kept = kept_bytes(offset, bytes);
  const auto* const from = static_cast<const std::byte*>(source);
  undo_.write(*image_, offset, from, kept);
  image_->write(offset + kept, from + kept, bytes - kept);
  if (end > now) size_.store(end, std::memory_order_release);
  return kOk;
}

Status Database::truncate(std::uint64_t bytes) {
  if (read_only_) return fail(Errc::read_only, Detail::open, "{}: opened read-only", path_);
  const std::uint64_t now = size();
  if (bytes > now) {
    MEMLITH_TRY(reserve(bytes));
    zero_between(now, bytes);
  } else {
    stale_end_ = std::max(stale_end_, now);
  }
  size_.store(bytes, std::memory_order_release);
  return kOk;
}

// Only if the size was larger before, memory holds old bytes instead of zeros there.
void Database::zero_between(std::uint64_t begin, std::uint64_t end) {
  end = std::min(end, stale_end_);
  if (begin >= end) return;
  const std::uint64_t kept = kept_bytes(begin, end - begin);
  undo_.zero(*image_, begin, kept);
  image_->zero(begin + kept, end - begin - kept);
}

// How many bytes of a store a rollback would have to undo. A WAL checkpoint stores bytes that are committed already.
std::uint64_t Database::kept_bytes(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t committed = in_wal() ? 0 : committed_.load(std::memory_order_relaxed);
  return offset < committed ? std::min(bytes, committed - offset) : 0;
}

// Makes the home file and the mapping long enough, with a reserve, because each growth costs flushes.
Status Database::reserve(std::uint64_t bytes) {
  if (bytes <= reserved_.load(std::memory_order_acquire)) return kOk;
  const std::lock_guard lock(growth_mutex_);
  if (bytes <= reserved_.load(std::memory_order_relaxed)) return kOk;
  // ORDER mark-before-growth: a file that plain SQLite may open must have the length that SQLite gave it.
  // [test Crash.EveryOperation]
  MEMLITH_TRY(mark());
  const std::uint64_t ahead =
      std::clamp(bytes / 8, options_.growth_bytes_min, std::max(kGrowthBytesMax, options_.growth_bytes_min));
  std::uint64_t wanted = round_up(bytes + ahead, kPageBytes);
  Status status = store_->reserve_home(kFile, wanted);
  if (status.category == Errc::no_space) {
    wanted = round_up(bytes, kPageBytes);
    status = store_->reserve_home(kFile, wanted);
  }
  MEMLITH_TRY(status);
  MEMLITH_TRY(image_->cover(wanted));
  reserved_.store(wanted, std::memory_order_release);
  return kOk;
}

// ---- rollback ------------------------------------------------------------------------------------------------------

bool Database::unchanged() const { return undo_.empty() && size() == committed_.load(std::memory_order_relaxed); }

void Database::roll_back() {
  undo_.roll_back(*image_);
  stale_end_ = std::max(stale_end_, size());
  size_.store(committed_.load(std::memory_order_relaxed), std::memory_order_release);
}

// ---- commit --------------------------------------------------------------------------------------------------------

// An empty database has no bytes of its own, but the mark needs a place.
std::uint64_t Database::stored_size(std::uint64_t logical) const {
  return logical == 0 && marked_ ? kMarkBytes : logical;
}

Status Database::commit() {
  // Between a part and its end there is nothing else to commit.
  part_.is_undone = part_.is_open;
  return commit_stored();
}

Status Database::commit_stored() {
  if (in_wal() || read_only_) return kOk;
  const std::uint64_t now = size();
  const std::uint64_t before = committed_.load(std::memory_order_relaxed);
  if (unchanged()) return kOk;
  changes_.clear();
  const std::uint64_t kept_end = std::min(now, before);
  std::uint64_t counted_end = 0;  // of the pages that are counted as captured
  for (const UndoLog::Change& change : undo_.merge(*image_)) {
    if (change.offset >= kept_end) break;
    const std::uint64_t bytes = std::min(change.bytes, kept_end - change.offset);
    changes_.add(change.offset, bytes, image_->find(change.offset, bytes));
    const std::uint64_t pages_begin = std::max(counted_end, change.offset / kPageBytes * kPageBytes);
    const std::uint64_t pages_end = round_up(change.offset + bytes, kPageBytes);
    captured_bytes_ += pages_end - std::min(pages_begin, pages_end);
    counted_end = pages_end;
  }
  // Bytes beyond the committed size of the home file are arbitrary, so the new part is logged completely.
  if (now > before) {
    changes_.add_image(*image_, before, now);
    captured_bytes_ += now - before;
  }
  // If SQLite rolled back by storing the old pages again, there is nothing to do, even if the database has failed.
  if (!changes_.empty() || now != before) MEMLITH_TRY(commit_changes(now, nullptr));
  undo_.clear();
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
  // ORDER mark-before-commit: plain SQLite must not accept the file as a database while it lacks commits that are in
  // the log. [mutant skip_mark]
  MEMLITH_TRY(mark());
  const bool full = durability() == Durability::full;
  const Wait wait = !full ? Wait::never : later != nullptr ? Wait::later : Wait::now;
  MEMLITH_TRY(commit_frame(changes_.extents(), changes_.sources(), stored_size(new_size), wait));
  committed_.store(new_size, std::memory_order_relaxed);
  if (wait == Wait::later) {
    later->unwaited_lsn = last_lsn_.load(std::memory_order_relaxed);
    later->timer.emplace(timer);
  } else if (core::StatsPage* const page = store_->stats(); page != nullptr) {
    full ? timer.note_persist(*page) : timer.note_capture(*page);
  }
  return kOk;
}

// Commits one frame; to undo a part, as many frames as necessary.
Status Database::commit_frame(std::span<const Extent> extents, std::span<const std::byte* const> sources,
                              std::uint64_t new_stored_size, Wait wait) {
  const SizeChange change{kFile, new_stored_size};
  const bool resized = change.size_bytes != stored_;
  const auto committed = store_->commit_weak({extents, sources, {&change, resized ? 1u : 0u}}, wait != Wait::never);
  const bool no_room = committed.status().category == Errc::full || committed.status().category == Errc::no_space;
  if (no_room && part_.is_undone && extents.size() > 1) {
    // An undo works even if the log cannot grow. A crash in between leaves the journal, which undoes all of it.
    const std::size_t half = extents.size() / 2;
    MEMLITH_TRY(commit_frame(extents.first(half), sources.first(half), std::max(stored_, new_stored_size), wait));
    return commit_frame(extents.subspan(half), sources.subspan(half), new_stored_size, wait);
  }
  MEMLITH_TRY(committed.status());
  const Lsn end = *committed;
  last_lsn_.store(end.value, std::memory_order_relaxed);
  if (wait == Wait::now) {
    MEMLITH_TRY(store_->sync(end));
  } else if (wait == Wait::never) {
    store_->flush_soon(end);
  }
  stored_ = change.size_bytes;
  return kOk;
}

// ---- a transaction over several databases --------------------------------------------------------------------------

Status Database::commit_part(const MemoryFile& journal) {
  if (in_wal() || read_only_ || unchanged() || !names_super_journal(journal)) return commit();
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
  MEMLITH_TRY(mark());
  // ORDER journal-before-commit: the journal that undoes the commit is on the medium before the commit.
  // [mutant skip_journal_flush]
  part_.is_open = true;
  part_.is_undone = false;
  // ORDER earlier-before-journal: weak commits are durable before a journal that has their pages. Otherwise, after a
  // crash, the journal could not be used, and its super-journal would be left. [mutant skip_earlier_sync]
  const Lsn begin = store_->log().head();
  MEMLITH_TRY(store_->sync(begin));
  // The frame that the weak commits share is complete now: the next one begins at the head.
  // ORDER nothing-before-the-part: a log that goes on behind the origin has the transaction's frame there. With a mark
  // of time instead, a journal that was cut in the making would keep the database from being opened.
  // [test TimeMarkerTest.PutsNoMarkWhileOneMustNotCome]
  const core::TimeMarker::Pause commits_only = store_->without_time_marks();
  const JournalOrigin origin{store_->log().log_id(), store_->log().head().value};
  MEMLITH_TRY_ASSIGN(part_.journal, make_disk_journal(*volume_, file_name_));
  MEMLITH_TRY(store_->match_permissions(*part_.journal));  // before there are old pages in it for others to read
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

// One extent, durable on ok.
Status Database::commit_directly(const Extent* extent, const std::byte* bytes, const std::uint64_t* new_stored_size) {
  const SizeChange change{kFile, new_stored_size != nullptr ? *new_stored_size : 0};
  MEMLITH_TRY(store_->commit({{extent, extent != nullptr ? 1u : 0u},
                              {&bytes, extent != nullptr ? 1u : 0u},
                              {&change, new_stored_size != nullptr ? 1u : 0u}}));
  if (new_stored_size != nullptr) stored_ = *new_stored_size;
  return kOk;
}

Status Database::persist() {
  if (store_ == nullptr || read_only_) return kOk;
  MEMLITH_TRY(store_->check_process());
  return store_->sync(Lsn{last_lsn_.load(std::memory_order_relaxed)});
}

Status Database::keep_to_memory() {
  if (!core::MemoryBudget(options_.memory_max_bytes).used_up(captured_bytes_)) return kOk;
  captured_bytes_ = 0;
  MEMLITH_TRY(persist());
  MEMLITH_TRY(store_->checkpoint());
  return image_->release();
}

// ---- locks ---------------------------------------------------------------------------------------------------------

Status Database::begin_writing() {
  if (read_only_) return fail(Errc::read_only, Detail::open, "{}: opened read-only", path_);
  // While this process held a shared lock, a writer of plain SQLite may have begun a journal and died. Plain SQLite
  // would replay that journal into the file after memlith's commits.
  return locks_.keep_others_out([this] { return marked_ ? kOk : check_nothing_left(); });
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
  if (wrote && !unchanged()) roll_back();
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
  if (store_ != nullptr) {
    // A process that gave up the right to look must still be able to continue.
    const auto named = store_->file_has_its_name();
    return named.ok() ? *named : named.error().category == core::Errc::permission;
  }
  if (plain_ == nullptr) return false;
  const auto own = plain_->identity();
  const auto named = volume_->identity_of(file_name_);
  return own.ok() && named.ok() && *named == *own;
}

std::string Database::describe() const {
  std::string text = fmt::format("database={} size_bytes={} read_only={} durability={} journal={}", one_word(path_),
                                 size(), read_only_ ? 1 : 0, durability() == Durability::full ? "full" : "weak",
                                 in_wal() ? "wal" : "rollback");
  if (store_ == nullptr || read_only_) return text;
  store_->publish_stats();
  const core::StatsPage& page = *store_->stats();
  const auto value = [](const core::Counter& counter) { return counter.load(std::memory_order_relaxed); };
  text += fmt::format(
      " commits={} commit_p50_ns={} commit_p99_ns={} commit_max_ns={} weak_commits={} changed_bytes={} "
      "log_written_bytes={} log_bytes={} log_used_bytes={} checkpoints={} home_written_bytes={} replayed_commits={} "
      "not_yet_durable_bytes={} failed={}",
      page.persists.count(), page.persists.percentile_ns(0.5), page.persists.percentile_ns(0.99),
      page.persists.percentile_ns(1), page.captures.count(), value(page.captured_bytes), value(page.logged_bytes),
      value(page.log_bytes), value(page.log_used_bytes), value(page.checkpoints), value(page.home_bytes),
      store_->counters().replayed_commits,
      std::max(last_lsn_.load(std::memory_order_relaxed), value(page.durable_lsn)) - value(page.durable_lsn),
      value(page.poisoned));
  return text;
}

}  // namespace memlith::sqlite
