// The state that a real process has by being one, where the processes are threads of the laboratory's scheduler. The
// tests' copy of the plugin asks here (its patches in tests/lib/mutants).
#pragma once

namespace memlith::sqlite::shared {

class Registry;
struct Checkpoint;

class Processes {
 public:
  virtual ~Processes() = default;
  virtual Registry& registry() = 0;                                // of the process that runs
  virtual bool take_checkpoint(const Checkpoint& checkpoint) = 0;  // by a thread of the process that runs
  // The connection of the thread that runs has the write lock, and keeps it.
  virtual void takes_write_lock(bool is_promised_to_another) = 0;
};
inline Processes* processes = nullptr;  // null: each process is a real one

// Threads forget the connections that they used last.
void forget_threads();

}  // namespace memlith::sqlite::shared
