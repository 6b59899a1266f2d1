// Threads that wait for tickets, and share flushes.
//
// Part: python. One thread at a time waits for the disk, for the newest ticket that any of them has; the others sleep.
// When it is durable, those are woken whose tickets are, and one more that leads the next flush. Had all of them waited
// in the library, each would run again and again only to find that another's flush is under way, beside the thread that
// has the interpreter lock.
#ifndef MEMLITH_PYTHON_DURABLE_HPP
#define MEMLITH_PYTHON_DURABLE_HPP

#include <memlith/memlith.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace memlith::python {

class DurableWaits {
 public:
  // As memlith_wait. Without the interpreter lock.
  std::int32_t wait(memlith_store* store, std::uint64_t ticket);

 private:
  struct Waiter {
    std::uint64_t ticket;
    enum class Told { nothing, durable, lead } told = Told::nothing;
    std::condition_variable changed{};
  };
  void tell(std::uint64_t durable, bool failed);

  std::mutex mutex_;  // held for a moment
  bool led_ = false;
  std::uint64_t newest_ = 0;  // ticket that a thread waits for
  std::vector<Waiter*> waiters_;
};

}  // namespace memlith::python

#endif
