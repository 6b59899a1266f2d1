// Lets a log that commits fill quickly grow (store/log_growth.hpp says by how much). Floor: store.
#pragma once

#include <cstdint>
#include <functional>

#include "base/sync.hpp"
#include "store/directory.hpp"
#include "store/log_growth.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// One thread at a time: who holds the checkpointer's mutex.
class LogGrower {
 public:
  // Sleeps for so long, or until a commit waits for room. True: a checkpoint must not be kept waiting.
  using Pause = std::function<bool(std::chrono::nanoseconds time)>;

  LogGrower(StoreFiles& files, Directory& directory) : files_(files), directory_(directory) {}
  // The log was opened.
  void start();
  // Adds slots step by step, no faster than commits fill the log. True: it has room again, so that nothing needs to go home yet.
  bool grow(const Pause& pause);

 private:
  // Where the log stood when a checkpoint was asked for last.
  struct Woken {
    Lsn head;
    SteadyClock::time_point time;
  };
  // How the log is used. Moves woken_ on.
  LogLoad look();

  StoreFiles& files_;
  Directory& directory_;
  Woken woken_;
  std::uint64_t busy_slots_max_ = 0;  // what the log grows to while commits fill it quickly
  std::uint64_t grown_bytes_ = 0;     // by that, beyond what is given
};

}  // namespace memlith::core
