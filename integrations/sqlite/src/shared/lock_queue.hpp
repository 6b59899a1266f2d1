// The connections of all processes that wait for the write lock of a database. Part of the SQLite plugin.
//
// SQLite asks for the lock, hears BUSY, lets its busy handler sleep, and asks again. A connection stands in the queue
// while its busy handler sleeps (xSleep), as in writer_queue.hpp. The connection that is about to release the lock
// chooses the next one, so that no other lock is needed, and a process that is killed leaves nothing locked. Plain
// SQLite beside wakes no waiter: the first in the queue looks whether the lock is free.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "control_block.hpp"
#include "sidecar.hpp"

namespace memlith::sqlite::shared {

// One for each connection. Threads: the connection's.
struct Waiter {
  std::uint32_t slot = kSlots;  // kSlots: it has never waited
  std::uint64_t ticket = 0;     // 0: not waiting
  bool slept = false;           // since it was refused last
  std::uint64_t credit_ns = 0;  // what its sleeps were shorter than SQLite's busy handler counts
};

// Threads: any.
class LockQueue {
 public:
  explicit LockQueue(Sidecar& sidecar) : sidecar_(sidecar), control_(sidecar.control()) {}

  // True if the connection may ask for the lock: it is not promised to another one.
  bool may_ask(const Waiter& waiter);
  [[nodiscard]] bool is_promised_to_another(const Waiter& waiter) const;
  // The connection got the lock, gave it back because it was promised meanwhile, and tells whom.
  void call_promised();
  // The connection got the lock.
  void took(Waiter& waiter);
  void refused(Waiter& waiter);
  // The holder of the lock begins to write its commit: the next holder is woken, if all sleep, while it does.
  void rouse_next();
  // The holder of the lock is about to release it: the slot of the next holder; kSlots if none waits.
  std::uint32_t choose();
  // The lock is released.
  void call(std::uint32_t next);
  // Returns when it is the connection's turn, or `is_free` says that the lock is free, or the time is over.
  void wait(Waiter& waiter, std::chrono::microseconds time, const std::function<bool()>& is_free);
  // The connection is closed.
  void leave(Waiter& waiter);

  // ---- a checkpoint while no other connection in mode shared writes, after which the log begins anew
  // The holder of the lock is about to release it, and is the only one that may ask for it until it lets the line go;
  // at most for hold_ns() since it said so last. False: it has no slot, or its time was over.
  bool hold(Waiter& waiter);
  void let_go(const Waiter& waiter);
  [[nodiscard]] std::uint64_t hold_ns() const;
  // A reader keeps the log from being stored, or from beginning anew: that is not tried again for a while.
  void note_pinned();
  [[nodiscard]] bool is_pinned() const;

 private:
  // Slots; kSlots: none.
  struct Next {
    std::uint32_t oldest = kSlots;
    std::uint32_t awake = kSlots;   // that is awake,
    std::uint32_t asleep = kSlots;  // or sleeps; threads of this process before others
    bool is_due = false;            // the oldest was passed over too often
  };
  [[nodiscard]] Next look() const;
  [[nodiscard]] bool is_before(std::uint32_t one, std::uint32_t other, bool here_first) const;
  [[nodiscard]] bool is_promised_to(std::uint32_t slot) const;
  [[nodiscard]] bool is_first(const Waiter& waiter) const;
  void stand(Waiter& waiter);
  void stay_awake(Slot& slot, std::uint64_t until);
  void promise(std::uint32_t slot);

  Sidecar& sidecar_;
  ControlBlock& control_;
};

}  // namespace memlith::sqlite::shared
