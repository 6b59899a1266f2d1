#include "group.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <climits>

#include "step.hpp"

namespace memlith::sqlite::shared {

namespace {

// How long a follower sleeps before it looks whether the leader was killed.
constexpr std::uint64_t kLookNs = 20'000'000;
// At least so long, and ten times as long as flushes usually take, a leader is waited for.
constexpr std::uint64_t kStoppedNs = 200'000'000;
constexpr std::uint64_t kGatherNsMax = 1'000'000;
// A window is shorter. A time that is further away is of another clock, or damaged.
constexpr std::uint64_t kFarNs = 2 * 24 * 3'600'000'000'000ull;

// ControlBlock::due: the time in microseconds, and a number that each commit changes.
std::uint64_t due_word(std::uint64_t time_ns, std::uint64_t before) {
  return std::max<std::uint64_t>(time_ns / 1000, 1) << 8 | ((before + 1) & 0xff);
}
std::uint64_t time_of(std::uint64_t due) { return (due >> 8) * 1000; }

}  // namespace

bool Group::is_durable(Position position) const {
  const Position known = Position::of(control_.durable.load(std::memory_order_acquire));
  return known.generation == position.generation && known.frame >= position.frame;
}

// A claim is true for ever, so one that a stopped process makes late is no lie: at worst the newest is forgotten.
void Group::claim(Position position) {
  std::uint64_t word = control_.durable.load(std::memory_order_relaxed);
  while (true) {
    const Position known = Position::of(word);
    if (known.generation == position.generation && known.frame >= position.frame) return;
    MEMLITH_SHARED_STEP();
    if (control_.durable.compare_exchange_weak(word, position.word(), std::memory_order_release)) return;
  }
}

std::uint64_t Group::number() const {
  // A flush beside a stopped leader has no number.
  if (control_.alone.load(std::memory_order_seq_cst) != 0) return UINT64_MAX;
  return control_.begun.load(std::memory_order_seq_cst);
}

// The system tells each descriptor that was open then once of a failure, and no other after it has told one: perhaps
// the killed leader's.
bool Group::may_miss_a_failure(const Log& log) const {
  const std::uint64_t doubt = control_.doubt.load(std::memory_order_acquire);
  const std::uint64_t opened_at = log.opened_at();
  return (doubt != 0 && opened_at >= doubt) || (opened_at == UINT64_MAX && control_.alone.load() != 0);
}

int Group::flush_once(Log& log) {
  const std::uint64_t begun = now_ns();
  // ORDER due-before-flush: a commit that promises later needs another flush.
  // [test SharedWindow.ACommitDuringTheFlushOfAWindowNeedsAnother]
  const std::uint64_t due = control_.due.load(std::memory_order_seq_cst);
  // ORDER look-before-flush: commits that become visible during the flush need not be part of it.
  // [test SharedPage.ACommitDuringAFlushNeedsAnother]
  auto newest = log.newest();
  MEMLITH_SHARED_STEP();
  int code = SQLITE_OK;
  if (may_miss_a_failure(log)) {
    code = log.write_again();
    // Nothing is known, and nothing is lost by that.
    if (code == SQLITE_NOMEM || code == SQLITE_BUSY)
      return code == SQLITE_BUSY ? SQLITE_IOERR_LOCK : SQLITE_IOERR_NOMEM;
  }
  if (code == SQLITE_OK) code = log.flush();
  MEMLITH_SHARED_STEP();
  if (code != SQLITE_OK) {
    // The kernel does not try again to write what it could not write, so a later flush that succeeds says nothing.
    control_.failed.store(1, std::memory_order_release);
    return SQLITE_IOERR_FSYNC;
  }
  if (failed()) return SQLITE_IOERR_FSYNC;
  if (newest.has_value()) claim(*newest);
  if (due != 0) clear_due(due, begun);
  return SQLITE_OK;
}

// Everything is served that was due when the flush began. Of what came since, the deadline is a window away at least.
void Group::clear_due(std::uint64_t due, std::uint64_t begun_ns) {
  MEMLITH_SHARED_STEP();
  std::uint64_t now = due;
  if (control_.due.compare_exchange_strong(now, 0)) return;
  const std::uint64_t window_ns = control_.window_us.load(std::memory_order_relaxed) * 1000;
  while (now != 0 && time_of(now) < begun_ns + window_ns) {
    if (control_.due.compare_exchange_weak(now, due_word(begun_ns + window_ns, now))) return;
  }
}

bool Group::promise(Position position, std::uint64_t window_ns) {
  control_.promised.store(position.word(), std::memory_order_release);
  std::uint64_t shortest = control_.window_us.load(std::memory_order_relaxed);
  const std::uint64_t window_us = std::max<std::uint64_t>(window_ns / 1000, 1);
  while ((shortest == 0 || shortest > window_us) && !control_.window_us.compare_exchange_weak(shortest, window_us)) {
  }
  MEMLITH_SHARED_STEP();
  const std::uint64_t then = now_ns() + window_ns;
  std::uint64_t due = control_.due.load(std::memory_order_relaxed);
  while (!control_.due.compare_exchange_weak(due, due_word(due == 0 ? then : std::min(then, time_of(due)), due))) {
  }
  return due == 0 || time_of(due) > then;
}

std::uint64_t Group::due_ns() const {
  const std::uint64_t due = control_.due.load(std::memory_order_acquire);
  if (due == 0) return 0;
  return time_of(due) > now_ns() + kFarNs ? 1 : time_of(due);
}

int Group::flush_due(Log& log) {
  const std::uint64_t begun = now_ns();
  const auto is_due = [this] { return due_ns() != 0 && due_ns() <= now_ns(); };
  while (is_due() && !failed()) {
    const std::uint32_t seen = control_.ended.load(std::memory_order_acquire);
    if (sidecar_.try_lead()) {
      const int code = is_due() ? lead(log, false) : SQLITE_OK;
      sidecar_.end_leading();
      wake_followers();
      return code;
    }
    if (now_ns() - begun > patience()) return flush_alone(log);
    follow(seen);
  }
  return SQLITE_OK;
}

// The leader is stopped.
int Group::flush_alone(Log& log) {
  control_.alone.fetch_add(1);
  const int code = flush_once(log);
  control_.alone.fetch_sub(1);
  return code;
}

// A leader that takes so long may have been stopped.
std::uint64_t Group::patience() const {
  return std::max(kStoppedNs, control_.flush_ns.load(std::memory_order_relaxed) * 10);
}

void Group::wake_followers() {
  if (control_.followers.load() != 0) wake(control_.ended, INT_MAX);
}

// Two flushes of leaders must succeed from now on: the second began after the first had ended, and serves everything
// that is in the log now.
int Group::flush(Log& log) {
  const std::uint64_t begun = now_ns();
  const std::uint64_t before = control_.flushes.load(std::memory_order_acquire);
  for (;;) {
    const std::uint32_t seen = control_.ended.load(std::memory_order_acquire);
    if (control_.flushes.load(std::memory_order_acquire) - before >= 2)
      return failed() ? SQLITE_IOERR_FSYNC : SQLITE_OK;
    if (sidecar_.try_lead()) {
      const int code = lead(log, false);
      sidecar_.end_leading();
      wake_followers();
      return code;
    }
    if (now_ns() - begun > patience()) return flush_alone(log);
    follow(seen);
  }
}

// Waits a little for the commits that the last flush sent home: they come back, and one flush serves them all.
void Group::gather() const {
  const std::uint32_t batch = control_.batch.load(std::memory_order_relaxed);
  if (batch <= 1) return;
  const std::uint64_t before = control_.flushed_commits.load(std::memory_order_relaxed);
  const std::uint64_t time = std::min(control_.flush_ns.load(std::memory_order_relaxed) / 4, kGatherNsMax);
  const std::uint64_t end = now_ns() + time;
  while (control_.commits.load(std::memory_order_relaxed) - before < batch && now_ns() < end) give_way();
}

int Group::lead(Log& log, bool gathers) {
  // The leader before this one was killed during its flush, and a failure of that flush may be lost with it.
  const std::uint64_t left = control_.flushing.load(std::memory_order_acquire);
  if (left != 0) {
    if (control_.doubt.load(std::memory_order_relaxed) == 0) control_.doubt.store(left, std::memory_order_release);
    control_.abandoned.fetch_add(1);
  }
  MEMLITH_SHARED_STEP();
  control_.flushing.store(control_.begun.fetch_add(1) + 1, std::memory_order_seq_cst);
  MEMLITH_SHARED_STEP();
  if (gathers) gather();
  const std::uint64_t begun = now_ns();
  const std::uint64_t commits = control_.commits.load(std::memory_order_relaxed);
  const int code = flush_once(log);
  if (code == SQLITE_OK) control_.doubt.store(0, std::memory_order_release);
  const std::uint64_t took = now_ns() - begun;
  const std::uint64_t before = control_.flushed_commits.exchange(commits, std::memory_order_relaxed);
  const std::uint64_t served = commits > before ? commits - before : 1;
  const std::uint64_t late = control_.commits.load(std::memory_order_relaxed) - commits;
  control_.batch.store(static_cast<std::uint32_t>(std::min<std::uint64_t>(served + late, kSlots)),
                       std::memory_order_relaxed);
  control_.flush_ns.store((control_.flush_ns.load(std::memory_order_relaxed) * 7 + took) / 8,
                          std::memory_order_relaxed);
  if (code == SQLITE_OK) control_.flushes.fetch_add(1, std::memory_order_release);
  MEMLITH_SHARED_STEP();
  control_.flushing.store(0, std::memory_order_release);
  control_.ended.fetch_add(1, std::memory_order_release);
  return code;
}

void Group::follow(std::uint32_t seen) const {
  const std::uint64_t end = now_ns() + kAwakeNs;
  while (control_.ended.load(std::memory_order_acquire) == seen && now_ns() < end) {
    MEMLITH_SHARED_STEP();
    give_way();
  }
  if (control_.ended.load(std::memory_order_acquire) != seen) return;
  control_.followers.fetch_add(1);
  std::uint64_t time = std::min(kLookNs, control_.flush_ns.load(std::memory_order_relaxed) * 4 + kAwakeNs);
  wait_for_change(control_.ended, seen, time);
  control_.followers.fetch_sub(1);
}

int Group::await(std::optional<Position> position, std::uint32_t mark, Log& log) {
  const std::uint64_t begun = now_ns();
  for (;;) {
    MEMLITH_SHARED_STEP();
    if (failed()) return SQLITE_IOERR_FSYNC;
    const bool in_doubt = control_.abandoned.load(std::memory_order_acquire) != mark;
    if (!in_doubt && position.has_value() && is_durable(*position)) return failed() ? SQLITE_IOERR_FSYNC : SQLITE_OK;
    if (in_doubt || !position.has_value()) return flush(log);
    if (now_ns() - begun > patience()) return flush_alone(log);
    const std::uint32_t seen = control_.ended.load(std::memory_order_acquire);
    if (is_durable(*position)) continue;
    if (sidecar_.try_lead()) {
      const bool is_served = is_durable(*position);
      const int code = is_served ? SQLITE_OK : lead(log, true);
      sidecar_.end_leading();
      wake_followers();
      // Its own flush is good for it also where SQLite has begun another generation meanwhile.
      if (!is_served) return code;
      continue;
    }
    follow(seen);
  }
}

}  // namespace memlith::sqlite::shared
