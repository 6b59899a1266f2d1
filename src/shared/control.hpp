// The control segment of a shared region: which transaction holds which ranges. Floor: shared.
//
// The segment is a memfd that the keeper and all clients map. Its table of ranges is the exclusion between
// transactions, and at once the journal of what each client is changing: a range is entered before its bytes change,
// and leaves when they are captured or are as they were. Ranges that a transaction waits for are in the table, too: a
// transaction that has no range yet lets earlier waiters pass, so that none waits forever. A transaction that has
// ranges does not, because the others may wait for these ranges.
//
// A range that begins where one of its transaction ends makes that one longer, so what is taken in order is one entry.
//
// A CLIENT MAY DIE ANYWHERE, also while it holds the mutex. The mutex is robust, and every change of the table is one
// store to `state` or `bytes`: an entry counts from then on, and no longer from then on. So the next owner has nothing
// to repair.
// The entries of a client that died stay until the keeper has undone them.
//
// Nothing here allocates memory, except for collect() and the opening.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "base/status.hpp"
#include "region/tracker.hpp"
#include "shm/bell.hpp"
#include "shm/participant.hpp"
#include "shm/robust_mutex.hpp"
#include "shm/segment.hpp"

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
  shm::Shared<RangeState> state{RangeState::free};  // release; pairs with the loads in control.cpp
  std::uint32_t client = 0;
  std::uint64_t order = 0;  // of those that are wanted
  std::uint64_t tx = 0;
  std::uint64_t offset = 0;
  shm::Shared<std::uint64_t> bytes{0};  // grows while it is held
};

struct ControlSegment {
  static constexpr std::uint64_t kLayout = 1;
  shm::RobustMutex mutex;
  shm::Word keeper{0};       // the keeper, as a participant
  shm::Word ended{0};        // kEnded: has ended, or a client has seen so; kFailed: and said why
  shm::Bell released;        // by each release
  std::uint64_t orders = 0;  // that were given out; guarded by the mutex, as is `used`
  std::uint32_t used = 0;    // entries from here on are free
  std::array<RangeEntry, kRangesMax> range;
};

// One process's way to the segment. Threads: any, except for live().
class Control {
 public:
  using Time = SteadyClock::time_point;

  // Makes a segment; the keeper, which calls this, lives until the object ends. Its descriptor is for map().
  static Result<Control> make();
  // The segment of a keeper.
  static Result<Control> map(Descriptor memory);
  Control() = default;
  ~Control();
  Control(Control&& other) noexcept { *this = std::move(other); }
  Control& operator=(Control&& other) noexcept {
    std::swap(segment_, other.segment_);
    std::swap(self_, other.self_);
    std::swap(keeps_, other.keeps_);
    return *this;
  }

  [[nodiscard]] int descriptor() const { return segment_.descriptor(); }
  // In a forked child, which has no such memory.
  void forget() { segment_.forget(); }

  // ---- the keeper
  // Says that it ends because something could not be made durable.
  void say_failed() { segment_->ended.store(kFailed); }
  // The ranges of one transaction, or, with tx 0, all of a client.
  [[nodiscard]] std::vector<Range> collect(Owner owner) const;

  // ---- clients
  // True if the keeper lives. Costs a system call.
  [[nodiscard]] bool has_keeper() const;
  // True if the keeper said so before it ended. Otherwise it was killed.
  [[nodiscard]] bool keeper_has_failed() const { return segment_->ended.load() == kFailed; }
  // Takes the range for that owner, when no other owner has a range that overlaps it. Errors: conflict (not until that
  // time; at least one try is made), full (the table), poisoned (the keeper has ended). `is_first`: the owner has no
  // range.
  Status take(Owner owner, Range range, Time until, bool is_first);

  // ---- both
  // Releases what collect() would return, and wakes all waiters.
  void release(Owner owner);

 private:
  explicit Control(shm::Segment<ControlSegment> segment) : segment_(std::move(segment)) {}
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
  void lengthen(const Wish& wish, std::uint32_t before);
  void withdraw(const Wish& wish);
  Status failed(const Wish& wish, Taken taken, Time until) const;
  [[nodiscard]] std::uint32_t used() const;

  shm::Segment<ControlSegment> segment_;
  shm::Participant self_;  // ends before the segment is unmapped
  bool keeps_ = false;     // is the keeper's
};

// The transaction number that matches every transaction of a client.
inline constexpr std::uint64_t kEveryTx = 0;

}  // namespace memlith::core::shared
