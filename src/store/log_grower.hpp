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
  // The number of slots that a clean close leaves, so that the next user need not fill them with zeros again: as many
  // as were filled since the opening, up to the size that growth is given. Fewer than at creation: those of then.
  [[nodiscard]] std::uint64_t slots_to_keep() const;

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
  Lsn opened_at_;                     // the head of the log then
  std::uint64_t busy_slots_max_ = 0;  // the size to which the log may grow under load
  std::uint64_t grown_bytes_ = 0;     // growth beyond the given size
};

}  // namespace memlith::core
