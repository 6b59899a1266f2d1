// The tests' copy of the SQLite plugin has this in the place of its shared/step.hpp: hooks at each step of the shared
// page's protocol, and an exploration's machine in the place of the kernel.
#pragma once

#include <atomic>
#include <cstdint>

namespace memlith::sqlite::shared {

class Registry;
struct Checkpoint;
// An exploration's kernel: time, and threads of several processes that wait.
class Machine {
 public:
  virtual ~Machine() = default;
  virtual std::uint64_t now_ns() = 0;
  virtual void sleep(std::uint64_t nanoseconds) = 0;
  virtual void give_way() = 0;
  virtual void wait_for_change(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::uint64_t nanoseconds,
                               std::uint32_t bits) = 0;
  virtual void wake(std::atomic<std::uint32_t>& word, int count, std::uint32_t bits) = 0;
  virtual Registry& registry() = 0;                                // of the process that runs
  virtual bool take_checkpoint(const Checkpoint& checkpoint) = 0;  // by a thread of the process that runs
  virtual void takes_write_lock(bool is_promised_to_another) = 0;
};
inline Machine* machine = nullptr;  // null: the kernel
// The next step of the calling thread is about to be done.
inline void (*step_hook)() = nullptr;

}  // namespace memlith::sqlite::shared

#define MEMLITH_SHARED_STEP() \
  (::memlith::sqlite::shared::step_hook != nullptr ? ::memlith::sqlite::shared::step_hook() : void())
// Returns what the exploration's machine does, if there is one.
#define MEMLITH_SHARED_ON_MACHINE(call) \
  if (::memlith::sqlite::shared::machine != nullptr) return ::memlith::sqlite::shared::machine->call
// The connection has the write lock, and keeps it.
#define MEMLITH_SHARED_TAKES_LOCK(is_promised_to_another)                             \
  (::memlith::sqlite::shared::machine != nullptr                                      \
       ? ::memlith::sqlite::shared::machine->takes_write_lock(is_promised_to_another) \
       : void())
