// Recovers a store to its last durable commit. Floor: store. docs/architecture.md, "Life of a recovery".
#pragma once

#include <cstdint>
#include <vector>

#include "store/directory.hpp"
#include "store/replay.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// One thread: the store is not shared yet. A read-only store keeps the log's content in the overlay and writes nothing.
class Recovery {
 public:
  Recovery(StoreFiles& files, Directory& directory, Replay& replay)
      : files_(files), directory_(directory), replay_(replay) {}

  // Reads the log once. Every fault that can be found without writing is found before anything is written: a CORRUPT
  // store stays as it was found.
  Status run();

 private:
  Status flush_log();
  Status gather_log();
  Status take(const Frame& frame);
  Status gather(const Frame& frame);
  Status gather_waiting();
  Status find_common_commits();
  Status write_piece_home();
  Status bring_home();

  StoreFiles& files_;
  Directory& directory_;
  Replay& replay_;
  LogPosition tail_;
  LogPosition gathered_;  // what is in the overlay or at home
  std::uint64_t frames_bytes_ = 0;
  // Did not fit into the overlay: they wait until a later frame proves that the content of the overlay is durable.
  std::vector<PendingFrame> waiting_;
};

}  // namespace memlith::core
