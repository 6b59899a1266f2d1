#include "group.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <chrono>

namespace memlith::sqlite::shared {

using core::shm::kAnyBit;

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

// Those that wait for the flush of this number.
std::uint32_t bit_of(std::uint64_t number) { return 1u << (number % 32); }

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
    if (control_.durable.compare_exchange_weak(word, position.word(), std::memory_order_release)) return;
  }
}

std::uint64_t Group::number() const {
  // A flush beside a stopped leader has no number.
  if (control_.alone.load(std::memory_order_seq_cst) != 0) return UINT64_MAX;
  return control_.begun.load(std::memory_order_seq_cst);
}

// The system tells each descriptor that was open then once of a failure, and no other after it has told one: perhaps
// a killed leader's, or that of another leader, which has not said so yet.
bool Group::may_miss_a_failure(const Log& log, std::uint32_t leader) const {
  const std::uint64_t opened_at = log.opened_at();
  const std::uint64_t doubt = Doubt::of(control_.doubt.load()).flush;
  if (doubt != 0 && opened_at >= doubt) return true;
  for (std::uint32_t i = 0; i < kLeaders; ++i) {
    const std::uint64_t other = i != leader ? control_.flights[i].number.load() : 0;
    if (other != 0 && opened_at >= other) return true;
  }
  return opened_at == UINT64_MAX && control_.alone.load() != 0;
}

// kLeaders: beside stopped ones.
int Group::flush_once(Log& log, std::uint32_t leader) {
  const std::uint64_t begun = now_ns();
  // ORDER due-before-flush: a commit that promises later needs another flush.
  // [test SharedWindow.ACommitDuringTheFlushOfAWindowNeedsAnother]
  const std::uint64_t due = control_.due.load(std::memory_order_seq_cst);
  // ORDER look-before-flush: commits that become visible during the flush need not be part of it.
  // [test SharedPage.ACommitDuringAFlushNeedsAnother]
  auto newest = log.newest();
  if (leader < kLeaders) control_.flights[leader].serves.store(newest.value_or(Position{}).word());
  int code = SQLITE_OK;
  if (may_miss_a_failure(log, leader)) {
    code = log.write_again();
    // Nothing is known, and nothing is lost by that.
    if (code == SQLITE_NOMEM || code == SQLITE_BUSY)
      return code == SQLITE_BUSY ? SQLITE_IOERR_LOCK : SQLITE_IOERR_NOMEM;
  }
  if (code == SQLITE_OK) code = log.flush();
  if (code != SQLITE_OK) {
    // The kernel does not try again to write what it could not write, so a later flush that succeeds says nothing.
    poison();
    return SQLITE_IOERR_FSYNC;
  }
  if (failed()) return SQLITE_IOERR_FSYNC;
  if (newest.has_value()) claim(*newest);
  if (due != 0) clear_due(due, begun);
  return SQLITE_OK;
}

