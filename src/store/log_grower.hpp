// Lets a log that commits fill quickly grow (store/log_growth.hpp says by how much). Floor: store.
#pragma once

#include <cstdint>
#include <functional>

#include "base/sync.hpp"
#include "store/directory.hpp"
#include "store/log_growth.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// One thread at a time: the holder of the checkpointer's mutex.
class LogGrower {
 public:
  // Sleeps for this time, or until a commit waits for room. True: the checkpoint must start at once.
  using Pause = std::function<bool(std::chrono::nanoseconds time)>;

  LogGrower(StoreFiles& files, Directory& directory) : files_(files), directory_(directory) {}
  // The log was opened.
  void start();
  // Adds slots step by step, paced to the rate at which the log fills. True: the log has room again, so no checkpoint
  // is needed yet.
  bool grow(const Pause& pause);

 private:
  // The head of the log at the last request of a checkpoint.
  struct Woken {
    Lsn head;
    SteadyClock::time_point time;
  };
  // The load of the log since the last call; updates woken_.
  LogLoad look();

  StoreFiles& files_;
  Directory& directory_;
  Woken woken_;
  std::uint64_t busy_slots_max_ = 0;  // the size to which the log may grow under load
  std::uint64_t grown_bytes_ = 0;     // growth beyond the given size
};

}  // namespace memlith::core
