// Finds or makes the log of a store, locks it and opens it. Floor: store.
#pragma once

#include <string>

#include "store/directory.hpp"
#include "store/store_files.hpp"

namespace memlith::core {

// Alone: nobody else has the store yet.
class Opening {
 public:
  Opening(StoreFiles& files, Directory& directory) : files_(files), directory_(directory) {}

  // Fills `files`. Nothing of a store that was there is changed.
  Status run();
  // Says in the log who has the store open for writing. Advisory: it tells a person whom to ask. The lock itself is the kernel's.
  Status leave_holder_note();
  // Removes what run() made, of a store to which nothing was committed yet.
  void undo();
  [[nodiscard]] bool made_log() const { return !made_log_.empty(); }

 private:
  Status find_or_make_log();
  Status make_log_if_nobody_does();
  Status make_log();
  Status lock_log(const std::string& name);
  Status tell_who_holds(Status busy);
  Status read_header();
  Status check_blocks(const StoreHeader& header);
  [[nodiscard]] LogFormat log_format(std::uint32_t block_bytes) const;

  StoreFiles& files_;
  Directory& directory_;
  std::string made_log_;  // the name of the log that was made; empty: it was there
};

}  // namespace memlith::core