// Everything is served that was due when the flush began. Of what came since, the deadline is a window away at least.
void Group::clear_due(std::uint64_t due, std::uint64_t begun_ns) {
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

// Waits for the flush of these bits, or until `is_over`. False: the time was over.
template <class IsOver>
bool Group::follow(std::uint32_t seen, std::uint32_t bits, IsOver is_over) const {
  const std::uint64_t end = now_ns() + kAwakeNs;
  do {
    if (is_over()) return true;
    core::yield_thread();
  } while (now_ns() < end);
  std::uint64_t time = std::min(kLookNs, control_.flush_ns.load(std::memory_order_relaxed) * 4 + kAwakeNs);
  control_.ended.wait(seen, std::chrono::nanoseconds(time), bits);
  return control_.ended.ticket() != seen;
}

int Group::flush_due(Log& log) {
  const std::uint64_t begun = now_ns();
  const auto is_due = [this] { return due_ns() != 0 && due_ns() <= now_ns(); };
  for (bool looks = false; is_due() && !failed();) {
    const std::uint32_t seen = control_.ended.ticket();
    if (const std::uint32_t leader = sidecar_.try_lead(looks); leader < kLeaders) return lead(log, leader, false);
    if (now_ns() - begun > patience()) return flush_alone(log);
    looks = !follow(seen, kAnyBit, [&] { return control_.ended.ticket() != seen; });
  }
  return SQLITE_OK;
}

// The leaders are stopped.
int Group::flush_alone(Log& log) {
  control_.alone.fetch_add(1);
  const int code = flush_once(log, kLeaders);
  control_.alone.fetch_sub(1);
  return code;
}

// A leader that takes so long may have been stopped.
std::uint64_t Group::patience() const {
  return std::max(kStoppedNs, control_.flush_ns.load(std::memory_order_relaxed) * 10);
}

// A flush that began from now on must succeed.
int Group::flush(Log& log) {
  const std::uint64_t begun = now_ns();
  const std::uint64_t before = control_.begun.load();
  for (bool looks = false;;) {
    const std::uint32_t seen = control_.ended.ticket();
    if (control_.succeeded.load() > before) return failed() ? SQLITE_IOERR_FSYNC : SQLITE_OK;
    if (const std::uint32_t leader = sidecar_.try_lead(looks); leader < kLeaders) return lead(log, leader, false);
    if (now_ns() - begun > patience()) return flush_alone(log);
    looks = !follow(seen, kAnyBit, [&] { return control_.ended.ticket() != seen; });
  }
}

// ---- leaders -------------------------------------------------------------------------------------------------------

std::uint32_t Group::in_flight_now() const {
  std::uint32_t count = 0;
  for (const Flight& each : control_.flights) count += seems_in_flight(control_, each) ? 1 : 0;
  return count;
}

// Where many commit, the next flush begins when the one in flight is half over: its commits have come together, and
// the disk is not idle until one of them wakes up.
bool Group::may_lead() const {
  const std::uint32_t count = in_flight_now();
  if (count == 0) return true;
  if (count == kLeaders) return false;
  if (control_.batch.load(std::memory_order_relaxed) <= 1) return true;
  const std::uint64_t since = now_ns() - control_.begun_ns.load(std::memory_order_relaxed);
  return since >= control_.flush_ns.load(std::memory_order_relaxed) / 2;
}

// Waits a little for the commits that the last flush sent home: they come back, and one flush serves them all. The
// fewer they are, the more is gained by one of them: two that flush in turn wait for two flushes each.
void Group::gather() const {
  const std::uint32_t batch = control_.batch.load(std::memory_order_relaxed);
  if (batch <= 1 || in_flight_now() > 1) return;
  const std::uint64_t before = control_.flushed_commits.load(std::memory_order_relaxed);
  const std::uint64_t part = std::min<std::uint64_t>(batch, 4);
  const std::uint64_t time = std::min(control_.flush_ns.load(std::memory_order_relaxed) / part, kGatherNsMax);
  const std::uint64_t end = now_ns() + time;
  while (control_.commits.load(std::memory_order_relaxed) - before < batch && now_ns() < end) core::yield_thread();
}

// The leader of this flush was killed, and a failure of that flush may be lost with it.
void Group::note_killed(std::uint64_t flush) {
  std::uint64_t word = control_.doubt.load();
  Doubt doubt;
  do {
    doubt = Doubt::of(word);
    doubt = {doubt.flush == 0 ? flush : std::min(doubt.flush, flush), doubt.kills + 1};
  } while (!control_.doubt.compare_exchange_weak(word, doubt.word()));
  control_.abandoned.fetch_add(1);
}

int Group::lead(Log& log, std::uint32_t leader, bool gathers) {
  Flight& flight = control_.flights[leader];
  const std::uint64_t left = flight.number.load(std::memory_order_acquire);
  if (left != 0) note_killed(left);
  const std::uint64_t number = control_.begun.fetch_add(1) + 1;
  flight.serves.store(kAllOfIt);
  flight.number.store(number);
  if (gathers) gather();
  std::uint64_t doubt = control_.doubt.load();
  const std::uint64_t begun = now_ns();
  control_.begun_ns.store(begun, std::memory_order_relaxed);
  const std::uint64_t commits = control_.commits.load(std::memory_order_relaxed);
  const int code = flush_once(log, leader);
  // Another leader that was killed meanwhile is still in doubt.
  if (code == SQLITE_OK && doubt != 0) (void)control_.doubt.compare_exchange_strong(doubt, 0);
  const std::uint64_t took = now_ns() - begun;
  const std::uint64_t before = control_.flushed_commits.exchange(commits, std::memory_order_relaxed);
  const std::uint64_t served = commits > before ? commits - before : 1;
  const std::uint64_t late = control_.commits.load(std::memory_order_relaxed) - commits;
  control_.batch.store(static_cast<std::uint32_t>(std::min<std::uint64_t>(served + late, kSlots)),
                       std::memory_order_relaxed);
  control_.flush_ns.store((control_.flush_ns.load(std::memory_order_relaxed) * 7 + took) / 8,
                          std::memory_order_relaxed);
  if (code == SQLITE_OK) {
    control_.flushes.fetch_add(1, std::memory_order_release);
    std::uint64_t highest = control_.succeeded.load();
    while (highest < number && !control_.succeeded.compare_exchange_weak(highest, number)) {
    }
  }
  flight.number.store(0);
  end_leading(leader, bit_of(number));
  return code;
}

// Wakes those that were served, and one that makes the next flush.
void Group::end_leading(std::uint32_t leader, std::uint32_t served) {
  sidecar_.end_leading(leader);
  control_.ended.ring(served);
  if (served != kAnyBit && in_flight_now() == 0) control_.ended.ring_one(~served);
}

// ---- followers -----------------------------------------------------------------------------------------------------

// The number of the flush that serves a commit: one in flight, or the next one.
std::uint64_t Group::served_by(Position position) const {
  std::uint64_t served_by = control_.begun.load() + 1;
  for (const Flight& each : control_.flights) {
    const std::uint64_t number = seems_in_flight(control_, each) ? each.number.load() : 0;
    const std::uint64_t serves = each.serves.load();
    const Position end = Position::of(serves);
    const bool is_in_it = serves == kAllOfIt || (end.generation == position.generation && end.frame >= position.frame);
    if (number != 0 && is_in_it) served_by = std::min(served_by, number);
  }
  return served_by;
}

int Group::await(std::optional<Position> position, std::uint32_t mark, Log& log) {
  const std::uint64_t begun = now_ns();
  for (bool looks = false;;) {
    if (failed()) return SQLITE_IOERR_FSYNC;
    const bool in_doubt = control_.abandoned.load() != mark;
    if (!in_doubt && position.has_value() && is_durable(*position)) return failed() ? SQLITE_IOERR_FSYNC : SQLITE_OK;
    if (in_doubt || !position.has_value()) return flush(log);
    if (now_ns() - begun > patience()) return flush_alone(log);
    const std::uint32_t seen = control_.ended.ticket();
    if (is_durable(*position)) continue;
    const std::uint64_t by = served_by(*position);
    const bool tries = looks || (by > control_.begun.load() && may_lead());
    const std::uint32_t leader = tries ? sidecar_.try_lead(looks) : kLeaders;
    if (leader < kLeaders) {
      // Its own flush is good for it also where SQLite has begun another generation meanwhile.
      if (!is_durable(*position)) return lead(log, leader, true);
      end_leading(leader, kAnyBit);
      continue;
    }
    looks = !follow(seen, bit_of(by), [&] {
      return is_durable(*position) || failed() || (!tries && by > control_.begun.load() && may_lead());
    });
  }
}

}  // namespace memlith::sqlite::shared
