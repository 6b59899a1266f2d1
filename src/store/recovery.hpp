// Brings a store that was found to its last durable commit. Floor: store. docs/architecture.md, "Life of a recovery".
#pragma once

#include <cstdint>
#include <vector>

#include "store/directory.hpp"
#include "store/replay.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// Alone: nobody else has the store yet. A read-only store keeps what the log has in the overlay, and nothing is written.
class Recovery {
 public:
  Recovery(StoreFiles& files, Directory& directory, Replay& replay)
      : files_(files), directory_(directory), replay_(replay) {}

  // Reads the log once. Everything that can be told without writing is told before anything is written: what is CORRUPT is left as it
  // was found.
  Status run();

 private:
  // A frame behind a full overlay, which waits until a later one proves that what is in the overlay is durable.
  struct Waiting {
    Frame frame;
    std::vector<std::byte> payload;
  };

  Status flush_log();
  Status gather_log();
  Status take(const Frame& frame);
  Status gather(const Frame& frame);
  Status gather_waiting();
  Status write_piece_home();
  Status bring_home();

  StoreFiles& files_;
  Directory& directory_;
  Replay& replay_;
  LogPosition tail_;
  LogPosition gathered_;  // what is in the overlay or at home
  std::uint64_t frames_bytes_ = 0;
  std::vector<Waiting> waiting_;
};

}  // namespace memlith::core
