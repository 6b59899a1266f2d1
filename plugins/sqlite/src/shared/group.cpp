#include "group.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <climits>

#include "../sabotage.hpp"
#include "step.hpp"

namespace memlith::sqlite::shared {

namespace {

// How long a follower sleeps before it looks whether the leader was killed.
constexpr std::uint64_t kLookNs = 20'000'000;
// A leader that takes so long, and ten times as long as flushes usually take, may have been stopped.
constexpr std::uint64_t kStoppedNs = 200'000'000;
constexpr std::uint64_t kGatherNsMax = 1'000'000;

}  // namespace

bool Group::is_durable(Position position) const {
  const Position known = Position::of(page_.durable.load(std::memory_order_acquire));
  return known.generation == position.generation && known.frame >= position.frame;
}

// A claim is true for ever, so one that a stopped process makes late is no lie: at worst the newest is forgotten.
void Group::claim(Position position) {
  std::uint64_t word = page_.durable.load(std::memory_order_relaxed);
  while (true) {
    const Position known = Position::of(word);
    if (known.generation == position.generation && known.frame >= position.frame) return;
    MEMLITH_SHARED_STEP();
    if (page_.durable.compare_exchange_weak(word, position.word(), std::memory_order_release)) return;
  }
}

int Group::flush(Log& log) {
  // ORDER look-before-flush: commits that become visible during the flush need not be part of it.
  // [test SharedPage.ACommitDuringAFlushNeedsAnother]
  auto newest = log.newest();
  MEMLITH_SHARED_STEP();
  const int code = log.flush();
  MEMLITH_SHARED_STEP();
  if (MEMLITH_SABOTAGED(shared_look_after_flush)) newest = log.newest();
  if (code != SQLITE_OK && !MEMLITH_SABOTAGED(shared_forget_failure)) {
    // What the kernel could not write it does not try to write again, so a later flush that succeeds says nothing.
    page_.failed.store(1, std::memory_order_release);
    return SQLITE_IOERR_FSYNC;
  }
  if (failed()) return SQLITE_IOERR_FSYNC;
  if (newest.has_value()) claim(*newest);
  return SQLITE_OK;
}

// Waits a little for the commits that the last flush sent home: they come back, and one flush serves them all.
void Group::gather() const {
  const std::uint32_t batch = page_.batch.load(std::memory_order_relaxed);
  if (batch <= 1) return;
  const std::uint64_t before = page_.flushed_commits.load(std::memory_order_relaxed);
  const std::uint64_t time = std::min(page_.flush_ns.load(std::memory_order_relaxed) / 4, kGatherNsMax);
  const std::uint64_t end = now_ns() + time;
  while (page_.commits.load(std::memory_order_relaxed) - before < batch && now_ns() < end) give_way();
}

int Group::lead(Log& log) {
  // The leader before this one was killed during its flush, and a failure of that flush may be lost with it: the
  // system tells each descriptor of the log once. A connection that wrote or saw something before that believes no
  // other's flush, but flushes itself.
  const bool abandoned = page_.flushing.exchange(1, std::memory_order_acq_rel) != 0;
  if (abandoned && !MEMLITH_SABOTAGED(shared_trust_abandoned)) page_.abandoned.fetch_add(1);
  MEMLITH_SHARED_STEP();
  gather();
  const std::uint64_t begun = now_ns();
  const std::uint64_t commits = page_.commits.load(std::memory_order_relaxed);
  const int code = flush(log);
  const std::uint64_t took = now_ns() - begun;
  const std::uint64_t before = page_.flushed_commits.exchange(commits, std::memory_order_relaxed);
  const std::uint64_t served = commits > before ? commits - before : 1;
  const std::uint64_t late = page_.commits.load(std::memory_order_relaxed) - commits;
  page_.batch.store(static_cast<std::uint32_t>(std::min<std::uint64_t>(served + late, kSlots)),
                    std::memory_order_relaxed);
  page_.flush_ns.store((page_.flush_ns.load(std::memory_order_relaxed) * 7 + took) / 8, std::memory_order_relaxed);
  page_.flushes.fetch_add(1, std::memory_order_relaxed);
  MEMLITH_SHARED_STEP();
  page_.flushing.store(0, std::memory_order_release);
  page_.ended.fetch_add(1, std::memory_order_release);
  return code;
}

void Group::follow(std::uint32_t seen) const {
  const std::uint64_t end = now_ns() + kAwakeNs;
  while (page_.ended.load(std::memory_order_acquire) == seen && now_ns() < end) {
    MEMLITH_SHARED_STEP();
    give_way();
  }
  if (page_.ended.load(std::memory_order_acquire) != seen) return;
  page_.followers.fetch_add(1);
  std::uint64_t time = std::min(kLookNs, page_.flush_ns.load(std::memory_order_relaxed) * 4 + kAwakeNs);
  if (MEMLITH_SABOTAGED(shared_follow_without_look)) time = UINT64_MAX / 2;
  wait_for_change(page_.ended, seen, time);
  page_.followers.fetch_sub(1);
}

int Group::await(std::optional<Position> position, std::uint32_t mark, Log& log) {
  const std::uint64_t begun = now_ns();
  for (;;) {
    MEMLITH_SHARED_STEP();
    if (failed()) return SQLITE_IOERR_FSYNC;
    const bool in_doubt = page_.abandoned.load(std::memory_order_acquire) != mark;
    if (!in_doubt && position.has_value() && is_durable(*position)) return failed() ? SQLITE_IOERR_FSYNC : SQLITE_OK;
    const std::uint64_t patience = std::max(kStoppedNs, page_.flush_ns.load(std::memory_order_relaxed) * 10);
    if (in_doubt || !position.has_value() || now_ns() - begun > patience) return flush(log);
    const std::uint32_t seen = page_.ended.load(std::memory_order_acquire);
    if (is_durable(*position)) continue;
    if (sidecar_.try_lead()) {
      const bool is_served = is_durable(*position);
      const int code = is_served ? SQLITE_OK : lead(log);
      sidecar_.end_leading();
      if (page_.followers.load() != 0) wake(page_.ended, INT_MAX);
      // Its own flush is good for it also where SQLite has begun another generation meanwhile.
      if (!is_served) return code;
      continue;
    }
    follow(seen);
  }
}

}  // namespace memlith::sqlite::shared
