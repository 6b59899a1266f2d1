// The control segment of a shared region: which transaction holds which ranges. Floor: shared.
//
// The segment is a memfd that the keeper and all clients map. Its table of ranges is the exclusion between
// transactions, and at once the journal of what each client is changing: a range is entered before its bytes change,
// and leaves when they are captured or are as they were. Ranges that a transaction waits for are in the table, too: a
// transaction that has no range yet lets earlier waiters pass, so that none waits forever. A transaction that has
// ranges does not, because the others may wait for these ranges.
//
// A CLIENT MAY DIE ANYWHERE, also while it holds the mutex. The mutex is robust, and every change of the table is one
// store to `state`: an entry counts from then on, and no longer from then on. So the next owner has nothing to repair.
// The entries of a client that died stay until the keeper has undone them.
//
// Nothing here allocates memory, except for collect().
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "base/status.hpp"
#include "region/tracker.hpp"

namespace memlith::core::shared {

inline constexpr std::uint32_t kRangesMax = 4096;  // of a region, at a time

// The owner of a range. Clients have numbers from 1 on, which a keeper gives to one handle only.
struct Owner {
  std::uint32_t client = 0;
  std::uint64_t tx = 0;
  friend bool operator==(const Owner&, const Owner&) = default;
};

inline constexpr std::uint32_t kEnded = 1;
inline constexpr std::uint32_t kFailed = 2;  // the keeper could not make something durable

enum class RangeState : std::uint32_t { free, held, wanted };  // wanted: its transaction waits for the range

struct RangeEntry {
  std::atomic<RangeState> state;  // release; pairs with the loads in control.cpp
  std::uint32_t client;
  std::uint64_t order;  // of those that are wanted
  std::uint64_t tx;
  std::uint64_t offset;
  std::uint64_t bytes;
};

// Control::make() makes it from memory of zeros.
struct ControlSegment {
  pthread_mutex_t mutex;
  pthread_mutex_t keeper_life;          // held by the keeper's thread as long as it lives
  std::atomic<std::uint32_t> ended;     // kEnded: has ended, or a client has seen so; kFailed: and said why
  std::atomic<std::uint32_t> released;  // counts releases; what is waited on
  std::atomic<std::uint32_t> waiting;   // or more: a client may die while it waits
  std::uint64_t orders;                 // that were given out; guarded by the mutex, as is `used`
  std::uint32_t used;                   // entries from here on are free
  std::array<RangeEntry, kRangesMax> range;
};

// One process's way to the segment. Threads: any, except for live().
class Control {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Control() = default;
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Makes a segment. Its descriptor is for map() in any process.
  static Result<Descriptor> make();
  Status map(int descriptor);
  // In a forked child, which has no such memory.
  void forget() { segment_ = nullptr; }

  // ---- the keeper
  // The calling thread says that it lives, until it or this object ends.
  Status live();
  // Says that it ends because something could not be made durable.
  void say_failed() { segment_->ended.store(kFailed); }
  // The ranges of one transaction, or, with tx 0, all of a client.
  [[nodiscard]] std::vector<Range> collect(Owner owner) const;

  // ---- clients
  // True if the keeper lives; costs no system call.
  [[nodiscard]] bool has_keeper() const;
  // True if the keeper said so before it ended. Otherwise it was killed.
  [[nodiscard]] bool keeper_has_failed() const { return segment_->ended.load() == kFailed; }
  void swap(Control& other) noexcept { std::swap(segment_, other.segment_); }
  // Takes the range for that owner, when no other owner has a range that overlaps it. Errors: conflict (not until that
  // time; at least one try is made), full (the table), poisoned (the keeper has ended). `is_first`: the owner has no
  // range.
  Status take(Owner owner, Range range, Time until, bool is_first);

  // ---- both
  // Releases what collect() would return, and wakes all waiters.
  void release(Owner owner);

 private:
  class Lock;
  void end() const;
  struct Wish {
    Owner owner;
    Range range;
    bool is_first = false;
    std::uint32_t entry = kRangesMax;  // in which it is wanted; kRangesMax: in none
  };
  enum class Taken { yes, no, no_entry };
  Taken try_to_take(Wish& wish);
  void enter(Wish& wish, std::uint32_t free, RangeState state);
  void withdraw(const Wish& wish);
  Status failed(const Wish& wish, Taken taken, Time until) const;
  void wait_for_release(std::uint32_t seen, Time until);
  void wake();
  [[nodiscard]] std::uint32_t used() const;

  ControlSegment* segment_ = nullptr;
  bool lives_ = false;  // live() was called
};

// The transaction number that matches every transaction of a client.
inline constexpr std::uint64_t kEveryTx = 0;

}  // namespace memlith::core::shared
