// The page that all processes of a database in mode shared map. Part of the SQLite plugin.
//
// Nothing in it is needed for the consistency of the database: SQLite's own locks on its index say who may write. The
// page says which commits are durable and who waits for the write lock. A process may be killed between any two stores
// to it: every word is valid by itself, and a word that says that something is durable is true whenever it was stored.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/threads.hpp"
#include "shm/bell.hpp"
#include "shm/words.hpp"

namespace memlith::sqlite::shared {

using core::shm::Shared;
using core::shm::Word;

// The time of the system, which is the same in all processes, and which the control block has.
inline std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(core::SteadyClock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

// A place in SQLite's write-ahead log: the first `frame` frames of a generation. SQLite begins a new generation, with
// another salt, when everything in the log is durable in the database.
struct Position {
  std::uint32_t generation = 0;
  std::uint32_t frame = 0;

  [[nodiscard]] std::uint64_t word() const { return std::uint64_t{generation} << 32 | frame; }
  static Position of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
  }
  bool operator==(const Position&) const = default;
};

inline constexpr std::uint32_t kSlots = 62;
inline constexpr std::uint32_t kStatements = 4096;
inline constexpr std::uint32_t kLeaders = 2;  // flushes in flight at a time

// A connection that waits for the write lock.
struct alignas(64) Slot {
  Shared<std::uint64_t> ticket;  // by order of arrival; 0: none
  Word process;                  // that has the slot, as a participant; 0: none
  Word waiting;                  // 1, or 2: its sleep is over, and it is about to ask; release: after the others
  Word awake;                    // its thread has not gone to sleep yet
  Word wake;                     // futex: 1: the connection should look at the lock; 2: it will have to soon
  Word passed;                   // how often a later one got the lock
};

// The lowest number of a flush whose leader was killed, and a number that each such kill changes.
struct Doubt {
  std::uint64_t flush = 0;  // 0: none
  std::uint64_t kills = 0;

  [[nodiscard]] std::uint64_t word() const { return flush << 8 | (kills & 0xff); }
  static Doubt of(std::uint64_t word) { return {word >> 8, word & 0xff}; }
};

// A flush that a leader makes.
struct Flight {
  Word leader;                   // the process, as a participant; 0: none
  Shared<std::uint64_t> number;  // as long as the result is not stored; 0: none
  // Position: what the flush serves, for those that choose what to wait for; kAllOfIt until it begins.
  Shared<std::uint64_t> serves;
};
inline constexpr std::uint64_t kAllOfIt = UINT64_MAX;

struct ControlBlock {
  static constexpr std::uint64_t kLayout = 6;
  Shared<std::uint64_t> durable;    // Position: what is durable; release after the flush, acquire before believing it
  Word failed;                      // a flush failed: until all have closed, no commit can be known to be durable
  Word alone;                       // flushes beside a stopped leader; stays too large after a kill
  Shared<std::uint64_t> begun;      // the number of the newest flush of a leader
  Shared<std::uint64_t> begun_ns;   // when it began, as now_ns()
  Shared<std::uint64_t> succeeded;  // the highest number of a flush that succeeded
  Flight flights[kLeaders];
  Shared<std::uint64_t> doubt;  // Doubt: a flush whose result is unknown; 0: none
  Word abandoned;               // how many leaders were killed in a flush
  // Rings when a flush of a leader has ended. Those that wait name the flush that serves them by a bit (group.cpp).
  core::shm::Bell ended;
  Word batch;                             // commits of the last flush
  Shared<std::uint64_t> flush_ns;         // how long a flush takes, about
  Shared<std::uint64_t> commits;          // that waited for a flush, or wait
  Shared<std::uint64_t> flushes;          // of leaders, that succeeded
  Shared<std::uint64_t> flushed_commits;  // `commits` before the last flush
  // Commits that returned without a flush. A flush that began after `due` was read serves all that are in it.
  Shared<std::uint64_t> due;        // 0, or when it has to begin, and a number (group.cpp)
  Shared<std::uint64_t> window_us;  // the shortest of their windows; 0: there was none
  Shared<std::uint64_t> promised;   // Position: the end of one of the newest; 0: there was none
  Shared<std::uint64_t> tickets;
  Shared<std::uint64_t> promise;       // 0, or whom only the write lock is for, and until when (lock_queue.cpp)
  Shared<std::uint64_t> pinned;        // how often a reader kept a checkpoint from storing anything
  Shared<std::uint64_t> pinned_until;  // as now_ns(): no other is tried before
  Word slots_used;                     // no slot from here on was ever used
  Slot slots[kSlots];
  Shared<std::uint8_t> writes_follow[kStatements];  // foresight.hpp
};

// False: there is none, or others have begun and ended since, so that its leader may be gone.
inline bool seems_in_flight(const ControlBlock& control, const Flight& flight) {
  if (flight.leader.load(std::memory_order_acquire) == 0) return false;
  const std::uint64_t number = flight.number.load(std::memory_order_acquire);
  return number == 0 || number + kLeaders > control.begun.load(std::memory_order_acquire);
}

}  // namespace memlith::sqlite::shared
