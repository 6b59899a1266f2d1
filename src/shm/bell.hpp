// A change that processes wait for. Floor: shm.
#pragma once

#include <chrono>
#include <cstdint>

#include "shm/words.hpp"

namespace memlith::core::shm {

// Lies in memory that processes share; zeros are a bell. A process that waits first takes a ticket, then looks at what
// it waits for, and then waits with the ticket: no ring in between is missed. Threads: any, of any process, which may
// die anywhere.
class Bell {
 public:
  [[nodiscard]] std::uint32_t ticket() const { return rung_.load(); }
  // Wakes all that wait for one of the bits. Without any that wait it costs no system call.
  void ring(std::uint32_t bits = kAnyBit) {
    rung_.fetch_add(1);  // seq_cst; pairs with the addition to `waiting_`
    if (waiting_.load() > 0) wake_all(rung_, bits);
  }
  // Wakes one more, behind ring().
  void ring_one(std::uint32_t bits) {
    if (waiting_.load() > 0) wake_one(rung_, bits);
  }
  // Until ring() was called after ticket(), or for so long; or shorter, for no reason.
  void wait(std::uint32_t ticket, std::chrono::nanoseconds at_most, std::uint32_t bits = kAnyBit) {
    waiting_.fetch_add(1);  // seq_cst; pairs with the load in ring()
    wait_for_change(rung_, ticket, at_most, bits);
    waiting_.fetch_sub(1);
  }

 private:
  Word rung_{0};
  Word waiting_{0};  // or more: a process may die while it waits
};

}  // namespace memlith::core::shm
